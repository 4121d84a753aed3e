"""What cpshard must do with a case, from what the reference did: the `product` of a corpus line.

Most inputs are built so that no decision of the contract's section 17 touches them; the ones here
are simple enough to apply as they are written. D2's renaming is the runner's.
"""

import copy
from typing import Any, Callable, Optional

from case import Case
from values import FLOATS, Value, flatten, is_tensor, tensor

Ranks = list[dict[str, Any]]
Product = dict[str, Any]

TAKES_NO_LOSS_MASK = ("thd_convert", "thd_chunks", "te_thd", "glm_dsa", "magi")
RETURNS_LOSS_MASK = ("identity", "blockdiag")  # at cp <= 1, where the reference forgets it
PROMOTES = ("contiguous", "gemma4", "dsv4", "qwen3_8_flash_next")
EMBEDS_ARE_IDS = ("te_thd", "glm_dsa")


def refusal(error: str) -> str:
    """The status code of an exception of the reference (D9)."""
    return "UNIMPLEMENTED" if error == "NotImplementedError" else "INVALID_ARGUMENT"


def error_of(ranks: Ranks) -> Optional[str]:
    """One rank that raises is enough: the group cannot go on."""
    return next((rank["error"] for rank in ranks if "error" in rank), None)


def judge(case: Case, ranks: Ranks) -> Optional[Product]:
    """None: nothing follows from this case (a fault that the reference lets pass)."""
    error = error_of(ranks)
    if case.fault and not error:
        return None
    if error:
        return {"same": True, "expect": {"error": refusal(error)}}
    if case.loss_mask is not None and case.backend in TAKES_NO_LOSS_MASK:
        return decided("D17", {"error": "INVALID_ARGUMENT"})
    if needs_unsigned_pad(case, ranks[0]["layout"]):
        return decided("D5", {"error": "INVALID_ARGUMENT"})
    expected = copy.deepcopy([{"rank": r["rank"], "outputs": r["outputs"], "layout": r["layout"]}
                              for r in ranks])
    applied = [name for name, rule in RULES.items() if rule(case, ranks, expected)]
    if not applied:
        return {"same": True}
    return decided(",".join(applied), {"ranks": expected})


def decided(decision: str, expect: dict[str, Any]) -> Product:
    return {"same": False, "decision": decision, "expect": expect}


def labels_of(case: Case) -> Optional[Value]:
    """The labels, or the loss mask where it takes their place."""
    labels = case.batch.get("labels")
    if is_tensor(labels):
        return labels
    return case.loss_mask if case.backend in PROMOTES else None


def needs_unsigned_pad(case: Case, layout: Optional[Value]) -> bool:
    """Labels without a sign would need -100 (D5)."""
    labels = labels_of(case)
    if labels is None or labels["dtype"] not in ("u8", "bool") or layout is None:
        return False
    return layout.get("original_seq_len", 0) < layout["padded_seq_len"] and \
        "original_seq_len" in layout


def keep_float_ids(case: Case, ranks: Ranks, expected: Ranks) -> bool:
    """D7: the reference makes integers of embeddings, and takes the wrong axis for the indices."""
    ids = case.batch.get("input_ids")
    if case.backend not in EMBEDS_ARE_IDS or not is_tensor(ids) or ids["dtype"] not in FLOATS:
        return False
    changed = False
    for entry in expected:
        outputs = entry["outputs"]
        made = outputs["input_ids"]
        if made["dtype"] != ids["dtype"]:
            flat = flatten(made["data"])
            outputs["input_ids"] = tensor(ids["dtype"], made["shape"], lambda i: flat[i])
            changed = True
        if (case.cp_size or 1) == 1 and "_thd_local_indices" in outputs:
            indices = tensor("i64", made["shape"][:1], lambda i: i)
            outputs["_thd_local_indices"] = indices
            entry["layout"]["local_token_global_indices"] = indices
            changed = True
    return changed


def keep_passengers(case: Case, ranks: Ranks, expected: Ranks) -> bool:
    """D16: chunks at cp > 1 keep media and what is no tensor."""
    chunked = case.backend in ("te_thd", "mimo_te") and case.args.get("num_chunks", 1) > 1
    if not chunked or (case.cp_size or 1) == 1:
        return False
    kept = {name: case.batch[name] for name in ("pixel_values", "note") if name in case.batch}
    for entry in expected:
        entry["outputs"].update(kept)
    return bool(kept)


def return_loss_mask(case: Case, ranks: Ranks, expected: Ranks) -> bool:
    """D17: the reference leaves the mask of a batch that it does not cut to the caller."""
    if case.loss_mask is None or case.backend not in RETURNS_LOSS_MASK or case.cp_size != 1:
        return False
    expected[0]["outputs"]["loss_mask"] = case.loss_mask
    return True


def true_slots(case: Case, ranks: Ranks, expected: Ranks) -> bool:
    """D3: a layout names pads by indices past the last token."""
    for entry, rank in zip(expected, ranks):
        if "state" not in rank:
            return False
        slots = rank["state"]["slots"]
        indices = entry["layout"]["local_token_global_indices"]
        indices["data"] = [slots] if len(indices["shape"]) == 2 else slots
    return any(max(rank["state"]["slots"]) >= rank["state"]["total"] for rank in ranks)


def ignored_labels(case: Case, ranks: Ranks, expected: Ranks) -> bool:
    """D4: packed Magi pads labels with -100 as well."""
    if case.args.get("variant") != "custom" or not true_slots(case, ranks, copy.deepcopy(expected)):
        return False
    for entry, rank in zip(expected, ranks):
        labels, state = entry["outputs"]["labels"], rank["state"]
        pad = -100.0 if labels["dtype"] in FLOATS else -100
        labels["data"] = [pad if slot >= state["total"] else label
                          for slot, label in zip(state["slots"], labels["data"])]
    return True


RULES: dict[str, Callable[[Case, Ranks, Ranks], bool]] = {
    "D7": keep_float_ids, "D16": keep_passengers, "D17": return_loss_mask, "D3": true_slots,
    "D4": ignored_labels}
