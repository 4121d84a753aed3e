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

# Packed documents: D5 and section 13 on thd. 2 rows of 8, documents of 4 and 8 tokens; over 2 ranks
# a padded length is a multiple of 4.
THD, CHUNKED = {"thd": {}}, {"thd": {"num_chunks": 2}}
NONE = -1000


def listed(*rows, dtype="I64"):
    """Lengths of documents, [B, n]."""
    width = max(map(len, rows))
    return tensor(dtype, [[*row, *[NONE] * (width - len(row))] for row in rows])


PACKED = {name: zeros("I64", 2, 8) for name in ("input_ids", "labels", "position_ids")} | {
    "seq_lens": listed([4, 4], [8]), "seq_lens_padded": listed([4, 4], [8])}


def thd(name, *texts, options=THD, cp=2, rows=2, length=8, real=None, padded=None, **changes):
    """`real` alone: no padded lengths are sent. A change to None leaves the entry out."""
    batch = PACKED | {token: zeros("I64", rows, length) for token in
                      ("input_ids", "labels", "position_ids")} | changes
    if real is not None:
        batch |= {"seq_lens": listed(*real), "seq_lens_padded": padded and listed(*padded)}
    row(f"thd at {cp}: {name}", *texts, options=options, cp=cp,
        batch={key: value for key, value in batch.items() if value is not None})


thd("tokens that no 2 * cp_size divides", "'input_ids'", "1 rows of 6", "6 tokens",
    "2 * cp_size = 4", "pad", rows=1, length=6, real=[[6]], padded=[[6]])
thd("chunks that no 2 * cp_size divides", "'input_ids'", "1 rows of 6", "2 * cp_size = 4", "pad",
    options=CHUNKED, length=6, real=[[6], [6]], padded=[[6], [6]])
thd("a document of 2", "'seq_lens_padded'", "row 0", "document 0", "length 2", "2 * cp_size = 4",
    "pad", real=[[2, 6], [8]], padded=[[2, 6], [8]])
thd("a document of 6 in the last row", "'seq_lens_padded'", "row 1", "document 1", "length 6",
    "2 * cp_size = 4", real=[[8], [0, 5, 1]], padded=[[8], [0, 6, 2]])
thd("a document of 2 where real lengths alone are sent", "'seq_lens'", "row 1", "document 0",
    "length 2", "2 * cp_size = 4", real=[[8], [2, 6]])
thd("a document of 2 in the second chunk", "'seq_lens_padded'", "row 1", "document 0", "length 2",
    "2 * cp_size = 4", options=CHUNKED, real=[[8], [2, 6]], padded=[[8], [2, 6]])
for cp in (1, 2, None):
    thd("real over padded", "row 1", "document 0", "'seq_lens'", " 8", "'seq_lens_padded'", " 4",
        cp=cp, real=[[8], [8, 0]], padded=[[8], [4, 4]])
    for value in (-1, -999, -1001, -2**63):
        thd(f"a length of {value}", "'seq_lens'", "row 1", "entry 1", f"{value}", "-1000", cp=cp,
            real=[[8], [8, value]], padded=[[8], [8]])
        thd(f"a padded length of {value}", "'seq_lens_padded'", "row 0", "entry 0", f"{value}",
            "-1000", cp=cp, real=[[8], [8]], padded=[[value, 8], [8]])
    thd("more real lengths than padded", "row 1", "'seq_lens' has 2", "'seq_lens_padded' has 1",
        "same documents", cp=cp, real=[[8], [4, 4]], padded=[[8], [8]])
    thd("more padded lengths than real", "row 0", "'seq_lens' has 1", "'seq_lens_padded' has 2",
        "same documents", cp=cp, real=[[8], [8]], padded=[[4, 4], [8]])
    thd("a first row that is too short", "'seq_lens_padded'", "row 0", "sum to 4", "S = 8", "pad",
        cp=cp, real=[[4], [8]], padded=[[4], [8]])
    thd("a first row that is too long", "'seq_lens_padded'", "row 0", "sum to 12", "S = 8",
        "shorten", cp=cp, real=[[8, 4], [4]], padded=[[8, 4], [4]])
    thd("a last row that is too long", "'seq_lens_padded'", "row 1", "sum to 12", "S = 8",
        "shorten", cp=cp, real=[[8], [8, 4]], padded=[[8], [8, 4]])
    thd("a row that is too long in real lengths", "'seq_lens'", "row 1", "sum to 12", "S = 8",
        "shorten", cp=cp, real=[[8], [8, 4]])
    thd("a row beyond int64", "'seq_lens_padded'", "row 0", "S = 8", "shorten", cp=cp,
        real=[[2**62, 2**62, 2**62], [8]], padded=[[2**62, 2**62, 2**62], [8]])
    thd("a first row without documents", "'seq_lens_padded'", "row 0", "sum to 0", "S = 8", "pad",
        cp=cp, real=[[NONE], [8]], padded=[[NONE], [8]])
    thd("no document at all", "'seq_lens'", "rows 0 to 1", "-1000", "leave", cp=cp,
        real=[[NONE], [NONE]], padded=[[NONE], [NONE]])
    thd("lengths without entries", "'seq_lens'", "rows 0 to 1", cp=cp,
        seq_lens=zeros("I64", 2, 0), seq_lens_padded=zeros("I64", 2, 0))
    thd("no document in the second chunk", "'seq_lens'", "rows 1 to 1", options=CHUNKED, cp=cp,
        real=[[8], [NONE]], padded=[[8], [NONE]])
    thd("no rows", "'input_ids'", "[0, 8]", "B = 0", "needs one", cp=cp, rows=0,
        seq_lens=zeros("I64", 0, 1), seq_lens_padded=zeros("I64", 0, 1))
    thd("no columns", "'input_ids'", "[2, 0]", "S = 0", "needs one", cp=cp, length=0,
        real=[[0], [0]], padded=[[0], [0]])
    thd("rows that do not divide into chunks", "'input_ids'", "3 rows", "num_chunks 2", "multiple",
        options=CHUNKED, cp=cp, rows=3, real=[[8]] * 3, padded=[[8]] * 3)
    thd("fewer rows than chunks", "'input_ids'", "2 rows", "num_chunks 4", "fewer chunks",
        options={"thd": {"num_chunks": 4}}, cp=cp)
    thd("chunks of positions of three axes", "'position_ids'", "[3, 2, 8]", "[2, 8]",
        options=CHUNKED, cp=cp, position_ids=zeros("I64", 3, 2, 8))
    thd("chunks of a tensor without axes", "'scale'", "2 chunks", "scalar", options=CHUNKED, cp=cp,
        scale=zeros("F32"))
    for name in ("input_ids", "labels"):
        thd(f"no {name}", f"'{name}'", "thd", cp=cp, **{name: None})
        thd(f"{name} as a scalar", f"'{name}'", "scalar", "tensor", cp=cp, **{name: 7})
    thd("positions as a scalar", "'position_ids'", "scalar", "tensor", cp=cp, position_ids=7)
    for name in ("seq_lens", "seq_lens_padded"):
        thd(f"{name} as a scalar", f"'{name}'", "scalar", "[2, n]", cp=cp, **{name: 8})
        for dtype in ("F32", "BF16", "BOOL", "U8", "I8"):
            thd(f"{dtype} {name}", f"'{name}'", dtype.lower(), "i16, i32 or i64", cp=cp,
                **{name: zeros(dtype, 2, 2)})
        for shape in ((3, 2), (1, 2), (2,), (4,), (2, 2, 1), ()):
            thd(f"{name} {list(shape)}", f"'{name}'", f"{list(shape)}", "2 rows", "[2, n]",
                "-1000", cp=cp, **{name: zeros("I64", *shape)})
    for name in ("labels", "position_ids"):
        for shape in ((2, 7), (2, 9), (3, 8), (1, 8), (16,), ()):
            thd(f"{name} {list(shape)}", f"'{name}'", f"{list(shape)}", "[2, 8", "'input_ids'",
                cp=cp, **{name: zeros("I64", *shape)})
    thd("input_ids of one axis", "'input_ids'", "[16]", cp=cp, input_ids=zeros("I64", 16))
    thd("positions of four axes", "'position_ids'", "[1, 1, 2, 8]", "[2, 8]", cp=cp,
        position_ids=zeros("I64", 1, 1, 2, 8))
    thd("a loss mask", "'loss_mask'", "thd", cp=cp, loss_mask=zeros("F32", 2, 8))
    thd("extras", "'extra'", "thd", options=with_extras(THD, {"name": "extra"}), cp=cp,
        extra=zeros("F32", 2, 8))
    thd("an extra that it cuts anyway", "'labels'", "thd", cp=cp,
        options=with_extras(THD, {"name": "labels"}))
    thd("min_padded_len", "min_padded_len", "16", "thd", options=THD | {"min_padded_len": "16"},
        cp=cp)
for name in ("seq_lens", "position_ids"):
    thd(f"no {name}", f"'{name}'", "cp_size 2", **{name: None})
thd("a last row that is too short, with padding elsewhere", "'seq_lens_padded'", "row 1",
    "sum to 4", "S = 8", "pad", real=[[3, 4], [4]], padded=[[4, 4], [4]])
thd("a last row that is too short in real lengths", "'seq_lens'", "row 1", "sum to 4", "S = 8",
    "pad", real=[[8], [4]])
thd("a last row without documents", "'seq_lens_padded'", "row 1", "sum to 0", "S = 8", "pad",
    real=[[8], [NONE]], padded=[[8], [NONE]])
thd("a last row of a chunk that is too short", "'seq_lens_padded'", "row 1", "sum to 4", "S = 8",
    "pad", options=CHUNKED, rows=4, real=[[3, 4], [4], [8], [8]], padded=[[4, 4], [4], [8], [8]])
thd("positions of three axes", "'position_ids'", "[3, 2, 8]", "cp_size 1", "[2, 8]",
    position_ids=zeros("I64", 3, 2, 8))
thd("positions of three axes that do not fit", "'position_ids'", "[3, 2, 7]", "[2, 8]", cp=1,
    position_ids=zeros("I64", 3, 2, 7))
thd("more documents than its ranks allow", "'seq_lens'", "[1, 1025]", "1025", "4096 ranks",
    "4194304", "fewer", cp=4096, rows=1, length=8192, seq_lens=zeros("I16", 1, 1025),
    seq_lens_padded=None)
for cp in (1, None):
    ids = {"seq_lens": None, "seq_lens_padded": None, "input_ids": tensor("I64", [
        [5, 6, 7, 8, 0, 0, 0, 0], [5, 6, 7, 8, 0, 0, 0, 0]])}
    thd("neither lengths nor a pad id", "'seq_lens'", "padding_token_id", "set it", cp=cp, **ids)
    thd("a pad id that is content", "'input_ids'", "padding_token_id 0", "token 4", "5 at token 8",
        "'seq_lens'", options=THD | {"padding_token_id": "0"}, cp=cp, **ids)
    thd("embeddings without lengths", "'seq_lens'", "'input_ids'", "f32", "[2, 8, 4]", cp=cp,
        options=THD | {"padding_token_id": "0"}, **ids | {"input_ids": zeros("F32", 2, 8, 4)})

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

row("no layout", "layout", options={})

# Padding over the limit: refused before anything is allocated.
for multiple, cp in ((2**28, 2), (2**62, 1), (2**62, 2), (2**62, 4), (2**63 - 1, 1),
                     (2**63 - 1, 2), (2**63 - 1, 4096)):
    batch = {"input_ids": zeros("I64", 1, 14), "labels": zeros("I64", 1, 14)}
    row(f"pad_multiple {multiple} over {cp} ranks", "pad_multiple", f"{multiple}", batch=batch,
        cp=cp, options={"contiguous": {"pad_multiple": str(multiple)}, "padding_token_id": 0})
