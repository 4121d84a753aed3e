"""Ways to spoil a case. Each changes a well-formed case into one that the reference refuses; where
the reference lets it pass after all, the case is left out (what cpshard does then is a decision,
and the golden corpus has those)."""

from typing import Callable, Sequence

from case import Case
from draw import Draw
from values import running, scalar, tensor

Fault = Callable[[Case], None]


def row_shape(case: Case) -> list[int]:
    """B and S of the primary stream."""
    primary = case.batch.get("input_ids") or case.batch["inputs_embeds"]
    return primary["shape"][:2]


def no_primary(case: Case) -> None:
    case.batch.pop("input_ids", None)
    case.batch.pop("inputs_embeds", None)


def two_primaries(case: Case) -> None:
    shape = row_shape(case)
    case.batch.setdefault("input_ids", running("i64", shape))
    case.batch.setdefault("inputs_embeds", running("f32", [*shape, 2]))


def no_labels(case: Case) -> None:
    case.batch.pop("labels", None)
    case.loss_mask = None


def labels_as_loss_mask(case: Case) -> None:
    case.loss_mask = case.batch.pop("labels", case.loss_mask)


def flat_positions(case: Case) -> None:
    case.batch["position_ids"] = running("i64", row_shape(case)[1:], 0)


def long_labels(case: Case) -> None:
    batch_size, seq_len = row_shape(case)
    case.batch["labels"] = running("i64", [batch_size, seq_len + 1], 501)


def long_loss_mask(case: Case) -> None:
    batch_size, seq_len = row_shape(case)
    case.loss_mask = running("i64", [batch_size, seq_len + 1])


def missing_extra(case: Case) -> None:
    case.args["extra_seq_buffers"] = {"absent": 1}


def huge_pad_id(case: Case) -> None:
    """Does not fit the type of the ids."""
    case.batch["input_ids"] = running("u8", row_shape(case))
    case.batch.pop("inputs_embeds", None)
    case.args["padding_token_id"] = 9999


def null_pad_id(case: Case) -> None:
    case.args["padding_token_id"] = None


def without(key: str) -> Fault:
    """The fault that an entry is missing."""

    def remove(case: Case) -> None:
        case.batch.pop(key, None)

    remove.__name__ = f"without_{key}"
    return remove


def three_axis_positions(case: Case) -> None:
    case.batch["position_ids"] = running("i64", [3, *row_shape(case)], 0)


def no_tokens(case: Case) -> None:
    for name in ("input_ids", "labels", "position_ids"):
        case.batch[name] = tensor("i64", [1, 0], lambda i: i)
    case.batch["seq_lens"] = case.batch["seq_lens_padded"] = running("i64", [1, 1], 0)
    case.args.pop("num_chunks", None)


def only_sentinels(case: Case) -> None:
    shape = [row_shape(case)[0], 2]
    case.batch["seq_lens"] = tensor("i64", shape, lambda i: -1000)
    case.batch["seq_lens_padded"] = tensor("i64", shape, lambda i: -1000)


def null_lengths(case: Case) -> None:
    case.batch["seq_lens"] = case.batch["seq_lens_padded"] = scalar(None)


def null_positions(case: Case) -> None:
    case.batch["position_ids"] = scalar(None)


def too_many_chunks(case: Case) -> None:
    case.args["num_chunks"] = case.batch["input_ids"]["shape"][0] + 1


def overlong_document(case: Case) -> None:
    """A document that ends past its row."""
    batch_size, seq_len = row_shape(case)
    case.batch["seq_lens"] = tensor("i64", [batch_size, 1], lambda i: seq_len + 1)
    case.batch.pop("seq_lens_padded", None)


def spoil(draw: Draw, case: Case, faults: Sequence[Fault], percent: int = 12) -> Case:
    """Spoils some of the cases."""
    if faults and draw.chance(percent):
        fault = draw.pick(faults)
        case.fault = fault.__name__
        fault(case)
    return case
