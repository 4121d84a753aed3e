"""Who may include whom: the layers of the project, checked by reading #include lines.

    plan <- batch <- exec <- proto <- {server, client};  {plan, batch, exec} <- core/torch

Also refused: conditional compilation on a feature. Present or absent is which of two files is
linked. Every finding names the file, the line, the rule and the way out.
"""

import pathlib
import re
import sys
from typing import NamedTuple

from source_tree import Violation, files, main

CORE = {"core/plan", "core/batch", "core/exec"}
PLAN_LIBRARIES = {"std", "absl/status", "absl/strings", "absl/types"}
CORE_LIBRARIES = PLAN_LIBRARIES | {"absl/synchronization", "absl/base", "xxhash", "system"}


class Layer(NamedTuple):
    includes: set  # folders of the project
    libraries: set = None  # what else; None: any library that no room below keeps


# A folder that is not here (nor under one that is) may include nothing of the project.
LAYERS = {
    "core/plan": Layer({"core/plan"}, PLAN_LIBRARIES),
    "core/batch": Layer({"core/plan", "core/batch"}, CORE_LIBRARIES),
    "core/exec": Layer(CORE, CORE_LIBRARIES | {"cuda"}),
    "core/oracle": Layer({"core/oracle"}, {"std"}),
    "core/torch": Layer(CORE | {"core/torch"}),
    "proto": Layer(CORE | {"proto"}),
    "server": Layer(CORE | {"proto", "server"}),
    "client": Layer(CORE | {"core/oracle", "proto", "client"}),
    "examples": Layer({"core/torch"}),
}
# Not ours to the reader: it stands for a project of somebody else's, with a root of its own.
CONSUMER = "tests/install/consumer/"
PROJECT_FOLDERS = {"core", "proto", "server", "client", "tests"}

TORCH_MAY_BE_INCLUDED_BY = re.compile(r"(core/torch|examples)/(?!.*\.cuh?$)")
CUDA_MAY_BE_INCLUDED_BY = re.compile(r"core/torch/|tests/cuda/|.*\.cuh?$")
PROTOBUF_MAY_BE_INCLUDED_BY = re.compile(r"proto/|server/service\.cc$|client/client\.cc$")
GRPC_MAY_BE_INCLUDED_BY = re.compile(r"server/|client/|proto/(status|slices)\.(h|cc)$")

LIBRARIES = [  # the first that matches the included path
    ("generated gRPC", re.compile(r".*\.grpc\.pb\.h$")),
    ("protobuf", re.compile(r"google/protobuf/|.*\.pb\.h$")),
    ("grpc", re.compile(r"(grpc|grpcpp|grpc\+\+)/")),
    ("torch", re.compile(r"(torch|ATen|c10|caffe2)/")),
    ("cuda", re.compile(r"(cuda\w*|cooperative_groups|nccl\w*|nvml)\.h$|(cuda|cub|thrust)/")),
    ("test library", re.compile(r"(gtest|gmock|benchmark)/")),
    ("xxhash", re.compile(r"xxhash\.h$")),
    ("absl", re.compile(r"absl/\w+")),  # the folder itself: absl/status
    ("std", re.compile(r"[a-z_0-9]+$")),
]

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITION = re.compile(r"\s*#\s*(?:if|ifdef|ifndef|elif|elifdef|elifndef)\b(.*)")
GUARD = re.compile(r"\s*#\s*ifndef\s+(\w+)\s*$")
FEATURE = re.compile(r"\b\w*(?:CUDA|TORCH|GRPC|NCCL)\w*|\b(?:\w+_)?(?:USE|HAVE|WITH)_\w+"
                     r"|\b__has_include\b")


def layer_of(path):
    """The folder that LAYERS knows, or the first folders of the path."""
    parts = path.split("/")
    if parts[0] in LAYERS or len(parts) < 3:
        return parts[0] if len(parts) > 1 else ""
    return "/".join(parts[:2]) if parts[0] == "core" else parts[0]


def library_of(bracket, target):
    for name, pattern in LIBRARIES:
        match = pattern.match(target)
        if match:
            return match.group(0) if name == "absl" else name
    is_c_header = bracket == "<" and target.endswith(".h") and target.split("/")[0] not in (
        "CLI", "nlohmann", "spdlog", "fmt")
    return "system" if is_c_header else "other"


def judge(path, bracket, target):
    """The rule that including `target` in `path` breaks, and the way out; None if it may."""
    if path.startswith("tests/"):
        return None
    layer = layer_of(path)
    if target.split("/")[0] in PROJECT_FOLDERS:
        return judge_project(path, layer, target)
    return judge_library(path, layer, target, library_of(bracket, target))


def judge_project(path, layer, target):
    wanted = layer_of(target)
    if wanted == "tests":
        return ("tests-stay-outside", "the product never includes tests/: move what both need into "
                "the product, or the caller into tests/")
    if {layer, wanted} == {"server", "client"}:
        return ("server-and-client-apart", "server and client never include each other: put what "
                "both need under proto/ or core/")
    if wanted == "core/torch" and not TORCH_MAY_BE_INCLUDED_BY.match(path):
        return ("torch-room", "nothing outside core/torch includes it, nor a .cu file: hand the "
                "data over as core/batch streams")
    allowed = LAYERS[layer].includes if layer in LAYERS else set()
    if wanted not in allowed:
        may = ", ".join(sorted(allowed)) or "nothing of the project"
        return ("layers", f"{layer or 'the root'} may include {may}; not {wanted}: move the code "
                "to the layer that may, or pass the value in (a new folder: add it to LAYERS)")
    return None


def judge_library(path, layer, target, library):
    if library == "torch" and not TORCH_MAY_BE_INCLUDED_BY.match(path):
        return ("torch-room", "torch headers belong to core/torch alone and never to a .cu file: "
                "speak core/batch streams or raw pointers here")
    if library in ("protobuf", "generated gRPC") and not PROTOBUF_MAY_BE_INCLUDED_BY.match(path):
        return ("protobuf-room", f"{library} headers belong to proto/, server/service.cc and "
                "client/client.cc: call the codec in proto/, or forward-declare the message")
    if library == "grpc" and not GRPC_MAY_BE_INCLUDED_BY.match(path):
        return ("grpc-room", "gRPC headers belong to server/, client/ and proto/status.*: return "
                "absl::Status here and convert there")
    if library == "cuda" and not CUDA_MAY_BE_INCLUDED_BY.match(path):
        return ("cuda-room", "CUDA headers belong to .cu files and core/torch: declare a plain "
                "function in the header and define it in a .cu file")
    if library == "test library":
        return ("tests-stay-outside", "the product includes no test library: move this to tests/")
    allowed = LAYERS[layer].libraries if layer in LAYERS else None
    if allowed is not None and library not in allowed:
        return ("libraries", f"{layer} may include {', '.join(sorted(allowed))}; not {library}: "
                "keep it in a layer above, or extend LAYERS for a reason")
    return None


def check_include(root, path, number, bracket, target, seen):
    """Violations of one #include; `seen`: libraries that the file included further up."""
    text = f"includes {target}; "
    first = target.split("/")[0]
    is_local = bracket == '"' and (first in (".", "..") or (
        first not in PROJECT_FOLDERS and ((root / path).parent / target).is_file()))
    if is_local and not path.startswith(CONSUMER):
        return [Violation(path, number, "from-the-root",
                          text + "write project includes from the repository root")]
    found = judge(path, bracket, target)
    if found:
        return [Violation(path, number, found[0], text + found[1])]
    seen.add(library_of(bracket, target))
    if "torch" in seen and seen & {"protobuf", "generated gRPC", "grpc"}:
        return [Violation(path, number, "torch-meets-protobuf", text + "torch's headers carry an "
                          "older protobuf and break generated code: split the file in two")]
    return []


def check_conditions(path, lines):
    found = []
    for index, line in enumerate(lines):
        condition = CONDITION.match(line)
        if not condition:
            continue
        guard = GUARD.match(line)
        following = lines[index + 1] if index + 1 < len(lines) else ""
        if guard and re.match(rf"\s*#\s*define\s+{guard.group(1)}\s*$", following):
            continue
        expression, step = condition.group(1), index
        while expression.endswith("\\") and step + 1 < len(lines):
            step += 1
            expression = expression[:-1] + lines[step]
        feature = FEATURE.search(expression)
        if feature:
            found.append(Violation(
                path, index + 1, "feature-conditional", f"compiles on {feature.group(0)}; put the "
                "two variants in two files and let CMake link one"))
    return found


def check(root):
    root = pathlib.Path(root)
    found = []
    for path in files(root):
        if not re.search(r"\.(h|hpp|cuh|cc|cpp|cu|inc)$", path):
            continue
        lines = (root / path).read_text(encoding="utf-8", errors="replace").splitlines()
        seen = set()
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if match:
                found += check_include(root, path, number, match.group(1), match.group(2), seen)
        found += check_conditions(path, lines)
    return found


if __name__ == "__main__":
    sys.exit(main(__doc__, check))
