"""Tiny GGUF files, written with the gguf package as llama.cpp's own converter does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import tiny
from gguf import GGUFWriter, LlamaFileType, TokenType
from torch import Tensor
from transformers import PreTrainedModel

# transformers' names of a Qwen2 or Qwen3 layer's tensors → GGUF's
_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def source(architecture: str) -> PreTrainedModel:
    """The model that `write_gguf` writes.

    Heads are 128 wide in Qwen3, as in every published one: transformers does not read their width
    from a GGUF file of it.
    """
    return tiny.model(architecture, **({"head_dim": 128} if architecture == "qwen3" else {}))


def write_gguf(path: Path, architecture: str = "qwen3", *, without: str = "", claims: str = "") -> Path:
    """The tiny Qwen2 or Qwen3 of `source` as an unquantized GGUF file.

    `without` leaves out the tensor of that GGUF name, `claims` names another architecture in it.
    """
    model = source(architecture)
    writer = GGUFWriter(path, claims or architecture)
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
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    _add_tokenizer(writer)
    for name, tensor in _tensors(model):
        if name != without:
            writer.add_tensor(name, tensor.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in model.named_parameters():
        stem, _, kind = name.removeprefix("model.").rpartition(".")
        if stem.startswith("layers."):
            _, layer, inner = stem.split(".", 2)
            yield f"blk.{layer}.{_LAYER[inner]}.{kind}", tensor
        else:
            yield (
                {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}[stem] + f".{kind}",
                tensor,
            )


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
