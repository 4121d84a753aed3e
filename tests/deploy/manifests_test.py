"""deploy/: rendered, checked against the published schemas, and by rules of our own. Planted
faults are found. No cluster is needed, and none has seen these manifests.
"""

import ast
import collections
import functools
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

import faults
import rules
from rules.documents import CONFIGURATION, DEFAULTS, containers
from rules.server import PROBES

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["CPSHARD_BIN"])
KUBERNETES = "1.37"  # the newest whose schemas the validator has
TOOLS = pathlib.Path(sys.executable).parent

# What is applied together.
VARIANTS = {"cpu": ("base", "loaders"), "gpu": ("dra", "loaders")}


def render(variant):
    """The kustomizations of a variant, as one text of several documents."""
    return "---\n".join(render_one(ROOT / "deploy" / folder) for folder in VARIANTS[variant])


@functools.cache
def render_one(folder):
    """What kubectl makes of the kustomization of a folder, as it is when first asked."""
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True,
                          timeout=60)
    if done.returncode != 0:
        raise AssertionError(f"kubectl kustomize: {done.stderr}")
    return done.stdout


def schema_errors(text):
    """What the schemas say of a rendered text; '' = nothing."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([TOOLS / "kubernetes-validate", "--strict", "--quiet", "-k",
                               KUBERNETES, file.name], capture_output=True, text=True, timeout=60)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def configuration_errors(documents):
    """What cpshardd says of the configurations in the ConfigMaps; '' = nothing."""
    said = ""
    for document in documents:
        for name, text in document.get("data", {}).items():
            if document["kind"] != "ConfigMap" or name != "cpshardd.json":
                continue
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                file.write(text)
                file.flush()
                done = subprocess.run([BIN / "cpshardd", "--check-config", "--config", file.name],
                                      capture_output=True, text=True, timeout=60)
            said += "" if done.returncode == 0 else done.stderr
    return said


class Manifests(unittest.TestCase):
    maxDiff = None

    def check(self, variant, kinds):
        text = render(variant)
        documents = list(yaml.safe_load_all(text))
        found = sorted(f"{document['kind']}/{document['metadata']['name']}"
                       for document in documents if document["kind"] != "ConfigMap")
        self.assertEqual(found, kinds)
        self.assertEqual(schema_errors(text), "")
        self.assertEqual(rules.violations(documents), [])
        self.assertEqual(configuration_errors(documents), "")

    def test_the_base_with_loaders_renders_and_passes_schema_rules_and_configuration(self):
        self.check("cpu", ["Job/loaders", "Job/training", "NetworkPolicy/training",
                           "Service/training"])

    def test_the_variant_with_gpus_renders_and_passes_schema_rules_and_configuration(self):
        self.check("gpu", ["Job/loaders", "Job/training", "NetworkPolicy/training",
                           "ResourceClaimTemplate/training-gpus", "Service/training"])

    def test_both_containers_of_the_variant_with_gpus_list_one_claim(self):
        documents = yaml.safe_load_all(render("gpu"))
        claims = {where: container["resources"].get("claims")
                  for where, _, container in containers(list(documents))}
        self.assertEqual(claims, {"Job/training/cpshard": [{"name": "gpus"}],
                                  "Job/training/trainer": [{"name": "gpus"}],
                                  "Job/loaders/loader": None})

    def test_the_variant_with_gpus_is_configured_as_the_base_but_for_its_executor(self):
        base, dra = (json.loads((ROOT / "deploy" / folder / "cpshardd.json").read_text())
                     for folder in ("base", "dra"))
        beside = {"executor", "cuda_device", "cuda_memory_bytes", "pinned_bytes"}
        self.assertEqual({key: dra[key] for key in dra.keys() - beside},
                         {key: base[key] for key in base.keys() - {"executor"}})

    def test_every_kustomization_is_of_a_variant(self):
        folders = {path.parent.name for path in (ROOT / "deploy").rglob("kustomization.yaml")}
        self.assertEqual(folders, {folder for folders in VARIANTS.values() for folder in folders})

    def test_every_manifest_belongs_to_a_kustomization(self):
        for path in (ROOT / "deploy").rglob("*.yaml"):
            if path.name == "kustomization.yaml":
                continue
            kustomization = yaml.safe_load((path.parent / "kustomization.yaml").read_text())
            patches = [patch["path"] for patch in kustomization.get("patches", [])]
            self.assertIn(path.name, kustomization["resources"] + patches, path)


RESTART_RULES = """
          # restartPolicyRules:
          #   - action: RestartAllContainers
          #     exitCodes: {operator: In, values: [86]}
"""


def planted(file, old, new):
    """The rendered text of a variant that has the file of deploy/, with one edit."""
    with tempfile.TemporaryDirectory(prefix="cpshard-deploy-") as folder:
        deploy = pathlib.Path(folder) / "deploy"
        shutil.copytree(ROOT / "deploy", deploy)
        text = (deploy / file).read_text()
        if old not in text:
            raise AssertionError(f"{file} has no {old!r}")
        (deploy / file).write_text(text.replace(old, new, 1))
        edited = pathlib.Path(file).parent.name
        variant = next(name for name, folders in VARIANTS.items() if edited in folders)
        return "---\n".join(render_one(deploy / folder) if folder == edited else
                            render_one(ROOT / "deploy" / folder) for folder in VARIANTS[variant])


@functools.cache
def said_of(fault):
    """{(rule, line of its source): what it says there} of one of faults.FAULTS."""
    documents = list(yaml.safe_load_all(planted(fault.file, fault.old, fault.new)))
    found = collections.defaultdict(list)
    for rule in rules.RULES:
        violations = rule(documents)
        for line in violations:
            found[rule.__name__, violations.gi_frame.f_lineno].append(line)
    return found


def yields_of(rule):
    """{(rule, line of its source)} where it can say something."""
    tree = ast.parse(inspect.getsource(rule))
    return {(rule.__name__, rule.__code__.co_firstlineno - 1 + node.lineno)
            for node in ast.walk(tree) if isinstance(node, (ast.Yield, ast.YieldFrom))}


class PlantedFaults(unittest.TestCase):
    """Each is one edit of a copy of deploy/."""
    maxDiff = None

    def test_each_is_found_by_a_rule_that_says_so(self):
        for fault in faults.FAULTS:
            with self.subTest(fault.what):
                lines = [line for found in said_of(fault).values() for line in found]
                self.assertTrue(any(fault.said in line for line in lines), lines)

    def test_whatever_a_rule_can_say_is_said_of_one_that_is_meant_for_it(self):
        can = set().union(*map(yields_of, rules.RULES))
        said = {place for fault in faults.FAULTS for place, lines in said_of(fault).items()
                if any(fault.said in line for line in lines)}
        self.assertEqual(can - said, set())

    def test_every_rule_that_is_written_is_asked(self):
        written = {rule for subject in (rules.pods, rules.network, rules.server, rules.claims)
                   for _, rule in inspect.getmembers(subject, inspect.isgeneratorfunction)
                   if rule.__module__ == subject.__name__}
        self.assertEqual(written, set(rules.RULES))

    def check_schema(self, file, old, new, word):
        self.assertIn(word, schema_errors(planted(file, old, new)))

    def test_a_misspelt_field_is_found(self):
        self.check_schema("base/job.yaml", "restartPolicy: Always", "restartPolcy: Always",
                          "restartPolcy")

    def test_a_misspelt_field_deep_inside_is_found(self):
        self.check_schema("base/job.yaml", "failureThreshold: 60", "failureTreshold: 60",
                          "failureTreshold")

    def test_a_misspelt_field_of_the_claim_is_found(self):
        self.check_schema("dra/claim.yaml", "allocationMode", "alocationMode", "alocationMode")

    def test_a_value_of_another_type_is_found(self):
        self.check_schema("base/job.yaml", "backoffLimit: 3", "backoffLimit: three", "three")

    def test_a_misspelt_key_of_the_configuration_is_found(self):
        text = planted("base/cpshardd.json", '"workers"', '"wokers"')
        self.assertIn("wokers", configuration_errors(list(yaml.safe_load_all(text))))

    def test_the_restart_of_all_containers_that_is_described_is_what_the_schema_has(self):
        text = planted("dra/pod.yaml", RESTART_RULES, RESTART_RULES.replace("# ", ""))
        self.assertEqual(schema_errors(text), "")
        sidecar, = (container for _, _, container in containers(list(yaml.safe_load_all(text)))
                    if container["name"] == "cpshard")
        self.assertEqual(sidecar["restartPolicyRules"][0]["exitCodes"]["values"], [86])


class WhatTheRulesSayOfTheServer(unittest.TestCase):
    def test_its_defaults_are_those_of_its_help(self):
        text = subprocess.run([BIN / "cpshardd", "--help"], capture_output=True, text=True,
                              check=True, timeout=60).stdout
        for key, value in DEFAULTS.items():
            flag = re.escape("--" + key.replace("_", "-"))
            said = re.search(rf"^  {flag} .*?\[default:\s+(.*?)\]", text, re.M | re.S).group(1)
            wanted = {"listen": "127.0.0.1:7070", "socket_mode": f"{DEFAULTS['socket_mode']:04o}"}
            self.assertEqual(said, wanted.get(key, str(value)), key)

    def test_its_health_service_has_the_names_that_probes_ask_for(self):
        source = (ROOT / "server" / "server.cc").read_text()
        names = dict(re.findall(r'constexpr char (k\w+)\[\] = "(.*)";', source))
        served = re.search(r"kHealthNames\[\] = \{(.*)\};", source).group(1).split(", ")
        self.assertLessEqual(set(PROBES.values()), {names[name] for name in served})

    def test_its_image_looks_for_the_configuration_where_they_do(self):
        command = re.search(r"^CMD (.*)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.M)
        self.assertEqual(json.loads(command.group(1)), ["--config", "/".join(CONFIGURATION)])


class Dockerfile(unittest.TestCase):
    path = ROOT / "deploy" / "Dockerfile"

    def test_passes_its_linter(self):
        done = subprocess.run([TOOLS / "hadolint", self.path], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.stdout + done.stderr, "")
        self.assertEqual(done.returncode, 0)

    def test_builds_with_the_packages_that_dev_names_and_runs_as_the_user_of_the_manifests(self):
        text = self.path.read_text()
        line = (ROOT / "dev").read_text().split("BUILD_PACKAGES=(", 1)[1].split(")", 1)[0]
        for package in set(line.split()) - {"ccache"}:  # an image is built once
            self.assertIn(f" {package} ", text.replace("\n", " ").replace("\\", " "), package)
        self.assertIn("USER 10001:10001", text)
        self.assertNotIn("torch", text.split("FROM", 1)[1])

    def test_builds_for_the_cpu_if_not_told_otherwise(self):
        text = self.path.read_text()
        self.assertIn("\nARG CUDA=OFF\n", text)
        self.assertIn('"-DCPSHARD_CUDA=$CUDA"', text)

    def test_a_build_with_cuda_installs_the_packages_that_cmake_names(self):
        text = (ROOT / "cmake" / "CudaToolkit.cmake").read_text()
        text = text.split("WAY_OUT", 1)[1].split(")", 1)[0]
        named = set(re.findall(r"nvidia-[a-z-]*[a-z]", text))
        stage, runtime = self.path.read_text().split("FROM")[1:]
        self.assertEqual(set(re.findall(r"(nvidia-[a-z-]+)==\d", stage)), named)
        self.assertGreater(len(named), 3)
        self.assertNotIn("toolkit", runtime)

    def test_installs_every_library_that_the_programs_load(self):
        runtime = self.path.read_text().rsplit("FROM", 1)[1]
        for program in ("cpshard", "cpshardd"):
            loaded = subprocess.run(["ldd", BIN / program], capture_output=True, text=True,
                                    check=True).stdout
            for library, package in (("libgrpc++.so", "libgrpc++1.51"),
                                     ("libprotobuf.so", "libprotobuf32"),
                                     ("libxxhash.so", "libxxhash0"),
                                     ("libspdlog.so", "libspdlog1.10")):
                if library in loaded:
                    self.assertIn(package, runtime)
            self.assertNotIn("libcuda", loaded)  # of the node's driver, and looked for when used


if __name__ == "__main__":
    unittest.main()
