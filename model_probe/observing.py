"""Runs a prompt on a changed checkpoint and says what came of it, against the untouched run.

    experiment = Experiment(checkpoint, "The river flows softly through the valley.")
    outcome = experiment.run(attention_logit_scale(4))
    outcome.perplexity, outcome.kl.mean()

The untouched run is made once. Logits are worked out a few positions at a time from what the LM head
reads, never for the whole prompt at once; attention weights are reduced layer by layer and dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model_probe.applying import applied, softmax_attention
from model_probe.capturing import MAX_TOKENS, now, record_sites, site_traces, token_ids
from model_probe.errors import ProbeError
from model_probe.interventions import Intervention
from model_probe.outcome import Attention, Candidate, Outcome, SiteMedians
from model_probe.passes import input_device, undisturbed
from model_probe.text_part import text_config
from model_probe.tokens import readable_tokens
from model_probe.trace import CheckpointInfo, Token

if TYPE_CHECKING:
    from model_probe.checkpoints import Checkpoint
    from model_probe.progress import Progress

TOP: Final = 10  # candidates for the next token
CONTINUED: Final = 20  # tokens of greedy continuation
MAP_TOKENS: Final = 48  # up to so many tokens a layer's attention maps are kept
_CHUNK_NUMBERS: Final = 2**23  # logits worked out at once, 32 MB in float32
_LARGEST_LOSS: Final = 700.0  # nats: exp of more is no float64
_KEPT_NUMBERS: Final = 2**25  # log-probabilities of the untouched run that are kept, 128 MB


class Experiment:
    """One prompt on one checkpoint, to be run untouched and changed.

    Raises:
        ProbeError: `empty_prompt`, `bad_prompt`, and `unknown_head` for a model whose logits do not
            follow from its last hidden state through its output embeddings.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        prompt: str,
        *,
        max_tokens: int = MAX_TOKENS,
        progress: Progress | None = None,
    ) -> None:
        ids = token_ids(checkpoint, prompt)
        self.checkpoint = checkpoint
        self.prompt = prompt
        self.ids = ids[:max_tokens]
        self.tokens: tuple[Token, ...] = readable_tokens(checkpoint.tokenizer, self.ids)
        self.tokens_cut = len(ids) - len(self.ids)
        if progress:
            progress("capture")
        with checkpoint.lock, undisturbed(checkpoint.model):
            self._hidden, medians = self._sites_pass()
            _check_head(checkpoint.model, self._hidden, self._bare())
            self._rms = tuple((site.name, site.rms) for site in medians)
            self._log_probabilities: list[Tensor] | None = None
            if len(self.ids) * _vocabulary(checkpoint.model) <= _KEPT_NUMBERS:
                self._log_probabilities = list(map(_log_softmax, _logits(checkpoint.model, self._hidden)))

    def run(
        self,
        *interventions: Intervention,
        attention: bool = True,
        maps: Sequence[int] = (),
        continued: int = 0,
        progress: Progress | None = None,
    ) -> Outcome:
        """The prompt on the checkpoint changed so; without an intervention, the untouched run itself.

        Args:
            interventions: applied together.
            attention: also read the attention weights, for which this run uses the eager implementation.
            maps: layers whose attention maps are kept, where the prompt has at most MAP_TOKENS tokens.
            continued: tokens of greedy continuation.
            progress: told of the stage `intervene`; may end the run.

        Raises:
            ProbeError: those of `applying.applied`.
        """
        model = self.checkpoint.model
        resolved = [self._resolved(intervention) for intervention in interventions]
        with self.checkpoint.lock, applied(self.checkpoint, *resolved):
            if progress:
                progress("intervene")
            with ExitStack() as stack:
                reader = stack.enter_context(_attention_weights(model, maps)) if attention else None
                hidden, medians = self._sites_pass()
            figures = self._figures(hidden)
            said = self._continue(continued, progress) if continued else ""
        return Outcome(
            interventions=tuple(interventions),
            perplexity=figures.perplexity,
            kl=figures.kl,
            top=figures.top,
            attention=None if reader is None else reader.result(),
            sites=medians,
            non_finite_logits=figures.non_finite,
            continuation=said,
        )

    def kl_and_perplexity(self, *interventions: Intervention) -> tuple[float, float, Candidate | None]:
        """Mean KL in nats, perplexity, and the likeliest next token: what a sweep reads, in one bare pass."""
        resolved = [self._resolved(intervention) for intervention in interventions]
        with self.checkpoint.lock, applied(self.checkpoint, *resolved):
            figures = self._figures(self._hidden_pass())
        return float(figures.kl.mean()), figures.perplexity, figures.top[0] if figures.top else None

    @property
    def recorded_info(self) -> CheckpointInfo:
        """The checkpoint, with the time of this run."""
        return replace(self.checkpoint.info, recorded_at=now())

    def _resolved(self, intervention: Intervention) -> Intervention:
        if intervention.kind == "fixed_rms" and intervention.amount is None:
            return replace(intervention, rms=self._rms)
        return intervention

    def _bare(self) -> Tensor:
        """Logits of the last position [vocabulary], by the model itself."""
        return self._forward(self.ids).logits[0, -1]

    def _forward(self, ids: list[int], **settings: Any) -> Any:
        with torch.inference_mode():
            return self.checkpoint.model(
                input_ids=self._input(ids), **({"use_cache": False, "logits_to_keep": 1} | settings)
            )

    def _input(self, ids: list[int]) -> Tensor:
        """[1, tokens]"""
        return torch.tensor([ids], device=input_device(self.checkpoint.model))

    def _hidden_pass(self) -> Tensor:
        """What the LM head reads, [tokens, hidden_size]; by the decoder alone, so that the head runs once."""
        decoder = self.checkpoint.model.get_decoder()
        with torch.inference_mode():
            return decoder(input_ids=self._input(self.ids), use_cache=False)[0][0]  # type: ignore[no-any-return]

    def _sites_pass(self) -> tuple[Tensor, tuple[SiteMedians, ...]]:
        with record_sites(self.checkpoint) as records:
            hidden = self._hidden_pass()
        return hidden, tuple(map(SiteMedians.of, site_traces(records, len(self.ids))))

    def _figures(self, hidden: Tensor) -> _Figures:
        model = self.checkpoint.model
        before = self._log_probabilities or map(_log_softmax, _logits(model, self._hidden))
        targets = torch.tensor(self.ids[1:], device=hidden.device)
        divergence, likelihood, non_finite, start = [], [], 0, 0
        q = torch.empty(0)
        with torch.inference_mode():
            for p, logits in zip(before, _logits(model, hidden), strict=True):
                if not torch.isfinite(logits.sum()):  # else there is nothing to count
                    non_finite += logits.numel() - int(torch.isfinite(logits).sum())
                q = _log_softmax(logits)
                divergence.append((p - q).mul_(p.exp()).sum(-1).double())
                here = targets[start : start + len(q)]
                likelihood.append(q[: len(here)].gather(1, here[:, None])[:, 0].double())
                start += len(q)
            kl = torch.cat(divergence).cpu().numpy()
            loss = -torch.cat(likelihood).mean().item() if len(targets) else math.nan
        return _Figures(
            perplexity=_perplexity(loss),
            kl=np.where(kl < 0, 0.0, kl),  # rounding: it cannot be negative
            top=self._top(q[-1]),
            non_finite=non_finite,
        )

    def _top(self, log_probabilities: Tensor) -> tuple[Candidate, ...]:
        if not torch.isfinite(log_probabilities).any():
            return ()
        best = torch.topk(torch.nan_to_num(log_probabilities.float(), nan=-torch.inf), TOP)
        ids = best.indices.tolist()
        texts = [readable_tokens(self.checkpoint.tokenizer, [i])[0].text for i in ids]
        shares = best.values.exp().tolist()
        return tuple(Candidate(*each) for each in zip(ids, texts, shares, strict=True))

    def _continue(self, count: int, progress: Progress | None) -> str:
        """Greedy continuation; it ends at an end-of-text token and where no logit is a number."""
        ends = self.checkpoint.model.generation_config.eos_token_id  # type: ignore[union-attr]
        ends = set(ends if isinstance(ends, list) else [ends])
        said: list[int] = []
        step = self._forward(self.ids, use_cache=True)
        for done in range(count):
            if progress:
                progress("intervene", done / count)
            logits = step.logits[0, -1]
            if torch.isnan(logits).any() or not torch.isfinite(logits).any():
                break
            said.append(int(logits.argmax()))
            if said[-1] in ends:
                break
            step = self._forward([said[-1]], use_cache=True, cache=step.cache)
        whole = self.checkpoint.tokenizer.decode(self.ids + said)
        return str(whole)[len(str(self.checkpoint.tokenizer.decode(self.ids))) :]


@dataclass(frozen=True, slots=True)
class _Figures:
    perplexity: float
    kl: NDArray[np.float64]  # [tokens], nats
    top: tuple[Candidate, ...]
    non_finite: int


def _vocabulary(model: nn.Module) -> int:
    return int(model.get_output_embeddings().weight.shape[0])  # type: ignore[operator]


def _perplexity(loss: float) -> float:
    return math.exp(loss) if loss < _LARGEST_LOSS else math.inf if loss > 0 else math.nan


def _logits(model: nn.Module, hidden: Tensor) -> Iterator[Tensor]:
    """[positions, hidden_size] → logits [some positions, vocabulary] float32, until all positions are through."""
    config = text_config(model)
    step = max(1, _CHUNK_NUMBERS // _vocabulary(model))
    for start in range(0, len(hidden), step):
        with torch.inference_mode():
            logits = model.get_output_embeddings()(hidden[start : start + step]).float()  # type: ignore[operator]
            if getattr(config, "logits_scaling", None):  # Granite
                logits = logits / config.logits_scaling  # type: ignore[union-attr, operator]
            if cap := getattr(config, "final_logit_softcapping", None):  # Gemma 2
                logits = torch.tanh(logits / cap) * cap
        yield logits


def _log_softmax(logits: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.log_softmax(logits, dim=-1)


def _check_head(model: nn.Module, hidden: Tensor, logits: Tensor) -> None:
    ours = next(_logits(model, hidden[-1:]))[0]
    finite = torch.isfinite(logits)
    tolerance = 1e-2 if logits.dtype != torch.float32 else 1e-4
    if not torch.allclose(ours[finite], logits.float()[finite], rtol=tolerance, atol=10 * tolerance):
        raise ProbeError("unknown_head", architecture=type(model).__name__)


@contextmanager
def _attention_weights(model: nn.Module, maps: Sequence[int]) -> Iterator[_AttentionReader]:
    """The eager implementation and a hook on every attention module; both taken back."""
    reader = _AttentionReader(set(maps))
    before = model.config._attn_implementation  # type: ignore[union-attr]
    with ExitStack() as undo:
        if before != "eager":
            undo.callback(model.set_attn_implementation, before)  # type: ignore[operator, arg-type]
            model.set_attn_implementation("eager")  # type: ignore[operator]
        for number, attention in softmax_attention(model).items():
            handle = attention.register_forward_hook(reader.hook(number, attention))
            undo.callback(handle.remove)
        yield reader


class _AttentionReader:
    """Reduces the weights of each layer to figures a head as they come, and drops them."""

    def __init__(self, maps: set[int]) -> None:
        self._maps = maps
        self._rows: dict[int, NDArray[np.float64]] = {}  # [4, heads]
        self._kept: dict[int, NDArray[np.float32]] = {}  # [heads, tokens, tokens]

    def hook(self, layer: int, attention: nn.Module) -> Callable[..., Any]:
        def read(module: nn.Module, args: Any, output: Any) -> Any:
            result, weights = output[0], output[1]
            if weights is not None:
                self._rows[layer] = head_figures(weights[0], getattr(attention, "sliding_window", None))
                if layer in self._maps and weights.shape[-1] <= MAP_TOKENS:
                    self._kept[layer] = weights[0].float().cpu().numpy()
            return (result, None, *output[2:])

        return read

    def result(self) -> Attention | None:
        """Figures of all layers that have weights; None where no layer has."""
        if not self._rows:
            return None
        layers = tuple(sorted(self._rows))
        entropy, heaviest, first, jacobian = np.stack([self._rows[layer] for layer in layers], axis=1)
        return Attention(layers, entropy, heaviest, first, jacobian, self._kept)


def head_figures(weights: Tensor, window: int | None = None) -> NDArray[np.float64]:
    """What [heads, queries, keys] of softmax weights come to: [4, heads].

    Entropy of the queries from the second on, as a share of ln(visible tokens); their heaviest share;
    what they give the first token; and the Frobenius norm of the softmax Jacobian diag(a) − a aᵀ,
    each averaged over these queries. One token has none of them: NaN.
    """
    a = weights[:, 1:].double()  # [heads, queries − 1, keys]
    if not a.shape[1]:
        return np.full((4, len(a)), np.nan)
    visible = torch.arange(2, a.shape[1] + 2, dtype=torch.float64, device=a.device)
    if window:
        visible = visible.clamp(max=window)
    entropy = -torch.special.xlogy(a, a).sum(-1) / visible.log().clamp(min=1e-12)
    squares = a.square().sum(-1)
    jacobian = (squares - 2 * a.pow(3).sum(-1) + squares.square()).clamp(min=0).sqrt()
    figures = torch.stack([entropy, a.amax(-1), a[..., 0], jacobian])  # [4, heads, queries − 1]
    return figures.mean(-1).cpu().numpy()
