"""Tiny random checkpoints of each architecture, saved to a folder as a real one is.

    folder = build("qwen3", tmp_path / "qwen3")        model, tokenizer and config, about 100 kB

Two layers, 32 wide, weights from a fixed seed, norm gains that are far from one: zero, negative
and ordinary values stand in each norm, whichever of `weight` and `1 + weight` its class means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma4ForConditionalGeneration,
    Llama4ForConditionalGeneration,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3_5ForConditionalGeneration,
    Qwen3VLForConditionalGeneration,
)

VOCABULARY = 320
END_OF_TEXT, IM_START, IM_END, BOS = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<bos>"
WITH_BOS = ("llama", "gemma2", "gemma3", "gemma3_wrapper")  # as the real ones' tokenizers do

_TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 4096,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": None,
}
_LINEAR: dict[str, Any] = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
_QWEN3_NEXT: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
_GEMMA: dict[str, Any] = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 8,
    "query_pre_attn_scalar": 8,
    "tie_word_embeddings": True,
}
_MOE: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_LOCAL_MOE: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
_MROPE: dict[str, Any] = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 1, 2]},
}
_LATENT: dict[str, Any] = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
    "moe_intermediate_size": 16, "first_k_dense_replace": 1, "head_dim": 4,
}  # fmt: skip
_GEMMA3N: dict[str, Any] = _GEMMA | {
    "intermediate_size": [48, 48], "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCABULARY,
    "laurel_rank": 4, "num_kv_shared_layers": 0, "activation_sparsity_pattern": [0.5, 0.0],
}  # fmt: skip
_GEMMA4: dict[str, Any] = _GEMMA | {
    "global_head_dim": 16, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCABULARY,
    "num_kv_shared_layers": 0,
}  # fmt: skip
_GEMMA4_MOE: dict[str, Any] = {
    "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16,
}  # fmt: skip
_LLAMA4: dict[str, Any] = _LOCAL_MOE | {
    "intermediate_size_mlp": 48, "interleave_moe_layer_step": 2, "attention_chunk_size": 16,
    "no_rope_layers": [1, 0], "rms_norm_eps": 1e-5, "use_qk_norm": True,
}  # fmt: skip
_TINY_QWEN_EYE: dict[str, Any] = {
    "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32,
    "num_position_embeddings": 16,
}  # fmt: skip
_TINY_QWEN_VL_EYE: dict[str, Any] = {
    "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32,
}  # fmt: skip
_TINY_GEMMA_EYE: dict[str, Any] = {
    "model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
}  # fmt: skip

_TINY_GEMMA4_EYE: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 16, "position_embedding_size": 16, "patch_size": 4,
}  # fmt: skip
_TINY_LLAMA_EYE: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "vision_output_dim": 32, "projector_input_dim": 32, "projector_output_dim": 32, "image_size": 28,
    "patch_size": 14,
}  # fmt: skip

# architecture: (model_type of config.json, its settings)
_SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2": ("qwen2", _TEXT),
    "qwen3": ("qwen3", _TEXT | {"tie_word_embeddings": True}),
    "qwen3_next": ("qwen3_next", _TEXT | _LINEAR | _QWEN3_NEXT),
    "qwen3_5": ("qwen3_5_text", _TEXT | _LINEAR | {"tie_word_embeddings": True}),
    "qwen3_5_wrapper": (
        "qwen3_5",
        {
            "text_config": _TEXT | _LINEAR | {"model_type": "qwen3_5_text", "tie_word_embeddings": True},
            "vision_config": _TINY_QWEN_EYE,
            "tie_word_embeddings": True,
        },
    ),
    "llama": ("llama", _TEXT | {"rms_norm_eps": 1e-5}),
    "gemma2": ("gemma2", _TEXT | _GEMMA),
    "gemma3": ("gemma3_text", _TEXT | _GEMMA),
    "gemma3_wrapper": (
        "gemma3",
        {
            "text_config": _TEXT | _GEMMA | {"model_type": "gemma3_text"},
            "vision_config": _TINY_GEMMA_EYE,
            "mm_tokens_per_image": 4,
        },
    ),
    "olmo2": ("olmo2", _TEXT | {"rms_norm_eps": 1e-5}),
    "qwen2_moe": ("qwen2_moe", _TEXT | _MOE | {"shared_expert_intermediate_size": 16}),
    "qwen3_moe": ("qwen3_moe", _TEXT | _MOE),
    "qwen2_5_vl": ("qwen2_5_vl", {"text_config": _TEXT | _MROPE, "vision_config": _TINY_QWEN_VL_EYE}),
    "qwen3_vl": ("qwen3_vl", {"text_config": _TEXT | _MROPE, "vision_config": _TINY_QWEN_EYE}),
    "mistral": ("mistral", _TEXT | {"rms_norm_eps": 1e-5, "sliding_window": 8}),
    "phi3": ("phi3", _TEXT | {"rms_norm_eps": 1e-5}),
    "glm4": ("glm4", _TEXT | {"rms_norm_eps": 1e-5}),
    "deepseek_v3": ("deepseek_v3", _TEXT | _LATENT),
    "gpt_oss": ("gpt_oss", _TEXT | _LOCAL_MOE | {"rms_norm_eps": 1e-5, "sliding_window": 8}),
    "granite": ("granite", _TEXT | {"logits_scaling": 3.0, "residual_multiplier": 0.5}),
    "smollm3": ("smollm3", _TEXT),
    "gemma": ("gemma", _TEXT | {"tie_word_embeddings": True}),
    "gemma3n": ("gemma3n_text", _TEXT | _GEMMA3N),
    "gemma4": ("gemma4_text", _TEXT | _GEMMA4),
    "gemma4_moe": ("gemma4_text", _TEXT | _GEMMA4 | _GEMMA4_MOE),
    "llama4": ("llama4_text", _TEXT | _LLAMA4),
    "gemma4_wrapper": (
        "gemma4",
        {
            "text_config": _TEXT | _GEMMA4 | {"model_type": "gemma4_text"},
            "vision_config": _TINY_GEMMA4_EYE,
            "audio_config": None,
        },
    ),
    "llama4_wrapper": (
        "llama4",
        {"text_config": _TEXT | _LLAMA4 | {"model_type": "llama4_text"}, "vision_config": _TINY_LLAMA_EYE},
    ),
    "gpt2": (
        "gpt2",
        {
            "vocab_size": VOCABULARY,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 256,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
    ),
}
ARCHITECTURES = tuple(_SETTINGS)

_WRAPPERS: dict[str, Callable[[PreTrainedConfig], PreTrainedModel]] = {
    "qwen3_5": Qwen3_5ForConditionalGeneration,
    "gemma3": Gemma3ForConditionalGeneration,
    "qwen2_5_vl": Qwen2_5_VLForConditionalGeneration,
    "qwen3_vl": Qwen3VLForConditionalGeneration,
    "gemma4": Gemma4ForConditionalGeneration,
    "llama4": Llama4ForConditionalGeneration,
}


def build(architecture: str, folder: Path, **settings: Any) -> Path:
    """Save a tiny checkpoint of one of ARCHITECTURES, in float32, and return its folder.

    `settings` change the text model's configuration (`num_hidden_layers=3`, `dtype="bfloat16"`).
    """
    save(model(architecture, **settings), folder, bos=architecture in WITH_BOS)
    if architecture == "qwen3_5_wrapper":
        # the published ones carry a multi-token-prediction head that transformers leaves alone
        add_tensors(folder, {"mtp.norm.weight": torch.ones(32), "mtp.fc.weight": torch.ones(32, 64)})
    return folder


def model(architecture: str, **settings: Any) -> PreTrainedModel:
    """The model of `build`, in memory: weights of a fixed seed, gains of every kind."""
    model_type, own = _SETTINGS[architecture]
    text = own.get("text_config", own) | settings
    config = AutoConfig.for_model(
        model_type, **(own | {"text_config": text} if "text_config" in own else text)
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20)
        if model_type in _WRAPPERS:
            built = _WRAPPERS[model_type](config)
        else:
            built = AutoModelForCausalLM.from_config(config)
        vary_gains(built)
    dtype = getattr(torch, str(settings.get("dtype", "float32")))
    # a tower may hold complex numbers, which a dtype of its own would spoil
    return (built if built.dtype == dtype else built.to(dtype)).eval()


def norm_weights(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The weights of the modules whose class is named an RMSNorm, by their names."""
    for name, child in module.named_modules():
        if "RMSNorm" in type(child).__name__:
            yield from ((f"{name}.{inner}", parameter) for inner, parameter in child.named_parameters())


def vary_gains(module: nn.Module) -> None:
    """Set every norm's weights to values about 0.8, with 0, −1, −0.4, −1.7 and 1 among them.

    So stored and effective gain each hold a zero, a negative and a one, in either convention.
    """
    with torch.no_grad():
        for _, weight in norm_weights(module):
            weight.normal_(0.8, 0.6)
            weight[:5] = torch.tensor([0.0, -1.0, -0.4, -1.7, 1.0])


def save(model: PreTrainedModel, folder: Path, *, bos: bool = False) -> None:
    """Write a model and the byte-level tokenizer into a folder, as `save_pretrained` does."""
    model.save_pretrained(folder)
    tokenizer(bos=bos).save_pretrained(folder)


def tokenizer(*, bos: bool = False) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of VOCABULARY entries at most; `bos` puts `<bos>` before each prompt."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT, IM_START, IM_END, BOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(
        ["The river flows softly through the valley.", "the fox jumps over the dog"], trainer
    )
    if bos:
        core.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", special_tokens=[(BOS, core.token_to_id(BOS))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END_OF_TEXT,
        bos_token=BOS if bos else None,
        additional_special_tokens=[IM_START, IM_END],
    )


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    """What the folder's one weights file holds, by key."""
    return load_file(folder / "model.safetensors")


def write_tensors(folder: Path, values: Mapping[str, torch.Tensor]) -> None:
    """Replace what the folder's weights file holds."""
    save_file(dict(values), folder / "model.safetensors", metadata={"format": "pt"})


def add_tensors(folder: Path, values: Mapping[str, torch.Tensor]) -> None:
    """Put more tensors into the folder's weights file."""
    write_tensors(folder, tensors(folder) | dict(values))


def rename_tensor(folder: Path, old: str, new: str) -> None:
    """Give one tensor of the folder's weights file another key."""
    write_tensors(folder, {new if key == old else key: value for key, value in tensors(folder).items()})
