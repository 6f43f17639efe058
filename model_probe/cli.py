"""The command line: `python -m model_probe list | fetch | capture | gains | record | profiles`.

Results go to standard output or to `--out`; what is going on goes to standard error. The exit
status is 0, or 2 with one sentence on standard error. torch is loaded only by what needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from model_probe.catalog import NAMED, NamedCheckpoint, find, local_checkpoints
from model_probe.errors import ProbeError
from model_probe.profiles import DEPTHS, INITIALISATIONS, StackSettings, to_json
from model_probe.report import Report
from model_probe.storage import size_text

FAILED: Final = 2
ENDINGS: Final = (".json", ".csv", ".npz")
RECORDED: Final = "qwen2.5-coder-0.5b"
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
    help="A known name, a folder of safetensors, a GGUF file or an id of the Hugging Face hub.",
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
    """Show the known checkpoints, where they lie and their size."""
    local = local_checkpoints()
    here = {checkpoint.name: checkpoint for checkpoint in local}
    rows = []
    for name, known in NAMED.items():
        found = here.pop(name, None)
        if found is None:
            rows.append((name, "not here", f"{size_text(known.size)} to fetch", known.repository))
        else:
            rows.append((name, "ready", size_text(found.size), str(found.folder)))
    rows += [(other.source, "ready", size_text(other.size), other.name) for other in here.values()]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, (*widths, 0), strict=True)))


@commands.command("fetch")
@click.argument("name", required=False)
def fetch_command(name: str | None) -> None:
    """Get a known checkpoint and make it ready; without NAME, the first that a source can deliver."""
    from model_probe.fetching import fetch

    if any(_to_convert(known) for known in NAMED.values() if name in (None, known.name)):
        click.echo(CONVERSION, err=True)
    with Report() as report:
        folder = fetch(name, progress=report)
    click.echo(folder)


def _to_convert(known: NamedCheckpoint) -> bool:
    return known.gguf is not None and find(known.name) is None


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


def _write(out: Path | None, to_text: Callable[[], str], save: Callable[[Path], None]) -> None:
    """To standard output as UTF-8 whatever the locale, or to a file."""
    if out is None:
        click.echo(to_text().encode("utf-8"))
        return
    try:
        save(out)
    except OSError as error:
        raise click.ClickException(f"{out} cannot be written ({error.strerror}).") from None
