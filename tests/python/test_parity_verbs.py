"""Token verbs of the drop-in: the golden corpus' families of them, and what the executed
reference's sharder does with the same batches, in real process groups: values, errors, and
gradients to the bit."""

import json
import pathlib
from typing import Any

import pytest
import reference  # before what it makes importable
import torch
from dropin_cases import Ranks, copied, packed, plain, same
from gloo_worlds import Raised
from torch_values import decode

import cpshard.torch as ours

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
VERBS = ("shard_token_tensor", "gather_token_tensor", "gather_sequence", "in_forward_round_robin",
         "in_forward_contiguous")
MAPS = {"identity": ours.identity_local_indices, "contiguous": ours.contiguous_local_indices,
        "round_robin": ours.round_robin_local_indices, None: None}
IN_FORWARD = {"in_forward_round_robin": ours.shard_sequence_for_cp_round_robin,
              "in_forward_contiguous": ours.shard_sequence_for_cp_contiguous}


# --- the corpus ----------------------------------------------------------------------------------

def corpus() -> list[dict[str, Any]]:
    """The cases of the verbs that can be run, curated ones among them."""
    cases = []
    for path in sorted(GOLDEN.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            case = json.loads(line)
            runs = not case.get("words") and case["product"].get("expect", "") is not None
            if case["backend"] in VERBS and runs:
                cases.append(case)
    return cases


CORPUS = corpus()


def per_rank(value: dict[str, Any], rank: int) -> torch.Tensor:
    return decode(value["per_rank"][rank] if "per_rank" in value else value)


def sharder_of(case: dict[str, Any], mesh: Any, rank: int) -> ours.ContextParallelSharder:
    """With the layout and map that the case gives."""
    args = case["args"] | (case["product"].get("expect") or {}).get("args", {})
    fields = dict(case["args"].get("layout") or {}) | dict(args.get("layout") or {})
    dtype = torch.int32 if fields.get("indices_dtype") == "i32" else torch.int64
    indices, positions = fields.get("indices"), fields.get("input_token_stream_positions")
    layout = ours.ShardLayout(
        local_token_global_indices=None if indices is None else torch.tensor(indices[rank],
                                                                             dtype=dtype),
        original_seq_len=fields.get("original"), padded_seq_len=fields.get("padded"),
        input_row_shape=fields.get("row_shape") and tuple(fields["row_shape"]),
        input_token_stream_positions=None if positions is None else torch.tensor(positions))
    return ours.ContextParallelSharder(
        device_mesh=mesh, shard_batch=ours.shard_batch_identity, shard_layout=layout,
        local_token_global_indices=MAPS[case["args"].get("map")])


def gather_halo(tensor: torch.Tensor, group: Any, rank: int, history: int) -> torch.Tensor:
    """The last `history` rows of the ranks before this one (contract 4.18), from a gather."""
    if history == 0:
        return tensor[:, :0]
    if group is None or group.size() == 1:
        return torch.zeros_like(tensor[:, :1]).repeat_interleave(history, 1)
    tail = tensor[:, max(0, tensor.shape[1] - history):]
    before = ours.gather_sequence(tail, group)[:, :rank * tail.shape[1]]
    missing = history - before.shape[1]
    if missing <= 0:
        return before[:, -missing:]
    zeros = tensor.new_zeros(tensor.shape[0], missing, *tensor.shape[2:])
    return torch.cat((zeros, before), 1)


def call(case: dict[str, Any], mesh: Any, rank: int, tensor: torch.Tensor) -> dict[str, Any]:
    args, backend = case["args"], case["backend"]
    if backend in IN_FORWARD:
        given = {name: args[name] for name in ("seq_dim", "pad_value", "pad_multiple")
                 if name in args}
        return dict(zip(("local", "local_indices", "padded_seq_len"),
                        IN_FORWARD[backend](mesh, tensor, **given)))
    if backend == "gather_sequence":
        group = None if mesh is None else mesh.get_group()
        if "history" in args:
            return {"gathered": gather_halo(tensor, group, rank, args["history"])}
        return {"gathered": ours.gather_sequence(tensor, group, dim=args.get("dim", 1))}
    given = {name: args[name] for name in ("seq_dim", "fill", "trim") if name in args}
    return {"result": getattr(sharder_of(case, mesh, rank), backend)(tensor, **given)}


def difference(case: dict[str, Any], mesh: Any) -> str:
    """Of this rank to the corpus; empty: none."""
    rank = 0 if mesh is None else mesh.get_local_rank()
    error = next((entry["error"] for entry in case["ranks"] if "error" in entry), None)
    expected = (case["product"].get("expect") or {}).get("ranks", case["ranks"])
    [source] = [name for name in case["batch"] if name != "weight"]
    tensor = per_rank(case["batch"][source], rank)
    wanted = {} if error else expected[rank]["outputs"]
    gradients = [name for name in wanted if name.startswith("grad_")]
    tensor.requires_grad_(bool(gradients))
    try:
        made = call(case, mesh, rank, tensor)
    except Exception as raised:
        kinds = Raised(raised).kinds
        return "" if error in kinds else f"raised {raised!r}, expected {error}"
    if error:
        return f"should raise {error}"
    for name in gradients:
        result = made.get("result", made.get("local", made.get("gathered")))
        weight = torch.arange(result.numel(), dtype=result.dtype) % 7 + 1 + rank
        if "weight" in case["batch"]:
            weight = per_rank(case["batch"]["weight"], rank)
        (result * weight.reshape(result.shape)).sum().backward()
        made[name] = tensor.grad
    for name, value in wanted.items():
        want, has = decode(value), made[name]
        if not (same(has.detach(), want) if isinstance(want, torch.Tensor) else has == want):
            return f"{name}: want {want}, have {has}"
    return ""


def differences(mesh: Any, cases: list[dict[str, Any]]) -> list[str]:
    return [difference(case, mesh) for case in cases]


@pytest.mark.parametrize("backend", VERBS)
@pytest.mark.parametrize("size", sorted({case["cp_size"] for case in CORPUS}, key=lambda n: n or 0))
def test_the_corpus_comes_out(worlds, backend, size):
    cases = [case for case in CORPUS if case["backend"] == backend and case["cp_size"] == size]
    assert cases or (backend, size) == ("gather_sequence", None)
    found = [f"{case['id']}, rank {rank}: {text}"
             for rank, texts in enumerate(worlds.run(size, differences, cases))
             for case, text in zip(cases, texts) if text]
    assert not found, "\n".join(found)


# --- the executed reference ----------------------------------------------------------------------

def repacked() -> dict[str, Any]:
    return {name: value for name, value in packed().items() if name != "seq_lens_padded"}


def thd_of_the_reference() -> Any:
    return reference.utils._resolve_cp_sharder(
        None, None, magi=None, is_thd=True, num_chunks=1, seq_lens_padding_value=-1000,
        model=None).shard_batch


# Name -> (batch, their callback and map, ours).
LAYOUTS = {
    "contiguous": (plain(13), (reference.sharder.shard_batch_contiguous,
                               reference.sharder.contiguous_local_indices),
                   (ours.shard_batch_contiguous, ours.contiguous_local_indices)),
    "round_robin": (plain(13), (reference.sharder.shard_batch_load_balanced,
                                reference.sharder.round_robin_local_indices),
                    (ours.shard_batch_load_balanced, ours.round_robin_local_indices)),
    "aux_only": (plain(16), (reference.sharder.shard_batch_aux_only,
                             reference.sharder.round_robin_local_indices),
                 (ours.shard_batch_aux_only, ours.round_robin_local_indices)),
    "deepseek_v41": (repacked(), (reference.deepseek_v41.shard_cp_batch,
                                  reference.sharder.contiguous_local_indices),
                     (ours.shard_cp_batch, ours.contiguous_local_indices)),
    "thd": (packed(), (thd_of_the_reference(), None), (ours.shard_batch_thd, None)),
}
SHAPES = (([2, 13], 1), ([2, 16], 1), ([2, 24], 1), ([2, 24, 3], 1), ([13, 2], 0), ([2, 3, 16], -1),
          ([48], 0), ([2, 7], 1), ([2], 1))
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)


def sharders(mesh: Any, name: str) -> list[Any]:
    """That of the reference, ours, the reference's class around our callback, and ours around
    theirs; each has sharded the batch."""
    batch, theirs, made = LAYOUTS[name]
    built = []
    for kind, (shard, index_map) in (
            (reference.sharder.ContextParallelSharder, theirs),
            (ours.ContextParallelSharder, made), (reference.sharder.ContextParallelSharder, made),
            (ours.ContextParallelSharder, theirs)):
        sharder = kind(device_mesh=mesh, shard_batch=shard, local_token_global_indices=index_map,
                       padding_token_id=9)
        context, _ = sharder.shard(copied(batch))
        with context():
            built.append(sharder)
    return built


def tensor_of(shape: list[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    numbers = torch.arange(torch.Size(shape).numel()) * 7 + seed
    return (numbers % (2 if dtype == torch.bool else 251)).reshape(shape).to(dtype)


def outcome(verb: Any, tensor: torch.Tensor, gradient: bool, **arguments: Any) -> Any:
    """The result and, with gradient, that of a weighted sum, with -0.0 among the weights."""
    leaf = tensor.clone().requires_grad_(gradient)
    try:
        result = verb(leaf, **arguments)
    except Exception as error:
        return Raised(error)
    if not gradient:
        return (result,)
    weight = torch.arange(result.numel()).reshape(result.shape) % 5 - 2.0
    result.backward(torch.where(weight == 0, -0.0, weight).to(result.dtype))
    return result.detach(), leaf.grad


def agrees(theirs: Any, made: Any) -> bool:
    """Where the reference leaves a wrong shape for torch to stumble over, ours is a ValueError."""
    if isinstance(theirs, Raised):
        kind = theirs.kinds[0]
        allowed = {kind} | ({"ValueError"} if kind in ("RuntimeError", "IndexError") else set())
        return isinstance(made, Raised) and bool(allowed & set(made.kinds))
    return not isinstance(made, Raised) and all(map(same, made, theirs))


def verbs_that_differ(mesh: Any, name: str) -> list[str]:
    """Whatever one of the other sharders does otherwise than the reference's."""
    first, *others = sharders(mesh, name)
    found = []
    asked = [("shard_token_tensor", shape, {"seq_dim": dim, "fill": fill})
             for shape, dim in SHAPES for fill in (None, 1)]
    asked += [("gather_token_tensor", shape, {"seq_dim": dim, "trim": trim, "fill": fill})
              for shape, dim in local_shapes(first, mesh) for trim in (False, True)
              for fill in (None, 0)]
    for verb, shape, arguments in asked:
        for dtype in DTYPES:
            tensor = tensor_of(shape, dtype, seed=mesh.get_local_rank())
            want = outcome(getattr(first, verb), tensor, dtype.is_floating_point, **arguments)
            for number, other in enumerate(others):
                has = outcome(getattr(other, verb), tensor, dtype.is_floating_point, **arguments)
                if not agrees(want, has):
                    found.append(f"{number}: {verb} {shape} {dtype} {arguments}: {want} {has}")
    return found


def local_shapes(sharder: Any, mesh: Any) -> list[tuple[list[int], int]]:
    length = sharder.shard_layout.padded_seq_len // mesh.size()
    return [([2, length], 1), ([2, length, 2], 1), ([length], 0), ([2, length + 1], 1)]


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("size", [2, 4])
def test_verbs_do_what_those_of_the_reference_do(worlds, size, name):
    for rank, found in enumerate(worlds.run(size, verbs_that_differ, name)):
        assert not found, f"rank {rank}, {len(found)}:\n" + "\n".join(found[:5])


# --- by indices: what is exchanged ---------------------------------------------------------------

def events(function: Any, *arguments: Any, **named: Any) -> tuple[Any, list[str]]:
    """The result, and the collectives that it took."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        result = function(*arguments, **named)
    return result, [event.name for event in profile.events() if event.name.startswith("gloo:")]


def exchanges(mesh: Any) -> dict[str, Any]:
    """Collectives of gathers by known maps and by others, with results checked."""
    rank, size = mesh.get_local_rank(), mesh.size()
    full = torch.arange(16.0 * size).reshape(2, 8 * size)
    foreign = torch.arange(8) * size + rank  # stripes: no map of ours
    striped = full[:, foreign]
    known = ours.round_robin_local_indices(mesh, 8 * size)
    layout = ours.ShardLayout(local_token_global_indices=foreign, original_seq_len=8 * size - 1,
                              padded_seq_len=8 * size)
    sharder = ours.ContextParallelSharder(device_mesh=mesh, shard_layout=layout,
                                          shard_batch=ours.shard_batch_identity)
    mapped = ours.ContextParallelSharder(device_mesh=mesh, shard_batch=ours.shard_batch_identity,
                                         local_token_global_indices=lambda *_: foreign.clone())
    planned = ours.ContextParallelSharder(device_mesh=mesh, shard_batch=ours.shard_batch_thd)
    batch = packed() | {"seq_lens": torch.tensor([[16, 8]] * 2)}
    _, batch = planned.shard(batch | {"seq_lens_padded": batch["seq_lens"]})
    counts = {}
    for name, call, want in (
            ("by our indices", lambda: ours.gather_token_tensor_by_indices(
                mesh, full[:, known], known), full),
            ("by a copy of ours", lambda: ours.gather_token_tensor_by_indices(
                mesh, full[:, known], known.clone()), full),
            ("by foreign indices", lambda: ours.gather_token_tensor_by_indices(
                mesh, striped, foreign), full),
            ("by the same again", lambda: ours.gather_token_tensor_by_indices(
                mesh, striped, foreign), full),
            ("by a foreign layout", lambda: sharder.gather_token_tensor(striped, trim=True),
             full[:, :-1]),
            ("by a foreign map", lambda: mapped.gather_token_tensor(striped), full),
            ("by a foreign map again", lambda: mapped.gather_token_tensor(striped), full),
            ("by a planned layout", lambda: planned.gather_token_tensor(
                batch["labels"], seq_dim=0, trim=True), packed()["labels"])):
        result, took = events(call)
        assert torch.equal(result, want), name
        counts[name] = len(took)
    for name, indices, local in (("after it was written to", foreign, striped),
                                 ("after ours were written to", known, full[:, known])):
        indices += 0  # may be another map now
        result, took = events(ours.gather_token_tensor_by_indices, mesh, local, indices)
        assert torch.equal(result, full), name
        counts[name] = len(took)
    with torch.inference_mode():
        known = ours.round_robin_local_indices(mesh, 8 * size)
        known.copy_(foreign)  # nothing counts that
        result, took = events(ours.gather_token_tensor_by_indices, mesh, striped, known)
        assert torch.equal(result, full)
        counts["in inference mode"] = len(took)
    return counts


@pytest.mark.parametrize("size", [2, 4])
def test_a_gather_by_a_known_map_is_one_collective(worlds, size):
    expected = {"by our indices": 1, "by a copy of ours": 2, "by foreign indices": 2,
                "by the same again": 1, "by a foreign layout": 1, "by a foreign map": 2,
                "by a foreign map again": 2, "by a planned layout": 1,
                "after it was written to": 2, "after ours were written to": 2,
                "in inference mode": 2}
    assert worlds.run(size, exchanges) == [expected] * size


def reference_exchanges(mesh: Any) -> int:
    known = reference.sharder.round_robin_local_indices(mesh, 8 * mesh.size())
    return len(events(reference.sharder.gather_token_tensor_by_indices, mesh, torch.ones(2, 8),
                      known)[1])


def test_the_reference_takes_two(worlds):
    assert worlds.run(2, reference_exchanges) == [2, 2]


def sliced(mesh: Any) -> list[torch.Tensor]:
    """Gradients of both kinds, of every gather, for weights that differ between ranks."""
    indices = ours.contiguous_local_indices(mesh, 8)
    sharder = ours.ContextParallelSharder(
        device_mesh=mesh, shard_batch=ours.shard_batch_contiguous,
        local_token_global_indices=ours.contiguous_local_indices)
    gathers = (
        lambda local, **kind: ours.gather_token_tensor_by_indices(mesh, local, indices, **kind),
        lambda local, **kind: ours.gather_sequence(local, mesh.get_group(), **kind),
        lambda local, **kind: sharder.gather_token_tensor(local, **kind))
    gradients = []
    for gather in gathers:
        for gradient in ("sum", "slice"):
            local = torch.ones(1, 4, requires_grad=True)
            full = gather(local, gradient=gradient)
            (full * (torch.arange(8.0) + 100 * mesh.get_local_rank())).sum().backward()
            gradients.append(local.grad)
    return gradients


def test_a_gradient_is_the_sum_of_all_uses_or_the_slice_of_ones_own(worlds):
    own = [torch.arange(4.0), torch.arange(4.0, 8.0) + 100]
    for rank, gradients in enumerate(worlds.run(2, sliced)):
        both = torch.tensor([[2 * (4.0 * rank + i) + 100 for i in range(4)]])
        for summed, slice_ in zip(gradients[::2], gradients[1::2]):
            assert torch.equal(summed, both) and torch.equal(slice_, own[rank][None])


def unsharded(mesh: Any) -> list[torch.Tensor]:
    local = torch.arange(24.0).reshape(2, 3, 4) + 100 * mesh.get_local_rank()
    return [module.unshard_context_parallel_tensor(mesh, local.clone().requires_grad_(), seq_dim=2)
            for module in (reference.utils, ours)]


def test_round_robin_is_undone_without_a_gradient_as_in_the_reference(worlds):
    for theirs, made in worlds.run(2, unsharded):
        assert same(made, theirs) and made.shape == (2, 3, 8) and not made.requires_grad


@pytest.mark.parametrize("function,length,text", [
    ("contiguous_local_indices", 6, "divisible by cp_size"),
    ("round_robin_local_indices", 12, "divisible by 2 \\* cp_size")])
def test_a_length_that_does_not_divide_is_refused_with_the_numbers(function, length, text):
    for module in (reference.sharder, ours):
        with pytest.raises(ValueError, match=text) as raised:
            getattr(module, function)(Ranks(4, 3), length)
        assert str(length) in str(raised.value) and "4" in str(raised.value)


def test_another_gradient_is_refused():
    with pytest.raises(ValueError, match="'mean'; 'sum' and 'slice'"):
        ours.gather_sequence(torch.ones(1, 2), None, gradient="mean")


def test_without_torch_distributed_a_gather_is_the_tensor_itself():
    sharder = ours.ContextParallelSharder(
        device_mesh=Ranks(4, 3), shard_batch=ours.shard_batch_contiguous,
        local_token_global_indices=ours.contiguous_local_indices)
    _, batch = sharder.shard(plain(13))
    assert batch["labels"].tolist() == [[12, -100, -100, -100], [25, -100, -100, -100]]
    local = torch.ones(2, 4)
    assert sharder.gather_token_tensor(local) is local
    with pytest.raises(ValueError, match="4"):
        sharder.gather_token_tensor(local, trim=True)
