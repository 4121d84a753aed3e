"""Batches and options that are refused wherever they come from. Rule numbers are the contract's."""

from typing import NamedTuple

import numpy as np

from safetensors_file import bf16, tensor

INVALID, UNIMPLEMENTED = "INVALID_ARGUMENT", "UNIMPLEMENTED"

CONTIGUOUS = {"contiguous": {}, "padding_token_id": 0}
CONTIGUOUS_AUX = {"contiguous": {"keep_primary_full": True}}
ROUND_ROBIN = {"round_robin": {}}
AUX = {"round_robin": {"keep_primary_full": True}}
IDENTITY = {"identity": {}}


class Row(NamedTuple):
    name: str
    code: str
    texts: tuple  # all of them are in the message
    batch: dict
    options: dict
    cp: int | None = 2
    ranks: tuple = ()


def zeros(dtype, *shape):
    return tensor(dtype, np.zeros(shape))


# 2 rows of 6 columns: over 2 ranks round robin and contiguous pad them to 8.
BASE = {"input_ids": zeros("I64", 2, 6), "labels": zeros("I64", 2, 6)}


def without(*names):
    return {name: value for name, value in BASE.items() if name not in names}


def with_extras(options, *extras):
    return options | {"extra_streams": list(extras)}


ROWS = []


def row(name, *texts, batch=None, more=None, options=ROUND_ROBIN, cp=2, ranks=(), code=INVALID):
    ROWS.append(Row(name, code, texts, batch if batch is not None else BASE | (more or {}), options,
                    cp, ranks))


# D5: streams that do not fit the primary.
for options in (CONTIGUOUS, CONTIGUOUS_AUX, ROUND_ROBIN, AUX):
    layout = next(iter(options)) + (" aux" if options in (CONTIGUOUS_AUX, AUX) else "")
    for name, dtype in (("labels", "I64"), ("padding_mask", "BOOL"), ("loss_mask", "F32"),
                        ("position_ids", "I64")):
        row(f"D5 {layout}: {name} too short", f"'{name}'", "[2, 5]", "6",
            more={name: zeros(dtype, 2, 5)}, options=options)
        row(f"D5 {layout}: {name} too long", f"'{name}'", "[2, 7]", "6",
            more={name: zeros(dtype, 2, 7)}, options=options)
        row(f"D5 {layout}: {name} with too many rows", f"'{name}'", "[3, 6]", "2",
            more={name: zeros(dtype, 3, 6)}, options=options)
        row(f"D5 {layout}: {name} of one axis", f"'{name}'", "[6]",
            more={name: zeros(dtype, 6)}, options=options)
        row(f"D5 {layout}: {name} without axes", f"'{name}'", "[]",
            more={name: zeros(dtype)}, options=options)
        row(f"D5 {layout}: {name} is a scalar", f"'{name}'", more={name: 7}, options=options)
    for shape, texts in (((3, 3, 6), ("[3, 3, 6]", "2")), ((3, 2, 5), ("[3, 2, 5]", "6")),
                         ((1, 1, 1, 6), ("[1, 1, 1, 6]",))):
        row(f"D5 {layout}: positions {list(shape)}", "'position_ids'", *texts,
            more={"position_ids": zeros("I64", *shape)}, options=options)
    for dtype in ("U8", "BOOL"):
        row(f"D5 {layout}: {dtype} labels that need -100", "'labels'", "-100", dtype.lower(),
            more={"labels": zeros(dtype, 2, 6)}, options=options)
for options in (CONTIGUOUS, ROUND_ROBIN):
    layout = next(iter(options))
    for shape, axis in (((5,), 0), ((6, 5), 1), ((2, 2, 5), 2), ((2, 5, 6), -2)):
        row(f"D5 {layout}: extra {list(shape)} on axis {axis}", "'extra'", f"{list(shape)}", "5",
            "6", more={"extra": zeros("F32", *shape)},
            options=with_extras(options, {"name": "extra", "seq_axis": axis}))
    for shape, axis in (((2, 6), 2), ((2, 6), -3), ((), 0), ((6,), 1), ((2, 6), 2**31 - 1),
                        ((2, 6), -2**31)):
        row(f"{layout}: extra {list(shape)} has no axis {axis}", "'extra'", f"{list(shape)}",
            f"{axis}", more={"extra": zeros("F32", *shape)},
            options=with_extras(options, {"name": "extra", "seq_axis": axis}))
    row(f"D5 {layout}: a declared extra that is absent", "'extra'",
        options=with_extras(options, {"name": "extra"}))
    row(f"{layout}: an extra that is a scalar", "'extra'", more={"extra": "text"},
        options=with_extras(options, {"name": "extra"}))
    row(f"D13 {layout}: an extra named twice", "'extra'", "twice",
        more={"extra": zeros("F32", 2, 6)},
        options=with_extras(options, {"name": "extra"}, {"name": "extra"}))
    row(f"D13 {layout}: an extra without a name", "extra_streams", "name",
        options=with_extras(options, {"seq_axis": 1}))
for dtype in ("U8", "BOOL"):
    row(f"D5: a {dtype} loss mask promoted to labels that need -100", "'labels'", "-100",
        batch=without("labels") | {"loss_mask": zeros(dtype, 2, 6)}, options=CONTIGUOUS)
row("D5: a negative pad id for unsigned ids", "'input_ids'", "-1", "u8",
    more={"input_ids": zeros("U8", 2, 6)}, options={"contiguous": {}, "padding_token_id": -1})
row("D5: padding without a pad id", "'input_ids'", "padding_token_id", "6", "8",
    options={"contiguous": {}})
for dtype, pad in (("U8", -1), ("BOOL", -1), ("U8", 256), ("I8", -129), ("I8", 128),
                   ("I16", 32768), ("I32", 2**31), ("I32", -2**31 - 1)):
    row(f"2.2: a {dtype} extra cannot hold {pad}", "'extra'", f"{pad}", dtype.lower(),
        more={"extra": zeros(dtype, 2, 6)},
        options=with_extras(CONTIGUOUS, {"name": "extra", "int_pad": str(pad)}))
for dtype, pad in (("I64", "NaN"), ("I64", 2.0**63), ("I32", "Infinity"), ("U8", -1.5)):
    row(f"2.2: an {dtype} extra cannot hold {pad}", "'extra'", dtype.lower(),
        more={"extra": zeros(dtype, 2, 6)},
        options=with_extras(CONTIGUOUS, {"name": "extra", "float_pad": pad}))

# D6 and the attention mask that contiguous converts.
for dtype in ("I64", "I32", "U8", "I8"):
    row(f"D6: a 4-D {dtype} attention mask", "'attention_mask'", "[2, 1, 6, 6]", dtype.lower(),
        more={"attention_mask": zeros(dtype, 2, 1, 6, 6)}, options=CONTIGUOUS)
for dtype, shape in (("I64", (2, 5)), ("I64", (3, 6)), ("I64", (6,)), ("BOOL", (2, 1, 5, 9)),
                     ("F32", (3, 1, 6, 6)), ("BOOL", (2, 0, 6, 6)), ("BOOL", (2, 5, 6)),
                     ("I64", (2, 1, 1, 6, 6))):
    row(f"D5: an attention mask {dtype} {list(shape)}", "'attention_mask'", f"{list(shape)}",
        more={"attention_mask": zeros(dtype, *shape)}, options=CONTIGUOUS)

row("2.5: an attention mask that is a scalar", "'attention_mask'", more={"attention_mask": "7"},
    options=CONTIGUOUS)
for options in (CONTIGUOUS, CONTIGUOUS_AUX, ROUND_ROBIN, AUX):
    for more in ({}, {"attention_mask": zeros("I64", 2, 6)}, {"attention_mask": "text"}):
        row(f"{options}: an extra attention mask, the batch having {list(more) or 'none'}",
            "'attention_mask'", "another name", more=more,
            options=with_extras(options, {"name": "attention_mask"}))

# D9, section 13: what the batch needs.
for options in (CONTIGUOUS, ROUND_ROBIN, AUX):
    layout = next(iter(options))
    row(f"{layout}: no primary", "input_ids", "inputs_embeds", batch=without("input_ids"),
        options=options)
    row(f"{layout}: two primaries", "input_ids", "inputs_embeds",
        more={"inputs_embeds": bf16(np.zeros((2, 6, 4)))}, options=options)
    row(f"{layout}: a primary of one axis", "'input_ids'", "[6]",
        more={"input_ids": zeros("I64", 6)}, options=options)
    row(f"{layout}: a primary that is a scalar", "'input_ids'", more={"input_ids": 6},
        options=options)
    row(f"{layout}: no labels", "'labels'", batch=without("labels"), options=options)
    row(f"{layout}: no mesh", "cp_size", options=options, cp=None)
row("D17: a loss mask is no label for round_robin", "'labels'", "loss_mask",
    batch=without("labels") | {"loss_mask": zeros("F32", 2, 6)})

# D13, D14: options that a layout does not take.
row("D13: identity takes no extras", "'extra'", "identity", more={"extra": zeros("F32", 2, 6)},
    options=with_extras(IDENTITY, {"name": "extra"}))
row("D13: identity refuses every name", "'labels'", "identity",
    options=with_extras(IDENTITY, {"name": "labels"}))
for pad in ({"int_pad": "0"}, {"int_pad": "7"}, {"float_pad": 0.5}):
    row(f"D13: round_robin takes no pad, not {pad}", "'extra'", "pad", "round_robin",
        more={"extra": zeros("F32", 2, 6)},
        options=with_extras(ROUND_ROBIN, {"name": "extra"} | pad))
for options in (IDENTITY, CONTIGUOUS, ROUND_ROBIN, AUX):
    row(f"D14: {next(iter(options))} takes no min_padded_len", "min_padded_len", "16",
        options=options | {"min_padded_len": "16"})

# D18: documents that round robin cannot keep apart.
for name in ("seq_lens", "seq_lens_padded", "cu_seqlens", "cu_seqlens_padded", "_packed_seq_ids"):
    for options in (ROUND_ROBIN, AUX):
        row(f"D18: {name} on {options}", f"{name}", "round_robin", "block_diagonal", "deepseek_v4",
            "thd", more={name: zeros("I64", 2, 1)}, options=options)
row("D18: qkv_format", "qkv_format", "round_robin", "thd", "kimi", more={"qkv_format": "thd"})
row("D18: seq_lens as a scalar", "seq_lens", "round_robin", more={"seq_lens": 6})

# Ranks, names, counts.
for cp in (0, 4097, 2**32 - 1):
    row(f"cp_size {cp}", "cp_size", f"{cp}", "4096", cp=cp)
row("a rank beyond the group", "rank 2", ranks=(0, 2))
row("a rank without a mesh", "rank 1", options=IDENTITY, cp=None, ranks=(1,))
row("a rank twice", "rank 1", "twice", ranks=(1, 0, 1))
for prefix in ("_cpshard.", "_meta.", "_layout."):
    for value in (zeros("F32", 1), "text"):
        row(f"a {type(value).__name__} named {prefix}x", f"'{prefix}x'", "reserved",
            more={f"{prefix}x": value})
row("an entry without a name", "empty name", more={"": zeros("F32", 1)})
row("a name of 129 bytes", "n" * 20, "129", "128", more={"n" * 129: zeros("F32", 1)})
row("257 entries", "257", "256", more={f"t{i}": zeros("U8", 1) for i in range(255)})
row("9 axes", "'deep'", "9", "8", more={"deep": zeros("U8", *[1] * 9)})
row("a name of several lines", "'a", "c'", options=with_extras(ROUND_ROBIN, {"name": "a\nb\rc"}))

# Options without a layout, and layouts that are not built.
row("no layout", "layout", options={})
for layout in ("thd", "glm_dsa", "deepseek_v4", "deepseek_v41", "gemma4", "kimi", "glm5_next",
               "mimo", "qwen3_8", "block_diagonal", "magi", "explicit", "document_head_tail"):
    row(f"{layout} is not built", layout, "round_robin", options={layout: {}}, code=UNIMPLEMENTED)
row("targets are not built", "targets", options=ROUND_ROBIN | {"targets": {"num_depths": 1}},
    code=UNIMPLEMENTED)

# Padding over the limit: refused before anything is allocated.
for multiple, cp in ((2**28, 2), (2**62, 1), (2**62, 2), (2**62, 4), (2**63 - 1, 1),
                     (2**63 - 1, 2), (2**63 - 1, 4096)):
    batch = {"input_ids": zeros("I64", 1, 14), "labels": zeros("I64", 1, 14)}
    row(f"pad_multiple {multiple} over {cp} ranks", "pad_multiple", f"{multiple}", batch=batch,
        cp=cp, options={"contiguous": {"pad_multiple": str(multiple)}, "padding_token_id": 0})
