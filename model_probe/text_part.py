"""The text part of a multimodal wrapper whose language model transformers gives no class of its own.

Of most wrappers (Gemma 3, Qwen3.5) the text model is a causal language model by itself and opens as
one. Of others (Qwen2.5-VL, Qwen3-VL) it only exists inside: there the wrapper itself is built, without
the models for pictures and sound, and run on token ids alone.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_MULTIMODAL_LM_MAPPING


def text_config(model: nn.Module) -> Any:
    """The configuration of the language model, a wrapper's or the model's own; None where it has none."""
    config = getattr(model, "config", None)
    return config.get_text_config(decoder=True) if isinstance(config, PreTrainedConfig) else config


def text_part(config: PreTrainedConfig) -> type[PreTrainedModel] | None:
    """The wrapper's class, made so that an instance has no tower; None where there is no such wrapper."""
    if config.is_encoder_decoder or type(config) not in MODEL_FOR_MULTIMODAL_LM_MAPPING:
        return None
    wrapper: Any = MODEL_FOR_MULTIMODAL_LM_MAPPING[type(config)]

    def build(self: PreTrainedModel, config: PreTrainedConfig, *args: Any, **kwargs: Any) -> None:
        wrapper.__init__(self, config, *args, **kwargs)
        _drop_towers(self)

    return type(wrapper.__name__, (wrapper,), {"__init__": build, "__module__": wrapper.__module__})


def _drop_towers(model: PreTrainedModel) -> None:
    """Take out every model inside that has one of the wrapper's other configurations for its own."""
    parts = (getattr(model.config, name, None) for name in model.config.sub_configs)
    others = tuple({type(part) for part in parts if part is not None} - {type(text_config(model))})
    towers = [
        name
        for name, module in model.named_modules()
        if isinstance(module, PreTrainedModel) and isinstance(module.config, others)
    ]
    for name in towers:
        parent, _, child = name.rpartition(".")
        if name and not any(name.startswith(f"{other}.") for other in towers):
            setattr(model.get_submodule(parent), child, None)
