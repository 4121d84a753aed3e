"""Batches and options that the layouts of models refuse: contract sections 4.8 to 4.18, 7, 13, 14
and 17. The rows of bad_batches.py are of the layouts that these build on."""

from bad_batches import BASE, INVALID, NONE, PACKED, UNIMPLEMENTED, Row, listed, without, zeros
from safetensors_file import tensor

ROWS = []


class Refusals:
    """Rows of one layout."""

    def __init__(self, options, batch, cp=2):
        self.options, self.batch, self.cp = options, batch, cp

    def __call__(self, name, *texts, code=INVALID, options=None, cp=..., batch=None, more=None,
                 **changes):
        """`options` are the layout's own, `more` those beside it. None leaves an entry out."""
        layout = next(iter(self.options))
        chosen = {layout: self.options[layout] | options} if options is not None else {}
        batch = (self.batch if batch is None else batch) | changes
        ROWS.append(Row(f"{layout}: {name}", code, texts,
                        {key: value for key, value in batch.items() if value is not None},
                        {key: value for key, value in (self.options | chosen | (more or {})).items()
                         if value is not None}, self.cp if cp is ... else cp))


EMBEDS = zeros("F32", 2, 6, 4)
PAD = {"padding_token_id": "0"}


def lengths(real, padded=None):
    return {"seq_lens": listed(*real), "seq_lens_padded": padded and listed(*padded)}


# Options that name a layout and too little, or what it does not go with.
for variant in ({}, {"variant": "VARIANT_UNSPECIFIED"}):
    Refusals({"kimi": variant} | PAD, BASE)("no variant", "kimi", "variant", "K3")
    Refusals({"magi": variant}, BASE)("no variant", "magi", "variant", "CUSTOM")
for options in ({"glm_dsa": {}}, {"deepseek_v4": {}}, {"gemma4": {}}, {"qwen3_8": {}},
                {"explicit": {"ranks": [{"runs": [{"length": "6"}]}]}}, {"document_head_tail": {}}):
    Refusals(options | PAD, BASE)("no mesh", "cp_size", next(iter(options)), cp=None)
for options in ({"glm_dsa": {}}, {"deepseek_v4": {}}, {"deepseek_v41": {}},
                {"kimi": {"variant": "K3"}}, {"glm5_next": {}}, {"mimo": {}}, {"qwen3_8": {}},
                {"block_diagonal": {}}, {"magi": {"variant": "HF"}}, {"explicit": {}},
                {"document_head_tail": {}}):
    refused = Refusals(options | PAD, BASE | {"extra": zeros("F32", 2, 6)})
    refused("D13, extras", "'extra'", next(iter(options)), "gemma4",
            more={"extra_streams": [{"name": "extra"}]})
    if not next(iter(options)).startswith("deepseek"):
        refused("D14", "min_padded_len", "16", more={"min_padded_len": "16"})
for options in ({"glm_dsa": {}}, {"mimo": {}}, {"magi": {"variant": "HF"}},
                {"document_head_tail": {}}):
    Refusals(options, PACKED | {"qkv_format": "thd"})(
        "D17, a loss mask", "'loss_mask'", next(iter(options)), loss_mask=zeros("F32", 2, 8))

# DeepSeek V4. Documents are widened to multiples of max(pad_multiple, 2).
v4 = Refusals({"deepseek_v4": {}} | PAD, PACKED)
v4("thd without lengths", "qkv_format", "'seq_lens'", seq_lens=None, seq_lens_padded=None,
   qkv_format="thd")
v4("boundaries alone", "'cu_seqlens'", "'seq_lens'", code=UNIMPLEMENTED, seq_lens=None,
   seq_lens_padded=None, cu_seqlens=tensor("I32", [0, 8, 16]))
v4("packed without labels", "'labels'", "loss_mask", labels=None, loss_mask=zeros("F32", 2, 8))
v4("a document past its row", "row 0", "document 1", "6 tokens", "column 4", "S = 8",
   **lengths([[4, 6], [8]]))
v4("a row without documents", "'seq_lens'", "row 1", "-1000", **lengths([[8], [NONE]]))
v4("a negative length", "'seq_lens'", "row 1", "entry 1", "-3", "-1000", **lengths([[8], [4, -3]]))
v4("a real length over the padded one", "row 0", "document 1", "5", "4",
   **lengths([[4, 5], [8]], [[4, 4], [8]]))
v4("lengths of other rows", "'seq_lens'", "[1, 1]", "2 rows", **lengths([[8]]))
v4("no rows", "B = 0", batch={name: zeros("I64", 0, 8) for name in ("input_ids", "labels")}
   | {"seq_lens": zeros("I64", 0, 1)})
v4("two primaries", "input_ids", "inputs_embeds", inputs_embeds=zeros("F32", 2, 8, 4))
v4("a loss mask of another length", "'loss_mask'", "[2, 7]", "8", loss_mask=zeros("F32", 2, 7))
v4("no pad id where documents need it", "'input_ids'", "padding_token_id",
   more={"padding_token_id": None}, **lengths([[3, 4], [8]]))
v4("labels that cannot hold -100", "'labels'", "-100", "u8", labels=zeros("U8", 2, 8),
   **lengths([[3, 4], [8]]))
v4("not packed, neither labels nor a loss mask", "'labels'", "loss_mask", batch=without("labels"))
v4("not packed, short labels", "'labels'", "[2, 5]", "6", batch=BASE, labels=zeros("I64", 2, 5))
v4("a pad multiple that pads beyond the limit", "pad_multiple", str(2**40),
   options={"pad_multiple": str(2**40)})
v4("a least length beyond the limit", str(2**40), more={"min_padded_len": str(2**40)})

# DeepSeek V4.1. Documents are widened to multiples of packed_alignment.
v41 = Refusals({"deepseek_v41": {"packed_alignment": "4"}}, PACKED)
for name, value in (("pixel_values", zeros("F32", 3)), ("inputs_embeds", EMBEDS)):
    v41(f"{name}", f"'{name}'", "text", **{name: value})
v41("boundaries alone", "'cu_seqlens'", "'seq_lens'", seq_lens=None, seq_lens_padded=None,
    cu_seqlens=tensor("I32", [0, 8, 16]))
v41("thd without lengths", "qkv_format", "'seq_lens'", seq_lens=None, seq_lens_padded=None,
    qkv_format="thd")
for alignment in (0, -4):
    v41(f"alignment {alignment}", "packed_alignment", f"{alignment}",
        options={"packed_alignment": str(alignment)})
v41("lengths of i16", "'seq_lens'", "i16", "i32", seq_lens=listed([4, 4], [8], dtype="I16"))
v41("shapes of lengths that differ", "'seq_lens' [2, 2]", "'seq_lens_padded' [2, 1]",
    **lengths([[4, 4], [8]], [[8], [8]]))
v41("an absent document with a span", "row 1", "entry 1", "-1000", "span 4", "absent",
    **lengths([[4, 4], [4, NONE]], [[4, 4], [4, 4]]))
v41("a span below its length", "row 0", "entry 1", "length 4", "span 3",
    **lengths([[4, 4], [8]], [[4, 3], [8]]))
v41("a span past the row", "row 1", "entry 0", "span 9", "S = 8",
    **lengths([[4, 4], [8]], [[4, 4], [9]]))
v41("a negative length", "row 1", "entry 0", "-1", **lengths([[4, 4], [-1]]))
v41("no labels under a mesh", "'labels'", "loss_mask", labels=None)
v41("a bool loss mask for labels that would hold -100", "'labels'", "bool", "-100", labels=None,
    loss_mask=zeros("BOOL", 2, 8), options={"packed_alignment": "5"})
v41("not packed, a floating padding mask", "'padding_mask'", "f32", "bool", batch=BASE,
    padding_mask=zeros("F32", 2, 6))
v41("D6, a 4-D integer attention mask", "'attention_mask'", "[2, 1, 6, 6]", "i64", batch=BASE,
    attention_mask=zeros("I64", 2, 1, 6, 6))

# Gemma4: contiguous around a whole primary.
gemma = Refusals({"gemma4": {}} | PAD, BASE)
gemma("no primary", "input_ids", "inputs_embeds", input_ids=None)
gemma("two primaries", "input_ids", "inputs_embeds", inputs_embeds=EMBEDS)
gemma("no labels", "'labels'", "loss_mask", labels=None)
gemma("a short map", "'_packed_seq_ids'", "[2, 5]", "6", _packed_seq_ids=zeros("I64", 2, 5))
gemma("D6, a 4-D integer attention mask", "'attention_mask'", "[2, 1, 6, 6]", "i64",
      attention_mask=zeros("I64", 2, 1, 6, 6))
gemma("an extra that is not there", "'extra'", more={"extra_streams": [{"name": "extra"}]})
gemma("labels that cannot hold -100", "'labels'", "-100", "bool", labels=zeros("BOOL", 2, 6))

# Kimi, and GLM-5-next, which is much like it. 6 columns do not divide by 4.
for options in ({"kimi": {"variant": "LINEAR"}}, {"kimi": {"variant": "K3"}},
                {"glm5_next": {"keep_primary_full": False}}):
    kimi = Refusals(options | PAD, BASE, cp=4)
    layout = next(iter(options))
    kimi("embeddings alone", "'input_ids'", "inputs_embeds", input_ids=None, inputs_embeds=EMBEDS)
    kimi("positions of three axes", "'position_ids'", "[3, 2, 6]", layout,
         position_ids=zeros("I64", 3, 2, 6))
    kimi("positions of another length", "'position_ids'", "[2, 5]", "6",
         position_ids=zeros("I64", 2, 5))
    kimi("short labels", "'labels'", "[2, 5]", "6", labels=zeros("I64", 2, 5))
    kimi("a loss mask of other rows", "'loss_mask'", "[3, 6]", "2", loss_mask=zeros("F32", 3, 6))
    kimi("a map of another length", "'_packed_seq_ids'", "[2, 7]", "6",
         _packed_seq_ids=zeros("I32", 2, 7))
    kimi("no pad id", "'input_ids'", "padding_token_id", "6", more={"padding_token_id": None})
    kimi("a negative length", "'seq_lens'", "row 0", "entry 0", "-7", "-1000",
         **lengths([[-7, 6], [6]]))
    kimi("unequal counts of lengths", "row 1", "'seq_lens' has 1", "'seq_lens_padded' has 2",
         **lengths([[3, 3], [6]], [[3, 3], [3, 3]]))
    kimi("floating lengths", "'seq_lens'", "f32", "lengths", seq_lens=zeros("F32", 2, 1))
Refusals({"kimi": {"variant": "K3"}} | PAD, {"input_ids": zeros("I64", 1, 6)})(
    "lengths of one axis", "'seq_lens'", "[2]", "[1, n]", seq_lens=tensor("I64", [3, 3]))
glm5 = Refusals({"glm5_next": {}} | PAD, BASE, cp=4)
glm5("boundaries that descend", "'cu_seqlens'", "ascend", cu_seqlens=tensor("I32", [0, 4, 2, 6]))
glm5("boundaries that are no integers", "'cu_seqlens'", "integers", cu_seqlens=zeros("F32", 3))

# GLM DSA: the THD conversion, 16 tokens here.
glm = Refusals({"glm_dsa": {}}, PACKED)
for name in ("input_ids", "labels", "position_ids", "seq_lens"):
    glm(f"no {name}", f"'{name}'", "glm_dsa", **{name: None})
glm("tokens that do not divide", "'input_ids'", "16 tokens", "cp_size 3", "pad", cp=3)
glm("rows that do not divide into chunks", "'input_ids'", "2 rows", "num_chunks 3",
    options={"num_chunks": "3"})
glm("a first row that is too short", "'seq_lens_padded'", "row 0", "sum to 4", "S = 8", "pad",
    **lengths([[4], [8]], [[4], [8]]))
glm("a last row that is too long", "'seq_lens'", "row 1", "sum to 12", "S = 8", "shorten",
    **lengths([[8], [8, 4]]))
glm("positions of three axes", "'position_ids'", "[3, 2, 8]", "[2, 8]",
    position_ids=zeros("I64", 3, 2, 8))
glm("no tokens", "'input_ids'", "[0, 8]", "B = 0", batch={
    name: zeros("I64", 0, 8) for name in ("input_ids", "labels", "position_ids")}
    | {"seq_lens": zeros("I64", 0, 1)})

# MiMo: THD, and stricter.
mimo = Refusals({"mimo": {"image_token_id": "7"}}, PACKED | {"qkv_format": "thd"})
mimo("no format", "'qkv_format'", "thd", qkv_format=None)
mimo("another format", "'qkv_format'", "thd", qkv_format="bshd")
mimo("no ids", "'input_ids'", "mimo", input_ids=None)
mimo("ids of three axes", "'input_ids'", "[2, 8, 1]", "[B, S]", input_ids=zeros("I64", 2, 8, 1))
mimo("no padded lengths", "'seq_lens_padded'", "none", seq_lens_padded=None)
mimo("an empty document", "'seq_lens_padded'", "row 0", "document 1", "empty", "cp_size 2",
     **lengths([[4, 0, 4], [8]], [[4, 0, 4], [8]]))
mimo("a document of 2", "'seq_lens_padded'", "row 0", "document 0", "length 2", "2 * cp_size = 4",
     **lengths([[2, 6], [8]], [[2, 6], [8]]))
mimo("chunks of positions of three axes", "'position_ids'", "[3, 2, 8]",
     options={"num_chunks": "2"}, position_ids=zeros("I64", 3, 2, 8))
mimo("rows that do not divide into chunks", "'input_ids'", "2 rows", "num_chunks 3",
     options={"num_chunks": "3"})

# Qwen3.8-Flash-Next, in the order of its checks.
qwen = Refusals({"qwen3_8": {}} | PAD, BASE)
one_row = {name: zeros("I64", 1, 6) for name in ("input_ids", "labels")}
qwen("a tensor-parallel mesh", "tp_size 2", "qwen3_8", code=UNIMPLEMENTED,
     options={"tp_size": "2"})
for name in ("cu_seqlens_q", "cu_seqlens_padded", "packed_seq_ids", "_packed_seq_ids", "indices",
             "max_seqlen"):
    qwen(f"{name}", f"'{name}'", "'cu_seqlens'", code=UNIMPLEMENTED, **{name: zeros("I32", 2, 6)})
qwen("thd without boundaries", "qkv_format", "'cu_seqlens'", code=UNIMPLEMENTED, qkv_format="thd")
qwen("embeddings", "'input_ids'", "'inputs_embeds'", code=UNIMPLEMENTED, input_ids=None,
     inputs_embeds=EMBEDS)
qwen("ids of i16", "'input_ids'", "i16", "[2, 6]", "i32", input_ids=zeros("I16", 2, 6))
qwen("no columns", "'input_ids'", "S = 0", batch={name: zeros("I64", 2, 0) for name in BASE})
for multiple in (1, 0, -4):
    qwen(f"pad_multiple {multiple}", "pad_multiple", f"{multiple}",
         options={"pad_multiple": str(multiple)})
qwen("documents in two rows", "'input_ids'", "2 rows", cu_seqlens=tensor("I32", [0, 2, 6]))
for boundaries in ([0], [1, 6], [0, 5], [0, 4, 4, 6], [0, 4, 2, 6], [0, 4, 8]):
    qwen(f"boundaries {boundaries}", "'cu_seqlens'", "S = 6", "0", batch=one_row,
         cu_seqlens=tensor("I64", boundaries))
for real, texts in (([0, 6], ("entry 0", "0")), ([4, -2], ("entry 1", "-2")),
                    ([4, 4], ("entry 1", "4", "S = 6"))):
    qwen(f"lengths {real}", "'seq_lens'", *texts, batch=one_row, seq_lens=tensor("I64", [real]))
qwen("no document", "'seq_lens'", "no document", batch=one_row, seq_lens=listed([NONE]))
qwen("packed, with a mask", "'padding_mask'", "packed", batch=one_row,
     cu_seqlens=tensor("I32", [0, 6]), padding_mask=zeros("BOOL", 1, 6))
qwen("a 4-D mask", "'attention_mask'", "[2, 1, 6, 6]", "[2, 6]", code=UNIMPLEMENTED,
     attention_mask=zeros("BOOL", 2, 1, 6, 6))
qwen("an indexed mask", "'attention_mask'", "row 0", "2", "column 3",
     attention_mask=tensor("I64", [[1, 1, 1, 2, 2, 0], [1] * 6]))
qwen("padding on the left", "'padding_mask'", "row 1", "column 0", "right", code=UNIMPLEMENTED,
     padding_mask=tensor("BOOL", [[0] * 6, [1, 0, 0, 0, 0, 0]]))
qwen("masks that disagree", "'attention_mask'", "'padding_mask'", "row 1",
     attention_mask=tensor("I64", [[1] * 6, [1] * 5 + [0]]), padding_mask=zeros("BOOL", 2, 6))
qwen("no labels", "'labels'", "loss_mask", labels=None)

# Block-diagonal: one row, of 6 columns, padded to 8 over 2 ranks.
VISUAL = {"visual_pos_masks": tensor("BOOL", [[0, 1, 1, 0, 0, 1]]),
          "_deepstack_visual_embeds.0": zeros("F32", 3, 4)}
block = Refusals({"block_diagonal": {}} | PAD, one_row)
block("two rows", "'input_ids'", "[2, 6]", "2 rows", batch=BASE)
block("two primaries", "input_ids", "inputs_embeds", inputs_embeds=zeros("F32", 1, 6, 4))
block("no primary", "input_ids", "inputs_embeds", input_ids=None)
block("ids of another length", "'_packed_seq_ids'", "[1, 5]", "6",
      _packed_seq_ids=zeros("I64", 1, 5))
block("D6, a 4-D floating attention mask", "'attention_mask'", "f32", "[1, 1, 6, 6]",
      "_packed_seq_ids", attention_mask=zeros("F32", 1, 1, 6, 6))
block("short labels", "'labels'", "[1, 5]", "6", labels=zeros("I64", 1, 5))
block("no pad id", "'input_ids'", "padding_token_id", "6", more={"padding_token_id": None})
block("too few visual rows", "'_deepstack_visual_embeds.0'", "[2, 4]", "3 visual tokens",
      **VISUAL | {"_deepstack_visual_embeds.0": zeros("F32", 2, 4)})
block("too many rows in the second of a list", "'_deepstack_visual_embeds.1'", "[4, 4]", "3",
      **VISUAL | {"_deepstack_visual_embeds.1": zeros("F32", 4, 4)})
block("a floating visual mask", "'visual_pos_masks'", "bool",
      **VISUAL | {"visual_pos_masks": zeros("F32", 1, 6)})
block("a visual mask of another length", "'visual_pos_masks'", "[1, 7]", "6",
      **VISUAL | {"visual_pos_masks": zeros("BOOL", 1, 7)})

# Magi.
hf = Refusals({"magi": {"variant": "HF", "chunk_size": "2"}}, one_row)
hf("two rows", "'input_ids'", "[2, 6]", "[1, S]", batch=BASE)
hf("no ids", "'input_ids'", "[1, S]", input_ids=None)
hf("a prefix tree", "'prefix_tree'", "CUSTOM", code=UNIMPLEMENTED, prefix_tree=7)
hf("no mesh", "magi", "cp_size", cp=None)
hf("fewer chunks than ranks", "6 tokens", "3 chunks", "cp_size 4", cp=4,
   options={"min_chunks_per_rank": "1"})
hf("no tokens", "0 tokens", batch={name: zeros("I64", 1, 0) for name in BASE})
for size in (0, -1):
    hf(f"chunk_size {size}", "chunk_size", f"{size}", "1", options={"chunk_size": str(size)})
    hf(f"min_chunks_per_rank {size}", "min_chunks_per_rank", f"{size}",
       options={"min_chunks_per_rank": str(size)})
hf("short labels", "'labels'", "[1, 5]", "6", labels=zeros("I64", 1, 5))
vlm = Refusals({"magi": {"variant": "HF", "domain": "VLM"}}, one_row)
vlm("vlm at two ranks", "VLM", "cp_size", "2", code=UNIMPLEMENTED)
vlm("vlm of two rows", "'input_ids'", "[2, 6]", "[1, S]", batch=BASE, cp=1)
custom = Refusals({"magi": {"variant": "CUSTOM", "chunk_size": "2"}}, PACKED | {"qkv_format": "thd"})
for name in ("input_ids", "labels", "seq_lens"):
    custom(f"packed without {name}", f"'{name}'", "magi", **{name: None})
custom("a row that is too short", "'seq_lens_padded'", "row 0", "sum to 4", "S = 8", "pad",
       **lengths([[4], [8]], [[4], [8]]))
custom("a last row that is too short", "sum to 12", "16", **lengths([[3, 4], [4]],
                                                                  [[4, 4], [4]]))
custom("a negative length", "'seq_lens'", "row 1", "entry 0", "-9", **lengths([[8], [-9]]))


# A partition as data, over rows of 6 columns.
def ranks(*runs_of_rank):
    return {"ranks": [{"runs": [{"source": str(source), "length": str(length)}
                                for source, length in runs]} for runs in runs_of_rank]}


given = Refusals({"explicit": {}} | PAD, BASE)
for name, partition, *texts in (
        ("no ranks", ranks(), "0 ranks", "cp_size 2"),
        ("too few ranks", ranks([(0, 6)]), "1 ranks", "cp_size 2"),
        ("too many ranks", ranks([(0, 2)], [(2, 2)], [(4, 2)]), "3 ranks", "cp_size 2"),
        ("a column of nobody", ranks([(0, 2)], [(3, 3)]), "column 2", "no rank"),
        ("a column of two", ranks([(0, 4)], [(3, 3)]), "column 3", "twice"),
        ("a column of one rank, twice", ranks([(0, 6), (0, 1)], []), "column 0", "twice"),
        ("too few columns", ranks([(0, 2)], [(2, 2)]), "4 columns", "'input_ids'", "6"),
        ("a negative column", ranks([(-1, 3)], [(2, 4)]), "ranks[0].runs[0]", "source -1"),
        ("an empty run", ranks([(0, 6)], [(6, 0)]), "ranks[1].runs[0]", "length 0"),
        ("a negative length", ranks([(0, 6)], [(6, -6)]), "ranks[1].runs[0]", "length -6"),
        ("a run beyond 64 bits", ranks([(0, 6)], [(6, 2**63 - 1)]), "ranks[1].runs[0]",
         str(2**63 - 1)),
        ("more columns than the limit", ranks([(0, 6)], [(6, 2**62)]), str(2**62 + 6), "limit")):
    given(name, "explicit", *texts, options=partition)
whole = ranks([(0, 2), (6, 2)], [(2, 4)])
given("no pad id", "'input_ids'", "padding_token_id", "8", options=whole,
      more={"padding_token_id": None})
given("no labels", "'labels'", "loss_mask", options=whole, labels=None)
given("short labels", "'labels'", "[2, 5]", "6", options=whole, labels=zeros("I64", 2, 5))

# Documents cut head and tail, of any length.
wlb = Refusals({"document_head_tail": {}}, PACKED)
for name in ("input_ids", "labels", "position_ids", "seq_lens"):
    wlb(f"no {name}", f"'{name}'", "document_head_tail", **{name: None})
wlb("a first row that is too short", "'seq_lens_padded'", "row 0", "sum to 4", "S = 8",
    **lengths([[4], [8]], [[4], [8]]))
wlb("a negative length", "'seq_lens'", "row 0", "entry 1", "-1", **lengths([[8, -1], [8]]))
wlb("labels of other rows", "'labels'", "[3, 8]", "[2, 8", labels=zeros("I64", 3, 8))
wlb("more documents than its ranks allow", "'seq_lens'", "[1, 1025]", "1025", "4096 ranks",
    str(2**22), "fewer", cp=4096, batch={name: zeros("I64", 1, 8) for name in (
        "input_ids", "labels", "position_ids")} | {"seq_lens": zeros("I16", 1, 1025)})

# A model in the place of a layout: what it resolved to is named too.
model = Refusals({"model": {}}, PACKED)
model("D18, a packed batch that no layout of its model takes", "resolved to layout round_robin",
      "'qkv_format = thd'", "cannot keep documents apart", qkv_format="thd")
model("a hook that refuses", "the hook of model glm_moe_dsa", "tilelang", code=UNIMPLEMENTED,
      options={"family": "GLM_MOE_DSA"})
qwen = Refusals({"model": {"family": "QWEN3_5"}}, BASE | {"position_ids": zeros("I64", 3, 2, 6)})
qwen("no positions, which the model makes", "resolved to layout round_robin", "'position_ids'",
     "[3, B, S]", code=UNIMPLEMENTED, position_ids=None)
for grid in (zeros("I64"), zeros("I64", 2), zeros("I64", 3, 1, 2)):
    qwen(f"a grid of {grid.array.ndim} axes", "'image_grid_hws'", "[n, 2]", image_grid_hws=grid)
