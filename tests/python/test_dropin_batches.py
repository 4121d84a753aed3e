"""The drop-in's shard functions against the reference's, on drawn batches in real process groups:
both run on every rank, and what cpshard must do follows from what the reference did (judge)."""

import json
import random
from typing import Any

import pytest
import reference  # before what it makes importable
import torch
from case import Case
from decisions import judge
from draw import Draw
from gloo_worlds import Raised
from layouts import LAYOUTS
from torch_values import decode, encode, encode_layout

import cpshard.torch as ours
from cpshard.torch import cuts_at_once, streams
from cpshard.torch.layouts import extra_streams

SIZES = (None, 1, 2, 4)
CASES = 60
READ = ("seq_lens", "seq_lens_padded", "cu_seqlens")  # by layouts, so that their values are needed
FUNCTIONS = {
    "identity": ours.shard_batch_identity,
    "contiguous": ours.shard_batch_contiguous,
    "round_robin": ours.shard_batch_load_balanced,
    "round_robin_aux_only": ours.shard_batch_aux_only,
    "dsv41": ours.shard_cp_batch,
    "te_thd": ours.shard_batch_thd,
    "magi": ours.shard_batch_magi,
}


def by_options(layout: str, fixed: dict[str, Any] = {}, renamed: dict[str, str] = {},
               records: Any = None) -> Any:
    """A model's layout by its options: the arguments of the reference's function are its fields,
    `renamed` where they are called otherwise."""
    def shard(mesh: Any, tp_mesh: Any, batch: Any, *, loss_mask: Any = None,
              padding_token_id: Any = 0, extra_seq_keys: Any = None, extra_pad_values: Any = None,
              sync_packed_length: bool = False, **arguments: Any) -> Any:
        fields = fixed | {renamed.get(name, name): value for name, value in arguments.items()}
        if "keep_primary_full" in fields:
            fields["keep_primary_full"] = not fields["keep_primary_full"]
        extras = extra_streams(extra_seq_keys, extra_pad_values)
        shard_batch = ours.shard_batch_by({layout: fields, "extra_streams": extras},
                                          records=records)
        return shard_batch(mesh, tp_mesh, batch, loss_mask=loss_mask,
                           padding_token_id=padding_token_id)
    return shard


def record(model: str, kind: str) -> Any:
    return getattr(reference.parity.module(f"components.models.{model}.cp"), kind)


FUNCTIONS |= {
    "dsv4": by_options("deepseek_v4"),
    "glm_dsa": by_options("glm_dsa"),
    "gemma4": by_options("gemma4"),
    "kimi_k3": by_options("kimi", {"variant": "K3"}),
    "kimi_linear": by_options("kimi", {"variant": "LINEAR"}, records={
        "kimi_packed_context": record("kimi_linear", "KimiPackedContext")}),
    "glm5_next": by_options("glm5_next", {"keep_primary_full": False},
                            {"shard_primary": "keep_primary_full"}, {
        "glm5_next_packed_context": record("glm5_next", "Glm5NextPackedContext")}),
    "mimo_te": by_options("mimo"),
    "qwen3_8_flash_next": by_options("qwen3_8", records={
        "_qwen3_8_flash_next_cp_context": record("qwen3_8_flash_next",
                                                 "Qwen3_8_FlashNextCPContext")}),
}
# The reference's exceptions that users rely on (contract 13); others become the kind of the code.
CATALOGUE = {
    "contiguous": ("AssertionError", "KeyError"),
    "round_robin": ("AssertionError", "KeyError"),
    "round_robin_aux_only": ("AssertionError", "KeyError"),
    "dsv41": ("KeyError", "ValueError"),
    "te_thd": ("KeyError", "RuntimeError", "IndexError", "TypeError", "AttributeError"),
    "magi": ("KeyError", "NotImplementedError", "ValueError"),
}
BY_CHANCE = ("long_labels", "long_loss_mask")  # whatever torch says of them
KINDS = {"INVALID_ARGUMENT": "ValueError", "UNIMPLEMENTED": "NotImplementedError"}




# --- on a rank -----------------------------------------------------------------------------------

def run_all(mesh: Any, lines: list[dict[str, Any]]) -> list[tuple[Any, Any, Any]]:
    """Per line what the reference does, what we do, what we do where ATen has to cut, and what
    where the library cuts on a GPU."""
    rank = 0 if mesh is None else mesh.get_local_rank()
    return [(reference.parity.run(line, mesh, rank), run_ours(line, mesh),
             run_cut_by_aten(line, mesh), run_cut_at_once(line, mesh)) for line in lines]


def run_cut_by_aten(line: dict[str, Any], mesh: Any) -> Any:
    """As if every tensor whose values no layout reads lay on a device."""
    by_value = line["backend"] == "te_thd" and "seq_lens" not in plain(line["batch"])

    def planned_by_shape(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and getattr(value, "_name", "") not in read

    read = READ + (("input_ids",) if by_value else ())
    if line["backend"] == "qwen3_8_flash_next":
        read += ("attention_mask", "padding_mask")
    usual, streams._is_cut_here = streams._is_cut_here, planned_by_shape
    try:
        return run_ours(line, mesh)
    finally:
        streams._is_cut_here = usual


def run_cut_at_once(line: dict[str, Any], mesh: Any) -> Any:
    """As if that device were a GPU that the library reaches."""
    usual = cuts_at_once._is_on_gpu
    cuts_at_once._is_on_gpu = lambda tensor: not tensor.requires_grad
    try:
        return run_cut_by_aten(line, mesh)
    finally:
        cuts_at_once._is_on_gpu = usual


def run_ours(line: dict[str, Any], mesh: Any) -> Any:
    """Outputs and layout as the corpus has them, or what was raised."""
    batch = {name: decode(value) for name, value in line["batch"].items()}
    for name, value in batch.items():
        if isinstance(value, torch.Tensor):
            value._name = name
    given = {name: (value, value.clone()) for name, value in batch.items()
             if isinstance(value, torch.Tensor)}
    mask = line.get("loss_mask_arg")
    arguments = dict(line["args"], loss_mask=None if mask is None else decode(mask))
    if line["backend"] == "magi":
        arguments["custom"] = arguments.pop("variant", "hf") == "custom"
    before = dict(batch)
    try:
        _, outputs, layout = FUNCTIONS[line["backend"]](mesh, None, batch, **arguments)
    except Exception as error:
        assert list(batch) == list(before), "a batch that is refused stays as it was"
        assert all(batch[name] is value for name, value in before.items())
        return Raised(error)
    for name, (tensor, values) in given.items():
        assert torch.equal(tensor.nan_to_num(), values.nan_to_num()), f"{name} was written to"
    return {"outputs": {name: encode(value) for name, value in outputs.items()},
            "layout": encode_layout(layout)}


# --- what is expected ----------------------------------------------------------------------------

def drawn(backend: str, size: Any) -> list[Case]:
    [layout] = [layout for layout in LAYOUTS if layout.name == backend]
    cases, number = [], 0
    while len(cases) < CASES and number < 40 * CASES:
        case = layout.generate(Draw(random.Random(f"dropin/{backend}/{number}")))
        number += 1
        if case.cp_size == size:
            cases.append(case)
    return cases


def plain(outputs: dict[str, Any]) -> dict[str, Any]:
    """Without nulls (D8), the loss mask of round robin under its own name (D2)."""
    return {name.removesuffix("(buffer)"): value for name, value in outputs.items()
            if value != {"value": None}}


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def difference(case: Case, theirs: list[Any], made: list[Any]) -> str:
    """Empty: the ranks have what the reference and the decisions say."""
    product = judge(case, theirs)
    if product is None:
        return ""
    error = product.get("expect", {}).get("error")
    if error:
        raised = next((rank["error"] for rank in theirs if "error" in rank), None)
        listed = raised in CATALOGUE.get(case.backend, ()) and case.fault not in BY_CHANCE
        kind = raised if listed else KINDS[error]
        wrong = [rank for rank in made if not isinstance(rank, Raised) or kind not in rank.kinds]
        return f"should raise {kind} ({raised}): {wrong[0]}" if wrong else ""
    expected = product.get("expect", {}).get("ranks", theirs)
    for rank, (want, got) in enumerate(zip(expected, made)):
        if isinstance(got, Raised):
            return f"rank {rank}: {got.trace}"
        for part, wanted, has in (("outputs", plain(want["outputs"]), plain(got["outputs"])),
                                  ("layout", want["layout"], got["layout"])):
            for name in sorted((wanted or {}).keys() | (has or {}).keys()):
                one, other = (wanted or {}).get(name), (has or {}).get(name)
                if text(one) != text(other):
                    return f"rank {rank}, {part} {name}:\nwant {text(one)}\nhave {text(other)}"
    return ""


PAIRS = [(layout.name, size) for layout in LAYOUTS if layout.name in FUNCTIONS
         for size in layout.cp_sizes if size in SIZES]


@pytest.mark.parametrize("backend,size", PAIRS)
def test_a_shard_function_does_what_the_reference_does(worlds, backend, size):
    cases = drawn(backend, size)
    assert len(cases) == CASES
    lines = [case.to_json(f"{backend}-{number}") for number, case in enumerate(cases)]
    ranks = worlds.run(size, run_all, lines)
    differing = []
    for number, case in enumerate(cases):
        theirs, *ours_by_way = ([rank[number][way] for rank in ranks] for way in range(4))
        for way, made in zip(("library", "ATen", "library on a GPU"), ours_by_way):
            if found := difference(case, theirs, made):
                differing.append(f"cut by {way}: {json.dumps(lines[number])}\n{found}")
    assert not differing, f"{len(differing)} of {3 * len(cases)} differ; the shortest:\n" + min(
        differing, key=len)
