"""ContextParallelSharder in both modes, and what a model and a batch resolve to, beside the
executed reference in real process groups."""

import inspect
import json
import types
from typing import Any

import pytest
import reference  # before what it makes importable
import torch
from dropin_cases import Ranks, copied, packed, plain, same
from gloo_worlds import Raised
from torch.distributed.device_mesh import init_device_mesh
from torch_values import encode, encode_layout

import cpshard
import cpshard.torch as ours
from cpshard import embedded
from cpshard.torch.resolution import resolve


# --- models, as far as a sharder looks at them ---------------------------------------------------

class Model:
    """`attn` by backend.attn or, as `implementation`, by the config; `hook` makes what the model's
    hook returns, of the module that it is to build its sharder from."""

    supports_thd = False

    def __init__(self, module: Any = None, attn: Any = None, implementation: Any = None,
                 hook: Any = None, vision: bool = False, injected: bool = False,
                 supports_thd: bool = False):
        self.backend = types.SimpleNamespace(attn=attn, dispatcher="deepep")
        self.config = types.SimpleNamespace(
            _attn_implementation=implementation, vision_config={} if vision else None,
            num_attention_heads=1, num_key_value_heads=1, head_dim=8)
        self._te_attention_injected = injected
        self.supports_thd = supports_thd
        self.calls = 0
        if hook is not None:
            self.prepare_model_inputs_for_cp = self._call
            self._hook = (hook, module)

    def modules(self) -> list[Any]:
        return []

    def _call(self, batch: dict[str, Any], *, num_chunks: int) -> dict[str, Any]:
        self.calls += 1
        make, module = self._hook
        return make(module, num_chunks)


def owns_contiguous(module: Any, num_chunks: int) -> dict[str, Any]:
    sharder = module.ContextParallelSharder(
        shard_batch=module.shard_batch_contiguous,
        local_token_global_indices=module.contiguous_local_indices)
    return {"cp_sharder": sharder, "mm_token_type_ids": None, "chunks_asked": num_chunks}


def leaves_open(module: Any, num_chunks: int) -> dict[str, Any]:
    return {"_global_mask": torch.ones(2, 24, dtype=torch.bool)}


# The cases of contract 3.2: ranks, a THD batch, the model, arguments of the sharder.
CASES = {
    "Y1": (None, False, {}, {}),
    "Y2": (1, False, {}, {}),
    "Y3": (2, False, {}, {}),
    "Y5": (2, False, {"hook": owns_contiguous}, {}),
    "Y6": (2, False, {"hook": owns_contiguous}, {"invoke_pre_embed": False}),
    "Y7": (1, False, {"hook": owns_contiguous}, {}),
    "Y8": (1, True, {"hook": owns_contiguous, "supports_thd": True}, {}),
    "Y10": (1, True, {"hook": owns_contiguous, "attn": "sdpa"}, {}),
    "Y11": (1, True, {"attn": "te"}, {}),
    "Y12": (None, True, {"attn": "te"}, {}),
    "Y13": (2, True, {"attn": "te"}, {}),
    "Y14": (2, True, {"injected": True}, {}),
    "Y15": (2, False, {"attn": "te"}, {}),
    "Y19": (1, False, {"attn": "magi"}, {}),
    "Y20": (None, False, {"attn": "magi"}, {}),
    "Y21": (2, False, {"hook": owns_contiguous, "attn": "magi", "vision": True}, {}),
    "Y22": (2, False, {"attn": "magi", "vision": True}, {}),
    "Y23": (2, True, {"hook": leaves_open, "attn": "te"}, {}),
    "Y24": (2, False, {"hook": leaves_open, "attn": "sdpa"}, {}),
    "Y25": (2, True, {"attn": "te"}, {"extra_seq_buffers": {"labels": 1}}),
    "Y26": (2, True, {"hook": owns_contiguous, "attn": "te"}, {"extra_seq_buffers": {"labels": 1}}),
    "config te": (2, True, {"implementation": "te"}, {}),
    "chunks of te": (2, True, {"attn": "te"}, {"num_chunks": 2}),
    "chunks of te on one rank": (1, True, {"attn": "te"}, {"num_chunks": 2}),
    "magi of the config": (2, False, {"implementation": "magi", "hook": owns_contiguous}, {}),
    "magi packed": (2, True, {"attn": "magi"}, {}),
    "magi packed on one rank": (1, True, {"attn": "magi"}, {"num_chunks": 2}),
    "vision magi of the config": (2, False, {"implementation": "magi", "vision": True}, {}),
    "extras": (2, False, {}, {"extra_seq_buffers": {"teacher_logits": 1}}),
    "extras on one rank": (1, False, {}, {"extra_seq_buffers": {"teacher_logits": 1}}),
    "loss mask": (4, False, {"hook": owns_contiguous}, {"loss_mask": True}),
}


def resolved(mesh: Any, name: str) -> tuple[Any, Any]:
    """What the sharder of the reference and ours make of one batch, or raise."""
    return tuple(outcome(mesh, name, module) for module in (reference.sharder, ours))


def outcome(mesh: Any, name: str, module: Any) -> Any:
    _, is_thd, model, arguments = CASES[name]
    batch = copied(packed() if is_thd else plain(24))
    if "magi of the config" in name:
        batch = {key: value[:1] for key, value in batch.items()}
    batch |= {"note": "kept", "pixel_values": torch.ones(3), "nothing": None}
    if "teacher_logits" in arguments.get("extra_seq_buffers", ()):
        batch["teacher_logits"] = torch.arange(96.0).reshape(2, 24, 2)
    if arguments.get("loss_mask"):
        arguments = {"loss_mask": torch.ones(2, 24)}
    live = Model(module, **model)
    try:
        sharder = module.ContextParallelSharder(live, mesh, batch, padding_token_id=9, **arguments)
        context, outputs = sharder.shard(batch)
        with context():
            made = {key: encode(value) for key, value in outputs.items() if value is not None}
    except Exception as error:
        return Raised(error), live.calls
    return made, encode_layout(sharder.shard_layout), live.calls


@pytest.mark.parametrize("name", CASES)
def test_a_model_and_a_batch_resolve_to_what_they_do_in_the_reference(worlds, name):
    for theirs, made in worlds.run(CASES[name][0], resolved, name):
        if isinstance(theirs[0], Raised):
            assert isinstance(made[0], Raised) and theirs[0].kinds[0] in made[0].kinds, made[0]
            assert made[-1] == theirs[-1]
            continue
        assert not isinstance(made[0], Raised), made[0].trace
        if name == "chunks of te":  # D16 keeps what the reference drops
            assert {key: made[0].pop(key) for key in ("note", "pixel_values")} == {
                "note": {"value": "kept"}, "pixel_values": encode(torch.ones(3))}
        assert json.dumps(made, sort_keys=True) == json.dumps(theirs, sort_keys=True)


CHOSEN = {"shard_batch_identity": "identity", "shard_batch_load_balanced": "round_robin",
          "shard_batch_thd": "thd", "shard_batch_magi": "magi"}


@pytest.mark.parametrize("name", [name for name, case in CASES.items()
                                  if "hook" not in case[2] and not case[3]])
def test_the_facts_of_a_model_resolve_to_the_same_layout_elsewhere(name):
    """Where a loader or a server shards, by the option `model`."""
    size, is_thd, model, arguments = CASES[name]
    live = Model(**model)
    mesh = size and Ranks(size)
    batch = packed() if is_thd else {key: value[:1] for key, value in plain(24).items()}
    chosen = resolve(live, mesh, batch).shard_batch
    if name == "vision magi of the config":  # which the layout then refuses
        with pytest.raises(NotImplementedError, match="resolved to layout magi"):
            embedded.plan(batch, {"model": ours.facts_of(live, mesh)}, size)
        return
    plan = embedded.plan(batch, {"model": ours.facts_of(live, mesh, batch)}, size)
    assert plan.chosen == CHOSEN[getattr(chosen, "func", chosen).__name__]


# --- facts of the families -----------------------------------------------------------------------

def family(name: str, **config: Any) -> Any:
    """A model whose class is called `name`."""
    hook = {"prepare_model_inputs_for_cp": lambda self, batch, *, num_chunks: {}}
    model = type(name, (Model,), hook)(attn="sdpa")
    model.config = types.SimpleNamespace(**config)
    return model


def test_the_facts_of_a_family_are_what_its_hook_reads():
    v4 = family("DeepseekV4ForCausalLM", compress_ratios=[0, 4, 128])
    v4.backend.dispatcher = "hybridep"
    assert ours.facts_of(v4, Ranks(2)) == {
        "family": "DEEPSEEK_V4", "backend_attn": "sdpa", "te_attention_injected": False,
        "has_vision_or_audio_tower": False, "supports_thd": False, "num_chunks": 1,
        "invoke_pre_embed": True, "compress_ratios": [0, 4, 128], "dispatcher_hybridep": True}
    text = types.SimpleNamespace(compress_ratios=[0, 2, 3, 5], num_hidden_layers=3)
    facts = ours.facts_of(family("DeepseekV41ForCausalLM", text_config=text))
    assert facts["compress_ratios"] == [0, 2, 3]
    facts = ours.facts_of(family("MiMoV2ForCausalLM", image_token_id=7))
    assert facts["family"] == "MIMO_V2" and facts["image_token_id"] == 7


def test_a_compiled_model_has_the_facts_of_the_model_in_it():
    class DeepseekV4ForCausalLM(torch.nn.Module):
        config = types.SimpleNamespace(compress_ratios=[0, 4])
        supports_thd = True

        def prepare_model_inputs_for_cp(self, batch: Any, *, num_chunks: int) -> Any:
            return {}

    model = DeepseekV4ForCausalLM()
    assert ours.facts_of(torch.compile(model)) == ours.facts_of(model)
    assert ours.facts_of(model)["family"] == "DEEPSEEK_V4"


def test_a_family_s_model_without_a_text_config_has_its_config_s_facts():
    facts = ours.facts_of(family("DeepseekV41ForCausalLM", compress_ratios=[0, 2]))
    assert facts["family"] == "DEEPSEEK_V41" and facts["compress_ratios"] == [0, 2]


def test_a_subclass_is_of_its_family_and_an_unknown_hook_is_of_none():
    base = type(family("KimiK3ForCausalLM"))
    assert ours.facts_of(type("MyKimi", (base,), {})())["family"] == "KIMI_K3"
    stranger = family("Stranger")
    with pytest.raises(NotImplementedError, match="Stranger has a hook"):
        ours.facts_of(stranger)
    assert "family" not in ours.facts_of(stranger, invoke_pre_embed=False)


def v4_of_the_reference(mesh: Any) -> Any:
    """The hook's sharder of DeepSeek V4 with compress ratios 0, 4 and 16: pad_multiple 16."""
    batch = packed()
    shard = reference.parity.module("components.models.deepseek_v4.cp")
    _, outputs, layout = shard.make_dsv4_contiguous_shard_cp_batch_and_ctx(
        mesh, None, batch, pad_multiple=shard.dsv4_cp_local_seq_multiple(
            types.SimpleNamespace(compress_ratios=[0, 4, 16])))
    return {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}, \
        layout.padded_seq_len


def test_a_server_shards_by_the_facts_as_the_hook_does(worlds):
    model = family("DeepseekV4ForCausalLM", compress_ratios=[0, 4, 16])
    options = {"model": ours.facts_of(model), "padding_token_id": 0}
    plan = embedded.plan(packed(), options, 2)
    assert plan.chosen == "deepseek_v4"
    for rank, (theirs, padded) in enumerate(worlds.run(2, v4_of_the_reference)):
        shard = plan.shard(rank)
        assert shard.layout.padded_seq_len == padded
        for name, value in theirs.items():
            assert same(shard.batch[name], value), name


def test_a_record_of_a_shard_is_built_and_one_of_no_layout_is_left():
    plan = embedded.plan(plain(5), {"kimi": {"variant": "LINEAR"}, "padding_token_id": 0}, 2)
    shard = ours.assemble(plan.shard(1).batch | {"a.b": 1}, "kimi")
    context = shard["kimi_packed_context"]
    assert (context.seq_start, context.cp_size, context.doc_ids.shape) == (3, 2, (2, 6))
    assert shard["a.b"] == 1 and not any(name.startswith("kimi_packed_context.") for name in shard)


def test_a_layout_whose_attention_reads_a_context_of_its_framework_is_refused():
    with pytest.raises(NotImplementedError, match="block_diagonal"):
        ours.shard_batch_by("block_diagonal")


# --- layouts that go by the values of a batch ----------------------------------------------------

def round_trip(mesh: Any, custom: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A tensor in the caller's coordinates, this rank's slots of it, and what is gathered."""
    model = Model(attn="magi") if custom else Model(implementation="magi")
    row = {"input_ids": torch.arange(37)[None], "labels": torch.arange(37)[None]}
    batch = packed() if custom else row
    full = torch.arange(1.0, batch["input_ids"].numel() + 1).reshape(batch["input_ids"].shape)
    sharder = ours.ContextParallelSharder(model, mesh, batch)
    _, batch = sharder.shard(batch)
    local = sharder.shard_token_tensor(full, fill=-1.0)
    assert torch.equal(batch["labels"] < 0, (local < 0).reshape(batch["labels"].shape))
    return full, local, sharder.gather_token_tensor(local, seq_dim=local.dim() - 1, trim=True)


@pytest.mark.parametrize("custom", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_what_magi_s_layout_shards_it_gathers_and_pads_hold_the_fill(worlds, size, custom):
    slots = []
    for full, local, back in worlds.run(size, round_trip, custom):
        assert torch.equal(back, full)
        slots += local.flatten().tolist()
    assert sorted(slot for slot in slots if slot > 0) == full.flatten().tolist()


def synced(mesh: Any) -> list[Any]:
    """Two groups of two ranks with batches of different lengths: what both make of it."""
    wide = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
    lengths = [[5, 6], [9, 23]][wide["dp"].get_local_rank()]
    rows = {"input_ids": torch.arange(32)[None], "labels": torch.arange(32)[None],
            "seq_lens": torch.tensor([lengths])}
    made = []
    for shard in (reference.deepseek_v41.shard_cp_batch, ours.shard_cp_batch):
        _, batch, layout = shard(wide["cp"], None, copied(rows), pad_multiple=4, packed_alignment=7,
                                 sync_packed_length=True)
        made.append(({name: encode(value) for name, value in batch.items()}, encode_layout(layout)))
    return made


def test_groups_of_a_job_agree_on_the_longest_row(worlds):
    for theirs, made in worlds.run(4, synced):
        assert json.dumps(made, sort_keys=True) == json.dumps(theirs, sort_keys=True)
        assert made[1]["padded_seq_len"] == 48  # of the second group's 9 and 23 in sevens: 42


def test_a_layout_of_another_group_is_refused():
    sharder = ours.ContextParallelSharder(
        device_mesh=Ranks(2), shard_batch=ours.shard_batch_contiguous,
        local_token_global_indices=ours.contiguous_local_indices)
    sharder.shard(plain(8))
    other = ours.ContextParallelSharder(
        device_mesh=Ranks(4), shard_batch=ours.shard_batch_contiguous,
        local_token_global_indices=ours.contiguous_local_indices,
        shard_layout=sharder.shard_layout)
    with pytest.raises(ValueError, match="sharded for 2 ranks, and the mesh has 4"):
        other.gather_token_tensor(torch.ones(2, 2))


# --- names and signatures ------------------------------------------------------------------------

def public_names(module: Any) -> list[str]:
    return [name for name, value in vars(module).items() if not name.startswith("_")
            and getattr(value, "__module__", "") == module.__name__]


def signatures(value: Any) -> dict[str, Any]:
    """Of a function, or of a class and its public methods."""
    if not isinstance(value, type):
        return {"": inspect.signature(value)}
    methods = {name: inspect.signature(method) for name, method in vars(value).items()
               if not name.startswith("_") and inspect.isfunction(method)}
    return methods | {"__init__": inspect.signature(value)}


NAMES = [(module, name) for module in (reference.sharder, reference.deepseek_v41)
         for name in public_names(module)]
NAMES += [(reference.utils, "unshard_context_parallel_tensor")]


@pytest.mark.parametrize("module,name", NAMES,
                         ids=lambda value: getattr(value, "__name__", value))
def test_every_public_name_is_there_with_the_same_signature(module, name):
    """Ours may take more, by keyword."""
    made = signatures(getattr(ours, name))
    for method, theirs in signatures(getattr(module, name)).items():
        parameters = list(made[method].parameters.values())
        more = parameters[len(theirs.parameters):]
        assert [(p.name, p.kind, p.default) for p in parameters[:len(theirs.parameters)]] == [
            (p.name, p.kind, p.default) for p in theirs.parameters.values()]
        assert all(p.default is not p.empty for p in more)
        assert name == "ShardLayout" or all(p.kind == p.KEYWORD_ONLY for p in more)


def test_there_are_names_to_compare():
    assert len(public_names(reference.sharder)) == 14
    assert public_names(reference.deepseek_v41) == ["gather_sequence", "shard_cp_batch"]


# --- arguments -----------------------------------------------------------------------------------

@pytest.mark.parametrize("module", [reference.sharder, ours], ids=["reference", "cpshard"])
@pytest.mark.parametrize("arguments", [
    {}, {"local_token_global_indices": len}, {"shard_layout": object()},
    {"shard_batch": len, "batch": {}}, {"shard_batch": len, "model": object()},
    {"shard_batch": len, "num_chunks": 2}, {"shard_batch": len, "invoke_pre_embed": False},
    {"shard_batch": len, "extra_seq_buffers": {}}], ids=lambda arguments: "+".join(arguments))
def test_the_two_modes_do_not_mix(module, arguments):
    with pytest.raises(TypeError):
        module.ContextParallelSharder(**arguments)


def test_extra_streams_of_a_model_s_own_layout_are_refused():
    model = Model(ours, hook=owns_contiguous)
    with pytest.raises(ValueError, match=r"\['teacher_logits'\].*leave them out"):
        ours.ContextParallelSharder(model, Ranks(2), plain(8),
                                    extra_seq_buffers={"teacher_logits": 1})


def test_a_map_that_comes_with_the_batch_is_not_there_before_it():
    sharder = ours.ContextParallelSharder(Model(attn="te"), Ranks(2), packed())
    with pytest.raises(NotImplementedError, match="shard one before"):
        sharder.shard_token_tensor(torch.ones(48), seq_dim=0)
    sharder.shard(packed())
    assert sharder.shard_token_tensor(torch.arange(48), seq_dim=0).tolist() == [
        0, 1, 6, 7, 8, 9, 10, 11, 20, 21, 22, 23, *range(24, 30), *range(42, 48)]
    sharder.shard_layout = None
    with pytest.raises(NotImplementedError):
        sharder.shard_token_tensor(torch.ones(48), seq_dim=0)


def test_a_batch_may_hold_what_is_no_tensor():
    batch = plain(5) | {"group": object(), "nothing": None, "names": ["a"],
                        "images": [torch.ones(2)], "inner": {"a": torch.ones(1)}}
    before = dict(batch)
    for shard in (ours.shard_batch_contiguous, ours.shard_batch_load_balanced):
        _, made, _ = shard(Ranks(2), None, dict(batch))
        for name in ("group", "nothing", "names", "images", "inner"):
            assert made[name] is before[name]


def test_what_is_not_cut_is_the_very_tensor():
    batch = plain(5)
    ids = batch["input_ids"]
    for shard in (ours.shard_batch_aux_only,
                  lambda *a: ours.shard_batch_contiguous(*a, shard_primary=False)):
        _, made, _ = shard(Ranks(2), None, copied(plain(5)) | {"input_ids": ids})
        assert made["input_ids"] is ids


def test_logits_may_be_larger_than_a_batch_of_the_library_s():
    """Over 2 GiB by their shape; what is written is one of 32 parts."""
    logits = torch.zeros(1, 1, 1, dtype=torch.bfloat16).expand(1, 64, (1 << 24) + 1)
    batch = {"input_ids": torch.arange(64)[None], "labels": torch.arange(64)[None],
             "teacher_logits": logits}
    with pytest.raises(ValueError, match="limit"):
        embedded.plan(batch | {"teacher_logits": logits.to("meta")}, {
            "round_robin": {}, "extra_streams": [{"name": "teacher_logits"}]}, 32)
    _, made, _ = ours.shard_batch_load_balanced(Ranks(32, 3), None, batch,
                                                extra_seq_buffers={"teacher_logits": 1})
    assert made["teacher_logits"].shape == (1, 2, (1 << 24) + 1)
    assert made["labels"].tolist() == [[3, 60]]


# --- decisions -----------------------------------------------------------------------------------

@pytest.mark.parametrize("name,value", [
    ("seq_lens", torch.tensor([[8], [8]])), ("cu_seqlens", torch.tensor([0, 8])),
    ("_packed_seq_ids", torch.ones(2, 8)), ("qkv_format", "thd")])
def test_round_robin_refuses_documents_and_names_layouts_that_take_them(name, value):
    with pytest.raises(ValueError, match=f"{name}.*thd"):
        ours.shard_batch_load_balanced(Ranks(2), None, plain(8) | {name: value})


def test_a_mask_of_integers_with_four_axes_is_refused():
    mask = torch.ones(2, 1, 8, 8, dtype=torch.long)
    for refuse in (ours.convert_attention_mask_to_padding_mask,
                   lambda batch: ours.shard_batch_contiguous(Ranks(2), None, batch)):
        with pytest.raises(ValueError, match="attention_mask"):
            refuse(plain(8) | {"attention_mask": mask})


def test_a_loss_mask_is_given_once():
    batch = plain(8) | {"loss_mask": torch.ones(2, 8)}
    with pytest.raises(ValueError, match="loss_mask is given as an argument and in the batch"):
        ours.shard_batch_contiguous(Ranks(2), None, batch, loss_mask=torch.ones(2, 8))
    _, made, _ = ours.shard_batch_load_balanced(Ranks(2), None, batch)
    assert made["loss_mask"].shape == (2, 4)


def test_a_batch_that_is_refused_says_which_stream_and_numbers():
    with pytest.raises(cpshard.Error, match=r"'labels' \[2, 7\] has length 7") as raised:
        ours.shard_batch_contiguous(Ranks(2), None, plain(8) | {"labels": torch.ones(2, 7)})
    assert raised.value.code == "INVALID_ARGUMENT" and isinstance(raised.value, ValueError)


def test_an_attention_mask_becomes_a_padding_mask_as_in_the_reference():
    for mask in (torch.tensor([[1, 2, 0]]), torch.tensor([[0.0, float("nan"), -0.0]]),
                 torch.rand(1, 2, 3, 4) > 0.5, torch.rand(1, 2, 3, 3).round()):
        batches = [{"attention_mask": mask} for _ in range(2)]
        reference.sharder.convert_attention_mask_to_padding_mask(batches[0])
        ours.convert_attention_mask_to_padding_mask(batches[1])
        assert batches[0].keys() == batches[1].keys() == {"padding_mask"}
        assert same(batches[1]["padding_mask"], batches[0]["padding_mask"])


# --- gradients -----------------------------------------------------------------------------------

def gradients(mesh: Any, function: str, length: int) -> list[Any]:
    """The local embeddings, and the gradient of the full ones for weights with -0.0 among them."""
    made = []
    for module in (reference.sharder, ours):
        embeds = torch.arange(6.0 * length).reshape(2, length, 3).requires_grad_()
        batch = {"inputs_embeds": embeds, "labels": torch.zeros(2, length, dtype=torch.long)}
        _, batch, _ = getattr(module, function)(mesh, None, batch)
        local = batch["inputs_embeds"]
        weight = (torch.arange(local.numel()) % 4 - 1.0).reshape(local.shape)
        local.backward(torch.where(weight == 0, -0.0, weight))
        made.append((local.detach().clone(), embeds.grad))
    return made


@pytest.mark.parametrize("function", ["shard_batch_contiguous", "shard_batch_load_balanced"])
@pytest.mark.parametrize("size,length", [(2, 8), (2, 5), (4, 3), (4, 32)])
def test_gradients_go_through_a_shard_as_in_the_reference(worlds, function, size, length):
    for theirs, made in worlds.run(size, gradients, function, length):
        assert all(map(same, made, theirs))


def test_a_gradient_that_cannot_go_through_is_not_lost_in_silence():
    positions = torch.arange(16.0).reshape(2, 8).requires_grad_()
    batch = plain(8) | {"position_ids": positions, "labels": torch.ones(2, 8)}
    _, made, _ = ours.shard_batch_load_balanced(Ranks(2), None, copied(batch) | {
        "position_ids": positions})
    assert made["position_ids"].requires_grad
    mask = torch.zeros(2, 1, 8, 8, requires_grad=True)  # of which bools are made
    _, made, _ = ours.shard_batch_contiguous(Ranks(2), None, plain(8) | {"attention_mask": mask})
    assert made["padding_mask"].tolist() == [[False] * 4] * 2
    batch = {"input_ids": torch.ones(2, 7).long(), "labels": torch.ones(2, 7),
             "position_ids": positions[:, :7]}
    with pytest.raises(NotImplementedError, match="'position_ids' requires grad"):
        ours.shard_batch_contiguous(Ranks(2), None, batch)
