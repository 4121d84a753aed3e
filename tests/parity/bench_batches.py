"""The batches on which cpshard and the reference are timed against each other, layout by layout."""

import dataclasses
import json
import pathlib
import random
from typing import Any, Callable, Optional

import torch

Batch = dict[str, Any]
DTYPES = {torch.int64: "I64", torch.bool: "BOOL"}
DOCUMENT = 1024  # tokens, on average


@dataclasses.dataclass(frozen=True)
class Size:
    rows: int
    length: int
    cp_size: int

    def __str__(self) -> str:
        return f"B={self.rows}, S={self.length}, cp={self.cp_size}"


SIZES = (Size(1, 131072, 8), Size(8, 8192, 4))


def tokens(size: Size) -> Batch:
    """ids, labels, positions and a padding mask with a few pads at the end of each row."""
    shape = (size.rows, size.length)
    count = torch.arange(size.rows * size.length).reshape(shape)
    columns = torch.arange(size.length)
    return {"input_ids": count % 50021 + 1, "labels": count % 50021 + 2,
            "position_ids": columns.expand(shape).contiguous(),
            "padding_mask": (columns >= size.length - 9).expand(shape).contiguous()}


def odd(size: Size) -> Batch:
    """Rows that the layouts must pad."""
    return tokens(dataclasses.replace(size, length=size.length - 5))


def attended(size: Size) -> Batch:
    """An attention mask in the padding mask's place, as many loaders have it."""
    batch = odd(size)
    batch["attention_mask"] = (~batch.pop("padding_mask")).long()
    return batch


def documents_of(size: Size, multiple: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Real and padded lengths [B, n]: 0.2 to 1.8 times the mean, padded to a multiple of
    `multiple`; the documents fill the rows."""
    source = random.Random(1)
    count = size.length // DOCUMENT
    real, padded = [], []
    for _ in range(size.rows):
        weights = [source.uniform(0.2, 1.8) for _ in range(count)]
        pieces = size.length // multiple
        ends = [round(sum(weights[:i + 1]) / sum(weights) * pieces) * multiple
                for i in range(count)]
        padded.append([end - start for start, end in zip([0] + ends, ends)])
        real.append([n - source.randrange(min(multiple, n)) for n in padded[-1]])
    return torch.tensor(real), torch.tensor(padded)


def packed(size: Size) -> Batch:
    """Documents padded as thd and its kin ask."""
    real, padded = documents_of(size, 2 * size.cp_size)
    return tokens(size) | {"seq_lens": real, "seq_lens_padded": padded, "qkv_format": "thd"}


def packed_only(size: Size) -> Batch:
    """Without the mask, that such layouts take from the lengths."""
    return {name: value for name, value in packed(size).items() if name != "padding_mask"}


def with_lengths(size: Size) -> Batch:
    """Documents of any length over rows that must be padded."""
    batch = odd(size)
    real, _ = documents_of(dataclasses.replace(size, length=size.length - 5), 1)
    return batch | {"seq_lens": real}


def one_packed_row(size: Size) -> Batch:
    batch = with_lengths(size)
    del batch["padding_mask"]
    return batch


def with_ids(size: Size) -> Batch:
    """The documents' ids element by element."""
    batch = odd(size)
    real, _ = documents_of(dataclasses.replace(size, length=size.length - 5), 1)
    ids = [torch.repeat_interleave(torch.arange(1, len(row) + 1), row) for row in real]
    return batch | {"_packed_seq_ids": torch.stack(ids)}


@dataclasses.dataclass(frozen=True)
class Case:
    """`backend`, `arguments`: the reference's. `options`: cpshard's. `goal`: whether the ratio
    counts; `note` says why not."""

    name: str
    backend: str
    make: Callable[[Size], Batch]
    options: dict[str, Any]
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    one_row: bool = False
    note: Optional[str] = None

    @property
    def goal(self) -> bool:
        return self.note is None


STAND_IN = "stand-in of a GPU-only package"
MULTIPLE = {"pad_multiple": 4}
ALIGNED = MULTIPLE | {"packed_alignment": 4}
CASES = (
    Case("contiguous, nothing to pad", "contiguous", tokens, {"contiguous": {}},
         note="the reference slices"),
    Case("contiguous", "contiguous", odd, {"contiguous": {}}),
    Case("contiguous, attention_mask", "contiguous", attended, {"contiguous": {}}),
    Case("round_robin, nothing to pad", "round_robin", tokens, {"round_robin": {}}),
    Case("round_robin", "round_robin", odd, {"round_robin": {}}),
    Case("round_robin, aux only", "round_robin_aux_only", odd,
         {"round_robin": {"keep_primary_full": True}}),
    Case("thd", "te_thd", packed, {"thd": {}}, note=STAND_IN),
    Case("glm_dsa", "glm_dsa", packed, {"glm_dsa": {}}),
    Case("deepseek_v4", "dsv4", odd, {"deepseek_v4": MULTIPLE}, MULTIPLE),
    Case("deepseek_v4, packed", "dsv4", packed, {"deepseek_v4": MULTIPLE}, MULTIPLE),
    Case("deepseek_v41", "dsv41", odd, {"deepseek_v41": ALIGNED}, ALIGNED),
    Case("deepseek_v41, packed", "dsv41", packed, {"deepseek_v41": ALIGNED}, ALIGNED),
    Case("gemma4", "gemma4", with_ids, {"gemma4": {}}),
    Case("kimi, LINEAR", "kimi_linear", with_lengths, {"kimi": {"variant": "LINEAR"}}),
    Case("kimi, K3", "kimi_k3", with_lengths, {"kimi": {"variant": "K3"}}),
    Case("block_diagonal", "blockdiag", with_ids, {"block_diagonal": {}}, one_row=True),
    Case("glm5_next", "glm5_next", with_lengths, {"glm5_next": {"keep_primary_full": True}}),
    Case("qwen3_8", "qwen3_8_flash_next", odd, {"qwen3_8": MULTIPLE}, MULTIPLE),
    Case("qwen3_8, attention_mask", "qwen3_8_flash_next", attended, {"qwen3_8": MULTIPLE},
         MULTIPLE),
    Case("qwen3_8, packed", "qwen3_8_flash_next", one_packed_row, {"qwen3_8": MULTIPLE}, MULTIPLE,
         one_row=True),
    Case("mimo", "mimo_te", packed_only, {"mimo": {}}, note=STAND_IN),
    Case("magi, HF", "magi", odd, {"magi": {"variant": "HF"}}, {"variant": "hf"}, one_row=True,
         note=STAND_IN),
    Case("magi, CUSTOM", "magi", packed_only, {"magi": {"variant": "CUSTOM"}},
         {"variant": "custom"}, note=STAND_IN),
)


def write_safetensors(path: pathlib.Path, batch: Batch) -> None:
    """The batch as cpshard reads it: 8-byte elements first, strings as metadata."""
    tensors = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": {
        name: value for name, value in batch.items() if isinstance(value, str)}}
    body = b""
    for name in order:
        data = tensors[name].numpy().tobytes()
        header[name] = {"dtype": DTYPES[tensors[name].dtype], "shape": list(tensors[name].shape),
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
