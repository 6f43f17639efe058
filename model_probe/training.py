"""Trains a small decoder on characters, step by step, and measures every step.

A layer is causal attention and an MLP, each on a branch of its own:

    pre     x + f(norm(x)), and a norm after the last layer
    post    norm(x + f(x))
    none    x + f(x), wherever the norm would have stood

Weights are Xavier-normal and the same for every norm and placement of a seed, without biases; gains start at 1.
What stands before the first layer (character + position) has a mean square of about 1, so that post-norm
neither shrinks nor stretches it at once. The head starts small: with norms, a run begins near the uniform loss. Adam,
no weight decay, no clipping, a constant learning rate after the warm-up: nothing that would hide what the norm
does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from time import perf_counter
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everywhere in this field

from model_probe.progress import Progress, silent
from model_probe.runs import (
    BATCH,
    CONTEXT,
    HEAD_SIZE,
    MLP_RATIO,
    RunResult,
    RunSettings,
    Step,
    corpus,
    diverged_at,
)

EPS: Final = 1e-6  # of both norms
BETAS: Final = (0.9, 0.99)  # Adam's
SAMPLE: Final = 120  # characters

_WEIGHTS, _BATCHES, _SAMPLE = range(3)  # streams of random numbers of one seed


class Block(nn.Module):
    """One layer."""

    def __init__(self, settings: RunSettings) -> None:
        super().__init__()
        width = settings.width
        self.heads = width // HEAD_SIZE
        self.post = settings.placement == "post"
        self.attention_norm, self.mlp_norm = _norm(settings), _norm(settings)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.attended = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, MLP_RATIO * width, bias=False)
        self.down = nn.Linear(MLP_RATIO * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.post:
            x = self.attention_norm(x + self.attention(x))
            return self.mlp_norm(x + self.mlp(x))
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))

    def attention(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, HEAD_SIZE).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [batch, heads, tokens, HEAD_SIZE]
        return self.attended(mixed.transpose(1, 2).reshape(batch, tokens, width))

    def mlp(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)))


class Decoder(nn.Module):
    """Characters in, a score for each next character out."""

    def __init__(self, settings: RunSettings, vocabulary: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocabulary, settings.width)
        self.positions = nn.Embedding(CONTEXT, settings.width)
        self.layers = nn.ModuleList(Block(settings) for _ in range(settings.layers))
        self.final_norm = _norm(settings) if settings.placement == "pre" else nn.Identity()
        self.head = nn.Linear(settings.width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Ids [batch, tokens] to scores [batch, tokens, vocabulary] and the residual [batch, tokens, width]."""
        residual = self.characters(ids) + self.positions.weight[: ids.shape[1]]
        for layer in self.layers:
            residual = layer(residual)
        return self.head(self.final_norm(residual)), residual


def _norm(settings: RunSettings) -> nn.Module:
    match settings.norm:
        case "rms":
            return nn.RMSNorm(settings.width, eps=EPS)
        case "layer":
            return nn.LayerNorm(settings.width, eps=EPS)
        case _:
            return nn.Identity()


def decoder(settings: RunSettings, vocabulary: int) -> Decoder:
    """The decoder of these settings before its first step, float32. NumPy's numbers: the same on every machine."""
    with torch.device("meta"):  # no numbers of torch's: they would come from, and move, everybody's generator
        model = Decoder(settings, vocabulary)
    model.to_empty(device="cpu")
    random = np.random.default_rng([settings.seed, _WEIGHTS])
    deviations = {
        "characters.weight": math.sqrt(0.5),
        "positions.weight": math.sqrt(0.5),
        "head.weight": 0.02,
    }
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                fan_out, fan_in = weight.shape
                if name.endswith("qkv.weight"):
                    fan_out //= 3  # three matrices in one
                deviation = deviations.get(name, math.sqrt(2 / (fan_in + fan_out)))
                drawn = random.standard_normal(tuple(weight.shape), dtype=np.float32)
                weight.copy_(torch.from_numpy(drawn) * deviation)
            else:
                weight.fill_(0.0 if name.endswith("bias") else 1.0)  # a norm's
    return model


def train(runs: Sequence[RunSettings], progress: Progress | None = None) -> tuple[RunResult, ...]:
    """All of these runs to their ends, one after the other."""
    progress = progress or silent
    results, steps, made = [], sum(settings.steps for settings in runs), 0
    for settings in runs:
        run = Run(settings)
        for step in run.advance():
            progress("train", (made + step.step) / steps)
        made += settings.steps
        results.append(run.result())
    return tuple(results)


class Run:
    """One training, which can be stopped after any step and taken up again.

    run = Run(RunSettings(placement="post", layers=24))
    for step in run.advance(100): print(step.step, step.loss)
    for step in run.advance(200): print(step.step, step.loss)
    run.result().sample

    It holds no thread and no file. Stopped and taken up again, it gives the losses that it would have given at
    one go.
    """

    def __init__(self, settings: RunSettings, threads: int | None = None) -> None:
        """`threads` of torch's while it trains; without it one, which is the fastest for so small matrices."""
        self.settings = settings
        self.steps: list[Step] = []
        self.seconds = 0.0
        self._threads = threads or 1
        self._corpus = corpus(settings.text)
        places = {character: place for place, character in enumerate(self._corpus.characters)}
        self._ids = torch.tensor([places[character] for character in self._corpus.text])
        self._model = decoder(settings, len(places))
        self._weights = list(self._model.parameters())
        self._adam = torch.optim.Adam(self._weights, settings.learning_rate, BETAS, fused=True)

    @property
    def step(self) -> int:
        """Steps made so far."""
        return len(self.steps)

    @property
    def diverged_at(self) -> int | None:
        """The step where the run began to diverge, or None as long as it has not."""
        return diverged_at([step.loss for step in self.steps], self._corpus.uniform_loss)

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do: all steps are made, or the loss is not finite any more."""
        return self.step >= self.settings.steps or (
            bool(self.steps) and not math.isfinite(self.steps[-1].loss)
        )

    def advance(
        self, until: int | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[Step]:
        """Trains to step `until` (or to the end), giving each step as it is made; `stopped` is asked before each."""
        last = self.settings.steps if until is None else min(until, self.settings.steps)
        while self.step < last and not self.done and not stopped():
            with _threads(self._threads):
                began = perf_counter()
                made = self._step()
                self.seconds += perf_counter() - began
            self.steps.append(made)
            yield made

    def batch(self, step: int) -> Tensor:
        """Pieces of the text, as ids [BATCH, CONTEXT + 1]: a step's own, whatever was run before it."""
        random = np.random.default_rng([self.settings.seed, _BATCHES, step])
        begins = torch.from_numpy(random.integers(len(self._ids) - CONTEXT, size=BATCH))
        return self._ids[begins[:, None] + torch.arange(CONTEXT + 1)]

    def _step(self) -> Step:
        step = self.step + 1
        for group in self._adam.param_groups:
            group["lr"] = self.settings.learning_rate * min(1.0, step / (self.settings.warmup + 1))
        pieces = self.batch(step)
        scores, residual = self._model(pieces[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), pieces[:, 1:].flatten())
        self._adam.zero_grad()
        loss.backward()
        gradients = [weight.grad for weight in self._weights if weight.grad is not None]
        gradient_norm = nn.utils.get_total_norm(gradients)
        residual_l2 = torch.linalg.vector_norm(residual.detach(), dim=-1).median()
        made = Step(step, float(loss.detach()), float(gradient_norm), float(residual_l2))
        if math.isfinite(made.loss):
            self._adam.step()
        return made

    def sample(self, n: int = SAMPLE) -> str:
        """`n` characters, each drawn from the model's own probabilities; fewer where these are not finite."""
        random = np.random.default_rng([self.settings.seed, _SAMPLE])
        ids = [self._corpus.characters.index("\n")]
        with torch.no_grad(), _threads(self._threads):
            for _ in range(n):
                scores, _residual = self._model(torch.tensor([ids[-CONTEXT:]]))
                shares = scores[0, -1].double().softmax(-1).cumsum(-1).numpy()
                if not np.isfinite(shares[-1]):
                    break
                ids.append(min(int(np.searchsorted(shares, random.random())), len(shares) - 1))
        return "".join(self._corpus.characters[place] for place in ids[1:])

    def result(self) -> RunResult:
        """The run as far as it has gone, with a sample of its text."""
        return RunResult(
            self.settings,
            tuple(self.steps),
            self.diverged_at,
            self.sample(),
            round(self.seconds, 2),
            datetime.now(UTC).isoformat(timespec="seconds"),
            str(torch.__version__),
        )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
