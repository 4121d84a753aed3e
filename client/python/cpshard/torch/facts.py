"""The facts of a live model from which its layout follows: the option `model` (contract 3.2,
3.3)."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from . import mesh as meshes
from .layouts import JsonForm

HOOK = "prepare_model_inputs_for_cp"

# The classes that bring a hook of their own, as the reference calls them.
FAMILIES = {
    "DeepseekV4ForCausalLM": "DEEPSEEK_V4",
    "DeepseekV41ForCausalLM": "DEEPSEEK_V41",
    "Gemma4ForConditionalGeneration": "GEMMA4",
    "GlmMoeDsaForCausalLM": "GLM_MOE_DSA",
    "KimiLinear48BForCausalLM": "KIMI_LINEAR",
    "KimiK3ForCausalLM": "KIMI_K3",
    "Qwen3VLForConditionalGeneration": "QWEN3_VL",
    "Qwen3_5ForConditionalGeneration": "QWEN3_5",
    "Qwen3_5MoeForConditionalGeneration": "QWEN3_5_MOE",
    "Step3p7ForConditionalGeneration": "STEP_3_7",
    "NemotronOmniForConditionalGeneration": "NEMOTRON_OMNI",
    "MiniMaxM3SparseForConditionalGeneration": "MINIMAX_M3_VL",
    "Glm5NextForConditionalGeneration": "GLM5_NEXT",
    "MiMoV2FlashForCausalLM": "MIMO_V2",
    "MiMoV2ForCausalLM": "MIMO_V2",
    "Qwen3_8_FlashNextForConditionalGeneration": "QWEN3_8_FLASH_NEXT",
    "MuseGlimmerForConditionalGeneration": "MUSE_GLIMMER",
}
TOWERS = ("visual", "vision_model", "vision_tower", "audio_model", "audio_tower")


def facts_of(model: Any, device_mesh: Any = None, batch: Optional[Mapping[str, Any]] = None, *,
             num_chunks: int = 1, invoke_pre_embed: bool = True) -> JsonForm:
    """The fields of the option `model`, in JSON form: {"model": facts_of(model, mesh)} is how a
    loader or a server shards for this model.

    Args:
        model: None: nothing is known, and the layout is round robin or identity.
        device_mesh: of its axes `tp` is a fact; `cp` is cp_size, beside the options.
        batch: not a fact either: what is decided by it is decided anew for each.

    Raises:
        NotImplementedError: the model's hook is of no known family: what it picks, only it knows.
    """
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    facts = attention_of(model)
    facts["supports_thd"] = bool(getattr(model, "supports_thd", False))
    facts["num_chunks"] = num_chunks
    facts["invoke_pre_embed"] = invoke_pre_embed
    tp_mesh = meshes.submesh_of(device_mesh, "tp")
    if tp_mesh is not None:
        facts["tp_size"] = tp_mesh.size()
    if not has_hook(model):
        return facts
    family = family_of(model)
    if family is None and invoke_pre_embed:
        raise NotImplementedError(
            f"{type(model).__name__} has a hook {HOOK} of no family that is known here; let "
            "ContextParallelSharder call it, or name the layout in the options")
    return facts if family is None else facts | {"family": family} | _family_facts(model, family)


def has_hook(model: Any) -> bool:
    return model is not None and hasattr(model, HOOK)


def family_of(model: Any) -> Optional[str]:
    """By the name of the class or of a class that it derives from; None: not known."""
    names = (FAMILIES.get(base.__name__) for base in type(model).__mro__)
    return next((name for name in names if name is not None), None)


def attention_of(model: Any) -> JsonForm:
    """What is read of any model: which attention, and whether it sees or hears."""
    facts: JsonForm = {}
    backend = getattr(getattr(model, "backend", None), "attn", None)
    implementation = _implementation(getattr(model, "config", None))
    if backend is not None:
        facts["backend_attn"] = str(backend)
    if implementation is not None:
        facts["attn_implementation"] = str(implementation)
    facts["te_attention_injected"] = bool(getattr(model, "_te_attention_injected", False))
    facts["has_vision_or_audio_tower"] = _has_tower(model)
    return facts


def _implementation(config: Any) -> Optional[str]:
    for part in (config, getattr(config, "text_config", None)):
        for name in ("_attn_implementation", "_attn_implementation_internal"):
            if getattr(part, name, None) is not None:
                return str(getattr(part, name))
    return None


def _has_tower(model: Any) -> bool:
    config = getattr(model, "config", None)
    configured = any(getattr(config, name, None) is not None
                     for name in ("vision_config", "audio_config"))
    return configured or any(getattr(model, name, None) is not None for name in TOWERS)


def _family_facts(model: Any, family: str) -> JsonForm:
    """What the hooks of single families read, under the names of the option."""
    config: Any = getattr(model, "config", None)
    text: Any = getattr(config, "text_config", None)
    found: JsonForm = {}
    if family in ("DEEPSEEK_V4", "DEEPSEEK_V41"):
        dispatcher = getattr(getattr(model, "backend", None), "dispatcher", None)
        found["dispatcher_hybridep"] = dispatcher == "hybridep"
        ratios = getattr(config, "compress_ratios", None)
        if family == "DEEPSEEK_V41" and text is not None:
            ratios = text.compress_ratios[:text.num_hidden_layers]
        found["compress_ratios"] = [int(ratio) for ratio in ratios or ()]
    elif family == "MIMO_V2":
        found["image_token_id"] = getattr(config, "image_token_id", None)
        found["video_token_id"] = getattr(config, "video_token_id", None)
    elif family == "NEMOTRON_OMNI":
        found["image_token_id"] = model.img_context_token_id
        found["sound_token_id"] = model.sound_context_token_id
    elif family == "QWEN3_8_FLASH_NEXT":
        found["indexer_compress_ratio"] = text.indexer_compress_ratio
    elif family == "MUSE_GLIMMER":
        found["sliding_window"] = getattr(config, "sliding_window", None)
    return {name: value for name, value in found.items() if value is not None}
