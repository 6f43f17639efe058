"""A checkpoint that is larger than a device: over the devices of a machine, or over processes.

    open_checkpoint(where, device_map="auto")      accelerate lays it over what there is, the disk last
    torchrun --nproc-per-node 2 -m model_probe batch --tp-plan auto …    each process holds a part of each matrix

The second is transformers' tensor parallelism (`DistributedConfig(tp_plan="auto")`): NCCL between GPUs, gloo between
CPUs. The norms of the residual stream see it whole in each process. Norms on queries and keys see the heads
that their process holds, so a capture puts those together: `whole_sites`.

Source: https://huggingface.co/docs/transformers/perf_infer_gpu_multi
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from model_probe.errors import ProbeError
from model_probe.trace import Floats, SiteTrace, Statistics

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig

PLANS: Final = ("auto",)
DEVICE_MAPS: Final = ("auto", "balanced", "balanced_low_0", "sequential")
_SAME: Final = 1e-2  # relative: replicas of one activation differ by rounding, different heads by far more


def processes() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def rank() -> int:
    """Which of them this is, from 0."""
    return int(os.environ.get("RANK") or 0)


def load_arguments(device_map: str | Mapping[str, Any] | None, tp_plan: str | None) -> dict[str, Any]:
    """What `from_pretrained` has to be given for it.

    Raises:
        ProbeError: `not_spread` for both at once, for another plan, or for a plan without torchrun.
    """
    if device_map is not None and tp_plan is not None:
        raise ProbeError("not_spread", reason="it is laid out by a device map or by a plan, not by both")
    if device_map is not None:
        # what does not fit into memory goes there, and goes away with this process
        folder = tempfile.mkdtemp(prefix="rmsnorm-lab-offload-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return {"device_map": device_map, "offload_folder": folder}
    if tp_plan is None:
        return {}
    if tp_plan not in PLANS:
        raise ProbeError("not_spread", reason=f"there is no plan {tp_plan!r}")
    if processes() == 1:
        raise ProbeError("not_spread", reason="a plan needs several processes; start it with torchrun")
    from transformers.distributed import DistributedConfig

    return {"distributed_config": DistributedConfig(tp_plan="auto")}


def refuse_uneven(config: PreTrainedConfig) -> None:
    """Raise ProbeError `not_spread` where the processes cannot hold equally many attention heads."""
    count = processes()
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(config, name, None) or count
        if heads % count:
            reason = f"its {heads} attention heads cannot be shared evenly by {count} processes"
            raise ProbeError("not_spread", reason=reason)


def spoken(text: str | None) -> str | None:
    """What the first process says, in all of them."""
    from torch import distributed

    said = [text]
    distributed.broadcast_object_list(said, src=0)
    return said[0]


def leave() -> None:
    """Take leave of the other processes, when nothing is left to be run together."""
    from torch import distributed

    distributed.destroy_process_group()


def whole_sites(model: nn.Module, sites: tuple[SiteTrace, ...]) -> tuple[SiteTrace, ...]:
    """The sites of a pass as a process that holds the whole checkpoint sees them; all processes take part.

    Where a norm acts per head and the processes saw different heads, the figures are put together; elsewhere
    they are this process's, which are everybody's.
    """
    if (getattr(model, "tp_size", None) or 1) == 1:
        return sites
    from torch import distributed

    per_head = [site for site in sites if site.heads is not None]
    everybodys: list[list[SiteTrace]] = [[]] * distributed.get_world_size()
    distributed.all_gather_object(everybodys, per_head)
    together = {same[0].name: _put_together(same) for same in zip(*everybodys, strict=True)}
    return tuple(together.get(site.name, site) for site in sites)


def _put_together(parts: Sequence[SiteTrace]) -> SiteTrace:
    """One site's figures over the heads of all processes."""
    first = parts[0]
    if all(np.allclose(part.input.l2, first.input.l2, rtol=_SAME, atol=0, equal_nan=True) for part in parts):
        return first
    heads = np.array([part.heads for part in parts], np.float64)

    def over(statistic: str, values: Sequence[Floats]) -> Floats:
        stacked = np.stack(values).astype(np.float64)  # [processes, tokens]
        if statistic == "abs_max":
            return stacked.max(axis=0).astype(np.float32)
        if statistic == "mean":
            return np.average(stacked, axis=0, weights=heads).astype(np.float32)
        return np.sqrt(np.average(np.square(stacked), axis=0, weights=heads)).astype(np.float32)

    def side(values: Sequence[Statistics]) -> Statistics:
        return Statistics(*(over(f.name, [getattr(v, f.name) for v in values]) for f in fields(Statistics)))

    return replace(
        first,
        input=side([part.input for part in parts]),
        normalized_l2=over("l2", [part.normalized_l2 for part in parts]),
        output=side([part.output for part in parts]),
        non_finite=sum(part.non_finite for part in parts),
        heads=int(heads.sum()),
    )
