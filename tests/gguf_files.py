"""Tiny GGUF files, written with the gguf package as llama.cpp's own converter does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tiny
import torch
from gguf import MODEL_ARCH_NAMES, GGUFWriter, LlamaFileType, TokenType, get_tensor_name_map
from torch import Tensor
from transformers import PreTrainedModel

# What a tiny model of each has to be like, so that transformers' reader, which takes some settings from
# the architecture and not from the file, builds the same one again: (llama.cpp's name, our settings)
_WRITTEN: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 128}),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 256}),
    "gemma3": ("gemma3", {"query_pre_attn_scalar": 256, "layer_types": ["sliding_attention"] * 2}),
    "qwen3_5": (
        "qwen35",
        {
            "head_dim": 32,
            "linear_num_value_heads": 2,
            "full_attention_interval": 2,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "partial_rotary_factor": 0.25,
                "mrope_section": [2, 1, 1],
                "mrope_interleaved": True,
            },
        },
    ),
}
# Those whose norms llama.cpp stores as 1 + weight; a gated norm it stores as it is.
ONE_PLUS_WEIGHT = ("gemma2", "gemma3", "qwen3_5")


def source(architecture: str) -> PreTrainedModel:
    """The model that `write_gguf` writes."""
    return tiny.model(architecture, **_WRITTEN[architecture][1])


def write_gguf(
    path: Path,
    architecture: str = "qwen3",
    *,
    without: str = "",
    claims: str = "",
    besides: Mapping[str, Tensor] | None = None,
) -> Path:
    """The tiny model of `source` as an unquantized GGUF file, its norms as llama.cpp stores them.

    `without` leaves out the tensor of that GGUF name, `claims` names another architecture in it,
    `besides` are tensors that the model does not have.
    """
    model = source(architecture)
    name, _ = _WRITTEN[architecture]
    writer = GGUFWriter(path, claims or name)
    config = model.config
    writer.add_name("tiny")
    writer.add_file_type(LlamaFileType.ALL_F32)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(getattr(config, "head_dim", config.hidden_size // config.num_attention_heads))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_freq_base(rope["rope_theta"])
    if architecture in ("gemma2", "gemma3"):
        writer.add_sliding_window(config.sliding_window)
    if architecture == "qwen3_5":
        writer.add_full_attention_interval(config.full_attention_interval)
        writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
        writer.add_ssm_state_size(config.linear_key_head_dim)
        writer.add_ssm_group_count(config.linear_num_key_heads)
        writer.add_ssm_time_step_rank(config.linear_num_value_heads)
        writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
        writer.add_rope_dimension_count(int(config.head_dim * rope["partial_rotary_factor"]))
        writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
    (_add_sentencepiece if architecture in ("gemma2", "gemma3") else _add_tokenizer)(writer)
    for tensor_name, tensor in (*_tensors(model, architecture), *(besides or {}).items()):
        if tensor_name != without:
            writer.add_tensor(tensor_name, tensor.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(model: PreTrainedModel, architecture: str) -> Iterator[tuple[str, Tensor]]:
    """What llama.cpp's converter writes: its names, and some tensors changed on the way."""
    number = next(key for key, value in MODEL_ARCH_NAMES.items() if value == _WRITTEN[architecture][0])
    names = get_tensor_name_map(number, model.config.num_hidden_layers)
    for name, tensor in model.named_parameters():
        if name.endswith(".dt_bias"):
            yield f"blk.{name.split('.')[2]}.ssm_dt.bias", tensor
        elif name.endswith(".A_log"):
            yield names.get_name(name), -torch.exp(tensor)
        else:
            stem, _, kind = name.rpartition(".")
            offset = "norm" in stem and "linear_attn" not in stem and architecture in ONE_PLUS_WEIGHT
            squeezed = tensor.squeeze(1) if stem.endswith(".conv1d") else tensor
            yield f"{names.get_name(stem)}.{kind}", squeezed + 1 if offset else squeezed


def _add_tokenizer(writer: GGUFWriter) -> None:
    core = tiny.tokenizer().backend_tokenizer
    vocabulary = sorted(core.get_vocab().items(), key=lambda item: item[1])
    special = {tiny.END_OF_TEXT, tiny.IM_START, tiny.IM_END, tiny.BOS}
    merges = [" ".join(pair) for pair in json.loads(core.to_str())["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    names = [token for token, _ in vocabulary]
    names += [f"[PAD{i}]" for i in range(len(names), tiny.VOCABULARY)]
    writer.add_token_list(names)
    writer.add_token_types([TokenType.CONTROL if token in special else TokenType.NORMAL for token in names])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(0)


def _add_sentencepiece(writer: GGUFWriter) -> None:
    """The tokenizer of Gemma's kind: letters, and bytes for what they do not spell."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = ["\u2581", ".", *"abcdefghijklmnopqrstuvwxyzTRGJK"]
    names = [*special, *bytes_, *letters]
    names += [f"<unused{i}>" for i in range(tiny.VOCABULARY - len(names))]
    kinds = [TokenType.CONTROL] * 3 + [TokenType.UNKNOWN] + [TokenType.BYTE] * 256
    writer.add_tokenizer_model("llama")
    writer.add_token_list(names)
    writer.add_token_scores([-float(i) for i in range(len(names))])
    writer.add_token_types(kinds + [TokenType.NORMAL] * (len(names) - len(kinds)))
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_unk_token_id(3)
