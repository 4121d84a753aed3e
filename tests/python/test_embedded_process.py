"""libcpshard.so in a process with others that bring Protocol Buffers or Abseil of their own, in any
order; after a fork; and without torch. Each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from cpshard import native

# What each of the others is and does.
PARTS = {
    "library": """
        import ctypes, os
        from importlib.util import find_spec
        native = os.path.join(find_spec("cpshard").submodule_search_locations[0], "_native")
        ctypes.CDLL(os.path.join(os.environ.get("CPSHARD_NATIVE_DIR", native), "libcpshard.so"))
    """,
    "torch": """
        import torch
        assert torch.ones(3).sum() == 3
    """,
    "grpc": """
        import grpc
        grpc.insecure_channel("localhost:1").close()
    """,
    "protobuf": """
        from google.protobuf import descriptor_pb2, json_format
        assert json_format.MessageToJson(descriptor_pb2.FileDescriptorProto(name="x"))
    """,
    # As with TORCH_USE_RTLD_GLOBAL: what torch exports stands before what the library brings.
    "torch for all": """
        import ctypes, os, torch
        ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"),
                    os.RTLD_NOW | os.RTLD_GLOBAL)
    """,
    "plan": """
        import numpy as np
        from cpshard import embedded
        ids = np.arange(1, 25, dtype=np.int64).reshape(2, 12)
        options = {"contiguous": {"pad_multiple": 4}, "padding_token_id": 9,
                   "extra_streams": [{"name": "weights", "seq_axis": 1, "float_pad": 0.5}]}
        plan = embedded.plan({"input_ids": ids, "labels": ids, "weights": ids.astype(np.float32),
                              "attention_mask": np.ones((2, 12), np.int64)}, options, 2)
        shards = plan.shards()
        assert shards[0].batch["input_ids"].tolist() == ids[:, :8].tolist()
        assert shards[1].batch["labels"].tolist() == [[9, 10, 11, 12, -100, -100, -100, -100],
                                                      [21, 22, 23, 24, -100, -100, -100, -100]]
        assert plan.totals.num_label_tokens == 24
        try:
            embedded.plan({"input_ids": ids, "labels": ids[:, 1:]}, "contiguous", 2)
        except ValueError as error:
            assert "labels" in str(error), error
        else:
            raise AssertionError("not refused")
    """,
    "fork": """
        child = os.fork()
        if child == 0:
            status = 1
            try:
                again = embedded.plan({"input_ids": ids, "labels": ids}, options | {
                    "extra_streams": []}, 2)
                same = (again.shard(1).batch["input_ids"] == shards[1].batch["input_ids"]).all()
                same &= plan.shard(1).batch["weights"].shape == shards[1].batch["weights"].shape
                status = 0 if same else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """,
    "no torch": """
        import sys
        assert "torch" not in sys.modules
    """,
}


def run(*parts: str) -> None:
    script = "\n".join(textwrap.dedent(PARTS[part]) for part in parts)
    done = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("order", [
    ("library", "torch", "grpc", "protobuf"),
    ("torch", "grpc", "protobuf", "library"),
    ("grpc", "library", "torch", "protobuf"),
    ("protobuf", "library", "grpc", "torch"),
    ("torch for all", "library", "grpc"),
], ids=" then ".join)
def test_it_plans_beside_others_whoever_was_first(order: tuple[str, ...]):
    run(*order, "plan", "plan")


def test_the_library_exports_its_interface_alone_and_needs_no_grpc():
    path = native.find("libcpshard.so", "")
    symbols = subprocess.check_output(["nm", "-D", "--defined-only", path], text=True)
    names = [line.split()[-1] for line in symbols.splitlines()]
    assert names and all(name.startswith("cpshard_") for name in names)
    needed = subprocess.check_output(["ldd", path], text=True)
    assert "libprotobuf" in needed and "grpc" not in needed


def test_a_forked_child_plans_and_uses_its_parents_plan():
    run("library", "plan", "fork", "plan")


def test_batches_of_numpy_need_no_torch():
    run("plan", "no torch")
