"""deploy/: rendered, checked against the published schemas, and by rules of our own. Planted faults
are found. No cluster is needed, and none has seen these manifests.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

import rules

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["CPSHARD_BIN"])
KUBERNETES = "1.37"  # the newest whose schemas the validator has
TOOLS = pathlib.Path(sys.executable).parent


def render(deploy):
    """All kustomizations under a folder, as one text of several documents."""
    folders = sorted(path.parent for path in deploy.rglob("kustomization.yaml"))
    return "---\n".join(render_one(folder) for folder in folders)


def render_one(folder):
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

    def test_every_kustomization_renders_and_passes_schema_rules_and_configuration(self):
        text = render(ROOT / "deploy")
        documents = list(yaml.safe_load_all(text))
        kinds = sorted(f"{document['kind']}/{document['metadata']['name']}"
                       for document in documents if document["kind"] != "ConfigMap")
        self.assertEqual(kinds, ["Job/loaders", "Job/training", "NetworkPolicy/training",
                                 "Service/training"])
        self.assertEqual(schema_errors(text), "")
        self.assertEqual(rules.violations(documents), [])
        self.assertEqual(configuration_errors(documents), "")

    def test_every_manifest_belongs_to_a_kustomization(self):
        for path in (ROOT / "deploy").rglob("*.yaml"):
            if path.name == "kustomization.yaml":
                continue
            resources = yaml.safe_load((path.parent / "kustomization.yaml").read_text())["resources"]
            self.assertIn(path.name, resources, path)


class PlantedFaults(unittest.TestCase):
    """Each is one edit of a copy of deploy/."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cpshard-deploy-")
        self.addCleanup(folder.cleanup)
        self.deploy = pathlib.Path(folder.name) / "deploy"
        shutil.copytree(ROOT / "deploy", self.deploy)

    def planted(self, file, old, new):
        """The rendered text of everything with one edit."""
        path = self.deploy / file
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1))
        return render(self.deploy)

    def check_schema(self, file, old, new, word):
        self.assertIn(word, schema_errors(self.planted(file, old, new)))

    def check_rule(self, file, old, new, part):
        found = rules.violations(list(yaml.safe_load_all(self.planted(file, old, new))))
        self.assertTrue(any(part in line for line in found), found)

    def test_a_misspelt_field_is_found(self):
        self.check_schema("base/job.yaml", "restartPolicy: Always", "restartPolcy: Always",
                          "restartPolcy")

    def test_a_misspelt_field_deep_inside_is_found(self):
        self.check_schema("base/job.yaml", "failureThreshold: 60", "failureTreshold: 60",
                          "failureTreshold")

    def test_a_value_of_another_type_is_found(self):
        self.check_schema("base/job.yaml", "backoffLimit: 3", "backoffLimit: three", "three")

    def test_a_container_that_is_no_sidecar_is_found(self):
        self.check_rule("base/job.yaml", "          restartPolicy: Always\n", "", "native sidecar")

    def test_a_probe_of_another_port_is_found(self):
        self.check_rule("base/job.yaml", "grpc: {port: 7070, service: liveness}",
                        "grpc: {port: 7071, service: liveness}", "livenessProbe asks port 7071")

    def test_a_writable_root_filesystem_is_found(self):
        self.check_rule("base/job.yaml", "            readOnlyRootFilesystem: true\n", "",
                        "Job/training/cpshard: readOnlyRootFilesystem")

    def test_root_is_found(self):
        self.check_rule("base/job.yaml", "runAsNonRoot: true", "runAsNonRoot: false",
                        "runAsNonRoot")

    def test_an_image_without_a_version_is_found(self):
        self.check_rule("base/kustomization.yaml", "newTag: 0.1.0", "newTag: latest",
                        "needs a tag other than latest")

    def test_a_missing_memory_limit_is_found(self):
        self.check_rule("loaders/loaders.yaml", "            limits: {memory: 8Gi}\n", "",
                        "Job/loaders/loader: a memory limit")

    def test_a_mount_without_a_volume_is_found(self):
        self.check_rule("base/job.yaml", "- {name: run, mountPath: /run/cpshard}",
                        "- {name: rum, mountPath: /run/cpshard}", "no volume rum")

    def test_a_server_on_another_port_than_its_container_is_found(self):
        self.check_rule("base/cpshardd.json", "0.0.0.0:7070", "0.0.0.0:7071", "listens on [7071]")

    def test_a_socket_outside_of_the_shared_volume_is_found(self):
        self.check_rule("base/cpshardd.json", "unix:/run/cpshard/", "unix:/run/other/",
                        "no writable volume holds")

    def test_a_pool_larger_than_the_memory_is_found(self):
        self.check_rule("base/cpshardd.json", "4294967296", "8589934592", "pool_bytes")

    def test_a_drain_longer_than_the_grace_is_found(self):
        self.check_rule("base/cpshardd.json", '"shutdown_seconds": 60', '"shutdown_seconds": 160',
                        "terminationGracePeriodSeconds")

    def test_a_policy_for_another_port_is_found(self):
        self.check_rule("base/networkpolicy.yaml", "port: 7070", "port: 7077", "opens port 7077")

    def test_a_service_that_selects_nothing_is_found(self):
        self.check_rule("base/service.yaml", "selector: {app.kubernetes.io/name: training}",
                        "selector: {app.kubernetes.io/name: trainings}", "no pod of its selector")

    def test_a_misspelt_key_of_the_configuration_is_found(self):
        text = self.planted("base/cpshardd.json", '"workers"', '"wokers"')
        self.assertIn("wokers", configuration_errors(list(yaml.safe_load_all(text))))


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


if __name__ == "__main__":
    unittest.main()
