"""The command line: `python -m model_probe list | fetch | capture | gains | batch | record | profiles | train`.

Results go to standard output or to `--out`; what is going on goes to standard error. The exit
status is 0, or 2 with one sentence on standard error. torch is loaded only by what needs it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from itertools import product
from pathlib import Path
from typing import Any, Final

import click

from model_probe.batch import PART_ROWS, BatchResult, Measurer, Opening, follow, here, run_batch
from model_probe.batch_files import ERRORS
from model_probe.catalog import NAMED, find, local_checkpoints
from model_probe.errors import ProbeError
from model_probe.experiments import CAPITAL
from model_probe.interventions import KINDS, Intervention, parse, parse_layers
from model_probe.memory import memory_needed
from model_probe.profiles import DEPTHS, INITIALISATIONS, StackSettings, to_json
from model_probe.prompt_files import read_prompts
from model_probe.report import Report
from model_probe.runs import (
    LAYER_RANGE,
    LEARNING_RATE_RANGE,
    NORMS,
    PLACEMENTS,
    PRESETS,
    SEED_RANGE,
    STEP_RANGE,
    TEXTS,
    WARMUP_RANGE,
    WIDTHS,
    RunResult,
    RunSettings,
    save_runs,
)
from model_probe.runs import to_json as runs_json
from model_probe.spreading import DEVICE_MAPS, PLANS, processes, rank
from model_probe.storage import size_text
from model_probe.trace_files import MAX_TOKENS

FAILED: Final = 2
ENDINGS: Final = (".json", ".csv", ".npz")
RECORDED: Final = "qwen2.5-coder-0.5b"
OPTIONS: Final = {  # of `train`, that may be given more than once: what they set
    "norms": "norm",
    "placements": "placement",
    "layers": "layers",
    "widths": "width",
    "learning_rates": "learning_rate",
    "warmups": "warmup",
}
CONVERSION: Final = (
    "A GGUF file is converted once, to safetensors in the cache: half a billion parameters take about"
    " 45 seconds, 4 GB of memory and 2.5 GB of disk."
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    try:
        status = commands.main(arguments, prog_name="python -m model_probe", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        sys.exit(0)
    except ProbeError as error:
        sys.exit(_failed(str(error)))
    except click.ClickException as error:
        sys.exit(_failed(error.format_message()))
    except (click.Abort, KeyboardInterrupt):
        sys.exit(_failed("Stopped."))
    sys.exit(status if isinstance(status, int) else 0)


def _failed(message: str) -> int:
    """Say a failure as one sentence on one line; click's own messages are not always that."""
    sentence = " ".join(message.replace(". Did you mean", "; did you mean").split())
    click.echo(sentence if sentence.endswith((".", "?")) else f"{sentence}.", err=True)
    return FAILED


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def commands() -> None:
    """Measure what RMSNorm does inside a language model."""


def _out(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a path that the result could not be written to, before it takes time to make it."""
    if path is None:
        return None
    if path.suffix not in ENDINGS:
        raise click.BadParameter(f"{path} ends in neither .json, .csv nor .npz.")
    if not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}.")
    return path


_checkpoint_option = click.option(
    "--checkpoint", default="auto", show_default=True, metavar="NAME|DIR|FILE.gguf|HUB-ID",
    help="A known name, a folder of safetensors, a GGUF file, or an id of the Hugging Face hub:"
    " owner/name, owner/name@revision, owner/name/file.gguf.",
)  # fmt: skip
_device_option = click.option(
    "--device", type=click.Choice(("auto", "cpu", "cuda", "mps")), default="auto", show_default=True,
    help="auto: CUDA, then MPS, then the CPU.",
)  # fmt: skip
_dtype_option = click.option(
    "--dtype", type=click.Choice(("auto", "float32", "bfloat16", "float16")), default="auto",
    show_default=True, help="auto: float32 on a CPU, elsewhere the checkpoint's own.",
)  # fmt: skip
_out_option = click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), callback=_out,
    metavar="FILE.json|.csv|.npz", help="Without it, JSON goes to standard output.",
)  # fmt: skip


@commands.command("list")
def list_command() -> None:
    """Show the known checkpoints, their size on disk, the memory they need in float32, where they lie."""
    local = local_checkpoints()
    here = {checkpoint.name: checkpoint for checkpoint in local}
    rows = []
    for name, known in NAMED.items():
        found = here.pop(name, None)
        memory = f"{size_text(memory_needed(found or known))} of memory"
        if found is None:
            rows.append((name, "not here", f"{size_text(known.size)} to fetch", memory, known.repository))
        else:
            rows.append((name, "ready", size_text(found.size), memory, str(found.folder)))
    rows += [
        (
            other.source,
            "ready",
            size_text(other.size),
            f"{size_text(memory_needed(other))} of memory",
            other.name,
        )
        for other in here.values()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, (*widths, 0), strict=True)))


@commands.command("fetch")
@click.argument("name", required=False, metavar="[NAME|HUB-ID]")
def fetch_command(name: str | None) -> None:
    """Get a checkpoint and make it ready; without NAME, the first known one that a source can deliver."""
    from model_probe.fetching import fetch

    if _to_convert(name):
        click.echo(CONVERSION, err=True)
    with Report() as report:
        folder = fetch(name, progress=report)
    click.echo(folder)


def _to_convert(name: str | None) -> bool:
    """Whether a GGUF file may have to be converted for it."""
    known = [NAMED[name]] if name in NAMED else list(NAMED.values()) if name is None else []
    return str(name).endswith(".gguf") or any(one.gguf and find(one.name) is None for one in known)


@commands.command("capture")
@_checkpoint_option
@click.option("--prompt", metavar="TEXT", help="The text to run, with no chat template.")
@click.option(
    "--prompt-file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="A file to take the text from instead, byte for byte, as UTF-8.",
)  # fmt: skip
@_device_option
@_dtype_option
@_out_option
def capture_command(
    *,
    checkpoint: str,
    prompt: str | None,
    prompt_file: Path | None,
    device: str,
    dtype: str,
    out: Path | None,
) -> None:
    """Run a prompt and write what every norm did to every token."""
    text = _prompt(prompt, prompt_file)
    from model_probe import capture, open_checkpoint
    from model_probe.trace_files import to_json

    with Report() as report:
        opened = open_checkpoint(checkpoint, device=device, dtype=dtype, progress=report)
        trace = capture(opened, text, progress=report)
    if trace.tokens_cut:
        kept = len(trace.tokens)
        click.echo(f"The prompt was cut to {kept} tokens; {trace.tokens_cut} were left out.", err=True)
    _write(out, lambda: to_json(trace), trace.save)


def _prompt(prompt: str | None, file: Path | None) -> str:
    if prompt is not None and file is None:
        return prompt
    if file is None or prompt is not None:
        raise click.UsageError("Give either --prompt or --prompt-file.")
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise ProbeError("not_found", path=file) from None
    except OSError as error:
        raise ProbeError("unreadable", path=file, reason=error.strerror) from None
    except UnicodeDecodeError as error:
        raise ProbeError("bad_prompt", reason=f"byte {error.start} of {file}") from None


@commands.command("gains")
@_checkpoint_option
@_device_option
@_dtype_option
@_out_option
def gains_command(checkpoint: str, device: str, dtype: str, out: Path | None) -> None:
    """Write the measured gain of every norm."""
    from model_probe.checkpoints import open_checkpoint
    from model_probe.gains import gains_json, save_gains

    with Report() as report:
        opened = open_checkpoint(checkpoint, device=device, dtype=dtype, progress=report)
    _write(
        out,
        lambda: gains_json(opened.info, opened.sites),
        lambda path: save_gains(path, opened.info, opened.sites),
    )


@commands.command("record")
@click.option("--checkpoint", default=RECORDED, show_default=True, metavar="NAME|DIR|FILE.gguf|HUB-ID")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.npz")
def record_command(checkpoint: str, out: Path | None) -> None:
    """Measure the preset prompts and rewrite the recording that ships with the app."""
    from model_probe.checkpoints import open_checkpoint
    from model_probe.recording import SHIPPED, record

    if out is not None and out.suffix != ".npz":
        raise click.BadParameter(f"{out} does not end in .npz.")
    with Report() as report:
        # on the CPU in float32, whatever else there is: anybody can then measure it again
        opened = open_checkpoint(checkpoint, device="cpu", dtype="float32", progress=report)
        recording = record(opened, report)
    path = out or SHIPPED
    _write(path, str, recording.save)
    click.echo(path)


@commands.command("code")
@_checkpoint_option
@_out_option
def code_command(checkpoint: str, out: Path | None) -> None:
    """Compare RMSNorms as model families write them, and break them line by line.

    The file that ships is made with `--checkpoint qwen2.5-coder-0.5b --out model_probe/data/code.npz`.
    """
    from model_probe.checkpoints import open_checkpoint
    from model_probe.code_results import to_json as to_code_json
    from model_probe.code_runs import run_code_lab

    with Report() as report:
        # on the CPU in float32, whatever else there is: anybody can then measure it again
        opened = open_checkpoint(checkpoint, device="cpu", dtype="float32", progress=report)
        results = run_code_lab(opened, report)
    _write(out, lambda: to_code_json(results), results.save)


@commands.command("profiles")
@click.option(
    "--depth", "depths", type=click.IntRange(1, 96), multiple=True, metavar="LAYERS",
    help="Of the stacks; give it once for each. Without it, those that the app shows.",
)  # fmt: skip
@click.option(
    "--initialisation", "initialisations", type=click.Choice(INITIALISATIONS), multiple=True,
    help="Of the weights; give it once for each. Without it, all.",
)  # fmt: skip
@click.option("--hidden-size", type=click.IntRange(8, 1024), default=256, show_default=True)
@click.option("--seeds", type=click.IntRange(1, 64), default=8, show_default=True, help="Averaged.")
@_out_option
def profiles_command(
    *,
    depths: tuple[int, ...],
    initialisations: tuple[str, ...],
    hidden_size: int,
    seeds: int,
    out: Path | None,
) -> None:
    """Measure gradients layer by layer in toy stacks with pre-norm, post-norm and no norm.

    The file that ships is made with `--out model_probe/data/profiles.json` and nothing else.
    """
    from model_probe.toy_stacks import measure_profiles

    settings = StackSettings(hidden_size=hidden_size, seeds=seeds)
    with Report() as report:
        measured = measure_profiles(
            settings,
            depths=sorted(set(depths)) or DEPTHS,
            initialisations=tuple(dict.fromkeys(initialisations)) or INITIALISATIONS,
            progress=report,
        )
    _write(out, lambda: to_json(measured), measured.save)


@commands.command("train")
@click.option(
    "--preset", type=click.Choice(tuple(PRESETS)),
    help="The runs of a preset of the app, and whether they show what it says.",
)  # fmt: skip
@click.option("--norm", "norms", type=click.Choice(NORMS), multiple=True)
@click.option("--placement", "placements", type=click.Choice(PLACEMENTS), multiple=True)
@click.option("--layers", type=click.IntRange(*LAYER_RANGE), multiple=True)
@click.option("--width", "widths", type=click.Choice(WIDTHS), multiple=True, help="Features of a token.")
@click.option("--learning-rate", "learning_rates", type=click.FloatRange(*LEARNING_RATE_RANGE), multiple=True)
@click.option("--warmup", "warmups", type=click.IntRange(*WARMUP_RANGE), multiple=True, help="Steps.")
@click.option("--steps", type=click.IntRange(*STEP_RANGE), default=RunSettings().steps, show_default=True)
@click.option(
    "--seed", "seeds", type=click.IntRange(*SEED_RANGE), multiple=True, default=[0], show_default=True
)
@click.option("--text", "texts", type=click.Choice(TEXTS), multiple=True, default=["en"], show_default=True)
@_out_option
def train_command(
    *,
    preset: str | None,
    steps: int,
    seeds: tuple[int, ...],
    texts: tuple[str, ...],
    out: Path | None,
    **asked: tuple[Any, ...],
) -> None:
    """Train small character decoders: one run for each combination of what is given more than once.

    The files that ship are made with --preset NAME --seed 0 --seed 1 --seed 2 --text en --text zh and
    --out model_probe/data/runs/NAME.npz.
    """
    chosen = {OPTIONS[name]: dict.fromkeys(values) for name, values in asked.items() if values}
    seeds, texts = tuple(dict.fromkeys(seeds)), tuple(dict.fromkeys(texts))
    if preset is None:
        chosen |= {"seed": dict.fromkeys(seeds), "text": dict.fromkeys(texts)}
        combinations = [dict(zip(chosen, values, strict=True)) for values in product(*chosen.values())]
        try:
            runs = [RunSettings(steps=steps, **one) for one in combinations]
        except ValueError as error:  # NaN is within click's ranges
            raise click.BadParameter(str(error)) from None
    elif chosen or steps != RunSettings().steps:
        raise click.UsageError("A preset goes with --seed, --text and --out; its runs say the rest.")
    else:
        runs = [run for text in texts for seed in seeds for run in PRESETS[preset].variant(seed, text)]
    from model_probe.training import train

    with Report() as report:
        results = train(runs, report)
    for run in results:
        click.echo(_run_line(run), err=True)
    for line in _checks(preset, results):
        click.echo(line, err=True)
    _write(out, lambda: runs_json(results), lambda path: save_runs(results, path))


def _checks(preset: str | None, results: Sequence[RunResult]) -> Iterator[str]:
    """What the preset claims, for each seed and text, and whether it came out."""
    if preset is None:
        return
    size = len(PRESETS[preset].runs)
    for begin in range(0, len(results), size):
        runs = results[begin : begin + size]
        for check in PRESETS[preset].checks:
            verdict = "holds" if check.holds(runs) else "does not hold"
            bounds = f"{check.least:g} to {check.most:g}"
            of = f"seed {runs[0].settings.seed}, {runs[0].settings.text}"
            yield f"{check.name}, {of}: {check.measure(runs):.4g} ({bounds}) {verdict}"


def _run_line(run: RunResult) -> str:
    """What became of a run, for a person: `rms pre, 6 layers, …: 2.07 nats`."""
    settings = run.settings
    ended = f"{run.final_loss:.4g} nats" if run.diverged_at is None else f"diverges at step {run.diverged_at}"
    norm = "no norm" if settings.norm == "none" else f"{settings.norm} {settings.placement}"
    rest = f"{settings.layers} layers, learning rate {settings.learning_rate:g}, seed {settings.seed}, {settings.text}"
    return f"{norm}, {rest}: {ended} ({run.seconds:.1f} s)"


def _changes(_: click.Context, __: click.Parameter, written: tuple[str, ...]) -> tuple[Intervention, ...]:
    try:
        return tuple(parse(one) for one in written)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _outcomes_out(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and not path.name.endswith((".json", ".json.gz", ".csv")):
        raise click.BadParameter(f"{path} ends in neither .json, .json.gz nor .csv.")
    return path


_change_option = click.option(
    "--change", "changes", multiple=True, callback=_changes, metavar="KIND[=FACTOR][@ROLE,…][:LAYERS]",
    help=f"What is changed, several times for several changes. Kinds: {', '.join(KINDS)}.",
)  # fmt: skip
_prompt_option = click.option(
    "--prompt", default=CAPITAL, show_default=True, metavar="TEXT", help="The text to run, with no chat template."
)  # fmt: skip
_outcomes_out_option = click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), callback=_outcomes_out,
    metavar="FILE.json|.json.gz|.csv", help="Without it, JSON goes to standard output.",
)  # fmt: skip


@commands.command("intervene")
@_checkpoint_option
@_prompt_option
@_change_option
@_device_option
@_dtype_option
@_outcomes_out_option
def intervene_command(
    *,
    checkpoint: str,
    prompt: str,
    changes: tuple[Intervention, ...],
    device: str,
    dtype: str,
    out: Path | None,
) -> None:
    """Run a prompt on a changed checkpoint, against the untouched run."""
    from model_probe.checkpoints import open_checkpoint
    from model_probe.outcome_files import save_outcomes
    from model_probe.outcome_files import to_json as to_outcomes_json
    from model_probe.sweeping import run_changes

    with Report() as report:
        opened = open_checkpoint(checkpoint, device=device, dtype=dtype, progress=report)
        outcomes = run_changes(opened, prompt, changes, report)
    _write(out, lambda: to_outcomes_json(outcomes), lambda path: save_outcomes(outcomes, path))


@commands.command("sweep")
@_checkpoint_option
@_prompt_option
@_change_option
@click.option("--amounts", metavar="K,…", help="Factors; without them, and without --layers, 0.25 to 16.")
@click.option("--layers", metavar="all|0-3,7", help="One layer at a time instead.")
@_device_option
@_dtype_option
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.json|.csv")
def sweep_command(
    *,
    checkpoint: str,
    prompt: str,
    changes: tuple[Intervention, ...],
    amounts: str | None,
    layers: str | None,
    device: str,
    dtype: str,
    out: Path | None,
) -> None:
    """Make one change by several factors, or in one layer after another."""
    if len(changes) != 1:
        raise click.UsageError("Give --change once.")
    if amounts and layers:
        raise click.UsageError("Give either --amounts or --layers.")
    if out is not None and out.suffix not in (".json", ".csv"):
        raise click.BadParameter(f"{out} ends in neither .json nor .csv.")
    from model_probe.checkpoints import open_checkpoint
    from model_probe.observing import Experiment
    from model_probe.sweeping import AMOUNTS, layers_of, points_csv, points_json, sweep

    try:
        factors = tuple(float(k) for k in amounts.split(",")) if amounts else None
        chosen = parse_layers(layers) if layers and layers != "all" else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if factors is None and layers is None:
        factors = AMOUNTS
    with Report() as report:
        opened = open_checkpoint(checkpoint, device=device, dtype=dtype, progress=report)
        experiment = Experiment(opened, prompt, progress=report)
        if layers == "all":
            chosen = layers_of(opened, changes[0])
        points = tuple(sweep(experiment, changes[0], amounts=factors, layers=chosen, progress=report))
    writers = {".json": points_json, ".csv": points_csv}
    info = experiment.recorded_info
    _write(
        out,
        lambda: points_json(info, prompt, points),
        lambda path: path.write_text(
            writers[path.suffix](info, prompt, points), encoding="utf-8", newline=""
        ),
    )


@commands.command("experiments")
@click.option("--checkpoint", default=RECORDED, show_default=True, metavar="NAME|DIR|FILE.gguf|HUB-ID")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), callback=_outcomes_out,
    metavar="FILE.json|.json.gz|.csv",
)  # fmt: skip
def experiments_command(checkpoint: str, out: Path | None) -> None:
    """Run the six guided experiments and rewrite the outcomes that ship with the app."""
    from model_probe.checkpoints import open_checkpoint
    from model_probe.experiments import SHIPPED
    from model_probe.outcome_files import save_outcomes
    from model_probe.sweeping import run_all

    with Report() as report:
        # on the CPU in float32, whatever else there is: anybody can then measure it again
        opened = open_checkpoint(checkpoint, device="cpu", dtype="float32", progress=report)
        outcomes = run_all(opened, CAPITAL, report)
    path = out or SHIPPED
    _write(path, str, lambda path: save_outcomes(outcomes, path))
    click.echo(path)


@commands.command("batch")
@click.option(
    "--prompts", "file", type=click.Path(dir_okay=False, path_type=Path), required=True,
    metavar="FILE.jsonl|.parquet", help='Objects or rows with a "prompt", and an "id" if they have one.',
)  # fmt: skip
@_checkpoint_option
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, metavar="DIR",
    help="The dataset's folder; what stands there already is not run again.",
)  # fmt: skip
@_device_option
@_dtype_option
@click.option(
    "--max-tokens", type=click.IntRange(1, MAX_TOKENS), default=Opening("").max_tokens, show_default=True,
    help="Longer prompts are cut.",
)  # fmt: skip
@click.option(
    "--part-rows", type=click.IntRange(1, 100_000_000), default=PART_ROWS, show_default=True,
    help="Rows in a file of the dataset, about; one is written every minute in any case.",
)  # fmt: skip
@click.option(
    "--device-map",
    type=click.Choice(DEVICE_MAPS),
    help="Lay the checkpoint over all devices, memory and disk.",
)
@click.option(
    "--tp-plan", type=click.Choice(PLANS), help="Under torchrun: each process holds a part of the checkpoint."
)
@click.option("--ray", "address", metavar="ADDRESS", help="Run on the Ray cluster there; auto: the one here.")
@click.option(
    "--workers", type=click.IntRange(1, 4096), help="On Ray; without it one for each GPU, else for each node."
)
def batch_command(
    *,
    file: Path,
    checkpoint: str,
    out: Path,
    device: str,
    dtype: str,
    max_tokens: int,
    part_rows: int,
    device_map: str | None,
    tp_plan: str | None,
    address: str | None,
    workers: int | None,
) -> None:
    """Run many prompts into one Parquet dataset of traces, one row a norm and token.

    A run that was stopped goes on where it was. Prompts that cannot be run are listed in DIR/_errors.jsonl.
    """
    if address is not None and tp_plan is not None:
        raise click.UsageError("Give either --ray or --tp-plan.")
    if workers is not None and address is None:
        raise click.UsageError("--workers goes with --ray.")
    if tp_plan is None and processes() > 1:
        raise click.UsageError("Under torchrun, give --tp-plan auto.")
    opening = Opening(checkpoint, device, dtype, device_map, tp_plan, max_tokens)
    if tp_plan is not None and rank() > 0:
        follow(opening)
        return
    prompts = read_prompts(file)
    with Report() as report:
        runner: AbstractContextManager[Measurer] = here(opening, report)
        if address is not None:
            from model_probe.ray_batch import RayWorkers

            runner = RayWorkers(address, opening, workers=workers, progress=report)
        with (
            _terminated_as_interrupted(),
            redirect_stdout(sys.stderr),
        ):  # where Ray tells of workers that died
            result = run_batch(prompts, out, runner, part_rows=part_rows, progress=report)
    for line in _batch_lines(result, out, max_tokens):
        click.echo(line, err=True)
    click.echo(out)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM, with which servers and schedulers end a program, ends it as Ctrl-C does: what is done is kept."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _batch_lines(result: BatchResult, out: Path, max_tokens: int) -> Iterator[str]:
    """What became of the prompts, for a person."""
    for name in result.removed:
        yield f"{name} was not whole; its prompts were measured again."
    yield f"{_prompts(result.measured)} measured, {result.before} there already."
    if result.cut:
        yield f"{_prompts(result.cut)} cut to {max_tokens} tokens."
    if result.failed:
        yield f"{_prompts(result.failed)} not measured; {out / ERRORS} says why."


def _prompts(count: int) -> str:
    return "1 prompt" if count == 1 else f"{count} prompts"


def _write(out: Path | None, to_text: Callable[[], str], save: Callable[[Path], object]) -> None:
    """To standard output as UTF-8 whatever the locale, or to a file."""
    if out is None:
        click.echo(to_text().encode("utf-8"))
        return
    try:
        save(out)
    except OSError as error:
        raise click.ClickException(f"{out} cannot be written ({error.strerror}).") from None
