"""Runs the real reference on one input, on the rank that this process is.

Its packages' __init__ files pull the whole model zoo in, so packages without code stand in their
place and only the modules that shard are imported.
"""

import importlib
import importlib.util
import pathlib
import sys
import types
from typing import Any, Callable

import stand_ins
from torch_values import decode, encode, encode_layout, encode_tensor

PACKAGE = "nemo_automodel"
COMMON = "components.distributed"
STUBS = ("", "shared", "components", COMMON, f"{COMMON}.context_parallel", "components.models",
         "components.models.common") + tuple(
    f"components.models.{name}" for name in
    ("deepseek_v4", "deepseek_v41", "gemma4_moe", "glm5_next", "glm_moe_dsa", "kimi_k3",
     "kimi_linear", "mimo_v2_flash", "qwen3_8_flash_next"))

Outputs = dict[str, Any]
Call = Callable[..., tuple[Outputs, Any, dict[str, Any]]]  # outputs, layout, state


def module(path: str) -> types.ModuleType:
    return importlib.import_module(f"{PACKAGE}.{path}")


def prepare() -> None:
    """Puts stubs and stand-ins in place and imports what every rank needs."""
    spec = importlib.util.find_spec(PACKAGE)
    root = pathlib.Path(spec.submodule_search_locations[0])
    for path in STUBS:
        name = f"{PACKAGE}.{path}" if path else PACKAGE
        stub = types.ModuleType(name)
        stub.__path__ = [str(root.joinpath(*path.split(".")))]
        sys.modules[name] = stub
    stand_ins.install()
    sharder = module(f"{COMMON}.context_parallel.sharder")
    package = sys.modules[f"{PACKAGE}.{COMMON}.context_parallel"]
    package.ContextParallelSharder = sharder.ContextParallelSharder
    for path, _ in SHARDERS.values():
        module(path)
    for late in ("torch.distributed.tensor.experimental._attention", "torch._dynamo"):
        importlib.import_module(late)  # once, before ranks are forked
    capture_buffers()


# Backends that are one function of the sharders' common form: (module, function).
SHARDERS = {
    "identity": (f"{COMMON}.context_parallel.sharder", "shard_batch_identity"),
    "contiguous": (f"{COMMON}.context_parallel.sharder", "shard_batch_contiguous"),
    "glm_dsa": ("components.models.glm_moe_dsa.cp", "shard_glm_dsa_packed_cp_batch"),
    "dsv4": ("components.models.deepseek_v4.cp", "make_dsv4_contiguous_shard_cp_batch_and_ctx"),
    "dsv41": ("components.models.deepseek_v41.cp", "shard_cp_batch"),
    "gemma4": ("components.models.gemma4_moe.cp_batch",
               "make_contiguous_aux_only_shard_cp_batch_and_ctx"),
    "kimi_linear": ("components.models.kimi_linear.cp", "shard_batch_for_kimi_cp"),
    "kimi_k3": ("components.models.kimi_k3.cp", "shard_batch_for_kimi_cp"),
    "blockdiag": (f"{COMMON}.blockdiag_cp.batch", "make_cp_blockdiag_batch_and_ctx"),
    "glm5_next": ("components.models.glm5_next.cp", "shard_batch_for_glm5_next_cp"),
    "mimo_te": ("components.models.mimo_v2_flash.cp", "shard_batch_for_mimo_te"),
    "qwen3_8_flash_next": ("components.models.qwen3_8_flash_next.cp",
                           "shard_batch_for_qwen3_8_flash_next_cp"),
}
ROUND_ROBIN = {"round_robin": "shard_batch_load_balanced",
               "round_robin_aux_only": "shard_batch_aux_only"}

_buffers: list[Any] = []  # of the last context that was made


def capture_buffers() -> None:
    """The padded loss mask of round robin is reachable only as a buffer of torch's context."""
    utils = module(f"{COMMON}.context_parallel.utils")
    make = utils.create_context_parallel_ctx

    def remember(**arguments: Any) -> Any:
        _buffers[:] = arguments["cp_buffers"]
        return make(**arguments)

    utils.create_context_parallel_ctx = remember


def call_sharder(backend: str, mesh: Any, batch: Outputs, **arguments: Any) -> Any:
    path, function = SHARDERS[backend]
    _, outputs, layout = getattr(module(path), function)(mesh, None, batch, **arguments)
    return outputs, encode_layout(layout), {}


def call_round_robin(backend: str, mesh: Any, batch: Outputs, **arguments: Any) -> Any:
    """The view inside the context (D1); the loss-mask buffer stands after labels and positions."""
    sharder = module(f"{COMMON}.context_parallel.sharder")
    context, outputs, layout = getattr(sharder, ROUND_ROBIN[backend])(mesh, None, batch,
                                                                      **arguments)
    with context():
        outputs = {name: encode(value) for name, value in outputs.items()}
        if arguments["loss_mask"] is not None:
            at = 3 if backend == "round_robin" else 2
            outputs["loss_mask(buffer)"] = encode_tensor(_buffers[at])
    return outputs, encode_layout(layout), {}


def resolve(mesh: Any, **arguments: Any) -> Any:
    utils = module(f"{COMMON}.context_parallel.utils")
    defaults = {"magi": None, "is_thd": True, "num_chunks": 1, "seq_lens_padding_value": -1000,
                "model": None}
    return utils._resolve_cp_sharder(mesh, None, **(defaults | arguments)).shard_batch


def call_te_thd(backend: str, mesh: Any, batch: Outputs, num_chunks: int = 1,
                **arguments: Any) -> Any:
    shard = resolve(mesh, num_chunks=num_chunks)
    _, outputs, layout = shard(mesh, None, batch, **arguments)
    return outputs, encode_layout(layout), {}


def call_thd(backend: str, mesh: Any, batch: Outputs, num_chunks: int = 1,
             padding_token_id: Any = 0, loss_mask: Any = None) -> Any:
    thd = module(f"{COMMON}.thd_utils")
    if backend == "thd_convert":
        outputs = thd.process_input_for_thd(batch, padding_token_id=padding_token_id)
    else:
        outputs = thd.split_batch_into_thd_chunks(batch, num_chunks=num_chunks,
                                                  padding_token_id=padding_token_id)
    return outputs, None, {}


class Model:
    """As much of a model as Magi looks at."""

    config = types.SimpleNamespace(num_attention_heads=1, num_key_value_heads=1, head_dim=8)

    def modules(self) -> list[Any]:
        return []


def call_magi(backend: str, mesh: Any, batch: Outputs, variant: str = "hf", **arguments: Any
              ) -> Any:
    magi = module(f"{COMMON}.context_parallel.magi")
    state = magi.MagiState(enabled=True, custom=variant == "custom", cp_group=mesh.get_group(),
                           cp_size=mesh.size(), device_mesh=mesh)
    stand_ins.LastKey.key = None
    is_thd = batch.get("qkv_format") == "thd"
    shard = resolve(mesh, magi=state, is_thd=is_thd, model=Model())
    _, outputs, layout = shard(mesh, None, batch, **arguments)
    key = stand_ins.LastKey.key
    if key is None:
        return outputs, encode_layout(layout), {}
    return outputs, encode_layout(layout), {"slots": key.slots, "total": key.total}


def call_mtp(backend: str, mesh: Any, batch: Outputs, loss_mask: Any = None,
             **arguments: Any) -> Any:
    mtp = module("components.models.common.mtp.mtp")
    made = mtp.prepare_mtp_context_parallel_inputs(batch, **arguments)
    outputs = {name: getattr(made, name) for name in
               ("input_ids", "position_ids", "targets", "valid_masks", "position_ids_seq_dim")}
    outputs["batch.position_ids"] = batch["position_ids"]
    return outputs, None, {}


CALLS: dict[str, Call] = {name: call_sharder for name in SHARDERS} | {
    name: call_round_robin for name in ROUND_ROBIN} | {
    "te_thd": call_te_thd, "thd_convert": call_thd, "thd_chunks": call_thd, "magi": call_magi,
    "mtp_inputs": call_mtp}


def run(case: dict[str, Any], mesh: Any, rank: int) -> dict[str, Any]:
    """What the reference does on this rank: an entry of a case's `ranks`."""
    backend = case["backend"]
    batch = {name: decode(value) for name, value in case["batch"].items()}
    mask = case.get("loss_mask_arg")
    arguments = case["args"] | {"loss_mask": None if mask is None else decode(mask)}
    try:
        outputs, layout, state = CALLS[backend](backend, mesh, batch, **arguments)
    except Exception as error:  # whatever it raises is its answer
        return {"rank": rank, "error": type(error).__name__, "text": str(error)[:200]}
    encoded = {name: value if backend in ROUND_ROBIN else encode(value)
               for name, value in outputs.items()}
    entry = {"rank": rank, "outputs": encoded, "layout": layout}
    return entry | {"state": state} if state else entry
