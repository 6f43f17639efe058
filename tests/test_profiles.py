"""Profiles of toy stacks: what ships is what autograd gives, and what an independent run gave."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from model_probe.cli import commands
from model_probe.errors import ProbeError
from model_probe.profiles import (
    DEPTHS,
    INITIALISATIONS,
    PLACEMENTS,
    SERIES,
    SHIPPED,
    Profiles,
    StackSettings,
    load_profiles,
    to_csv,
    to_json,
)
from model_probe.toy_stacks import Wiring, layer_figures, measure_profiles, problem

ROOT = Path(__file__).resolve().parent.parent
SMALL = StackSettings(hidden_size=24, batch=2, positions=5, classes=11, seeds=2)
SAME = 1e-3  # relative: float32 through 24 layers, whatever the order in which a machine adds


@pytest.fixture(scope="module")
def small() -> Profiles:
    return measure_profiles(SMALL, depths=(2, 5), initialisations=("xavier", "fixed"))


@pytest.mark.parametrize(
    ("initialisation", "depths"), [("xavier", (6, 24)), ("fan_in", (8,)), ("fixed", (8,))]
)
def test_the_shipped_file_is_what_autograd_gives(initialisation: str, depths: tuple[int, ...]) -> None:
    """A part of it measured again with all its seeds: every number of every layer."""
    shipped = load_profiles()
    again = measure_profiles(shipped.settings, depths=depths, initialisations=(initialisation,))
    assert len(again.stacks) == len(depths) * len(PLACEMENTS)
    for stack in again.stacks:
        recorded = shipped.stack(stack.initialisation, stack.placement, stack.depth)
        for name in SERIES:
            np.testing.assert_allclose(recorded.series(name), stack.series(name), rtol=SAME)


@pytest.mark.parametrize(
    ("placement", "least", "most"),
    [("pre_norm", 1.4, 2.2), ("post_norm", 0.7, 1.1), ("no_norm", 0.0, 0.1)],
)
def test_the_last_gradient_from_6_to_24_layers_agrees_with_an_independent_run(
    placement: str, least: float, most: float
) -> None:
    few, many = (load_profiles().stack("xavier", placement, depth) for depth in (6, 24))
    assert least < few.weight_gradient[-1] / many.weight_gradient[-1] < most


def test_the_shipped_file_is_whole_and_finite() -> None:
    profiles = load_profiles()
    assert profiles.settings == StackSettings()
    assert profiles.depths == DEPTHS
    assert len(profiles.stacks) == len(INITIALISATIONS) * len(PLACEMENTS) * len(DEPTHS)
    for stack in profiles.stacks:
        for name in SERIES:
            values = stack.series(name)
            assert values.shape == (stack.depth,)
            assert np.all(np.isfinite(values) & (values > 0))


def test_post_norm_hands_on_root_d_and_pre_norm_the_root_of_a_sum() -> None:
    """Each block adds 8/25 of mean square to a normed input: Xavier at 4 d, a ReLU between."""
    profiles = load_profiles()
    root = math.sqrt(profiles.settings.hidden_size)
    for depth in profiles.depths:
        np.testing.assert_allclose(profiles.stack("xavier", "post_norm", depth).activation, root, rtol=1e-4)
        grown = profiles.stack("xavier", "pre_norm", depth).activation[-1]
        assert grown == pytest.approx(root * math.sqrt(1 + 0.32 * depth), rel=0.05)


def test_autograd_against_finite_differences() -> None:
    """The gradient on the second weight of a middle layer, by nudging the loss itself."""
    settings = StackSettings(hidden_size=8, batch=2, positions=3, classes=5)
    import torch
    from torch.nn.functional import cross_entropy

    given = problem(3, 3, settings)
    weights = [(first.double(), second.double()) for first, second in given.weights("xavier")]

    def loss(second: torch.Tensor) -> float:
        x = given.inputs.double()
        for layer, (first, own) in enumerate(weights):
            normed = x / (x.square().mean(-1, keepdim=True) + settings.eps).sqrt()
            x = x + torch.relu(normed @ first.T) @ (second if layer == 1 else own).T
        x = x / (x.square().mean(-1, keepdim=True) + settings.eps).sqrt()
        return float(cross_entropy(x @ given.head.double().T, given.targets))

    middle, nudge = weights[1][1], 1e-4
    gradient = np.zeros(tuple(middle.shape))
    for place in np.ndindex(gradient.shape):
        ends = []
        for sign in (1, -1):
            nudged = middle.clone()
            nudged[place] += sign * nudge
            ends.append(loss(nudged))
        gradient[place] = (ends[0] - ends[1]) / (2 * nudge)
    measured = layer_figures(tuple(given.weights("xavier")), Wiring("pre_norm"), given)[0, 1]
    assert measured == pytest.approx(float(np.linalg.norm(gradient)), rel=1e-3)


def test_a_layer_has_the_same_weights_at_every_depth() -> None:
    shallow, deep = problem(1, 2, SMALL), problem(1, 5, SMALL)
    for (first, second), (first_again, second_again) in zip(shallow.layers, deep.layers, strict=False):
        assert first.equal(first_again)
        assert second.equal(second_again)
    assert shallow.targets.equal(deep.targets)
    assert not problem(2, 2, SMALL).inputs.equal(shallow.inputs)


def test_the_order_of_norm_and_sum_is_what_the_placement_says(small: Profiles) -> None:
    root = math.sqrt(SMALL.hidden_size)
    ends = {placement: small.stack("xavier", placement, 5).activation[-1] for placement in PLACEMENTS}
    assert ends["post_norm"] == pytest.approx(root, rel=1e-4)
    assert root < ends["pre_norm"] < ends["no_norm"]


def test_an_unknown_placement_or_initialisation_is_refused() -> None:
    given = problem(0, 1, SMALL)
    with pytest.raises(ValueError, match="sideways"):
        layer_figures(tuple(given.weights("xavier")), Wiring("sideways"), given)
    with pytest.raises(KeyError):
        tuple(given.weights("orthogonal"))
    with pytest.raises(KeyError):
        load_profiles().stack("xavier", "pre_norm", 7)
    with pytest.raises(KeyError):
        load_profiles().stacks[0].series("loss")


def test_json_out_and_in(small: Profiles, tmp_path: Path) -> None:
    small.save(tmp_path / "p.json")
    again = Profiles.load(tmp_path / "p.json")
    assert to_json(again) == to_json(small)
    assert again.provenance == small.provenance
    assert again.settings == SMALL


def test_a_number_that_is_not_finite_is_null_and_comes_back_as_nan(small: Profiles, tmp_path: Path) -> None:
    small.save(tmp_path / "p.json")
    document = json.loads((tmp_path / "p.json").read_text())
    document["stacks"][0]["activation"][0] = None
    (tmp_path / "p.json").write_text(json.dumps(document))
    broken = Profiles.load(tmp_path / "p.json")
    assert math.isnan(broken.stacks[0].activation[0])
    assert json.loads(to_json(broken)) == document


def test_csv_has_a_row_a_stack_and_layer(small: Profiles) -> None:
    rows = list(csv.DictReader(to_csv(small).splitlines()))
    assert len(rows) == sum(stack.depth for stack in small.stacks)
    last = rows[-1]
    stack = small.stacks[-1]
    assert (last["initialisation"], last["placement"]) == (stack.initialisation, stack.placement)
    assert (int(last["depth"]), int(last["layer"])) == (5, 4)
    assert float(last["weight_gradient"]) == pytest.approx(stack.weight_gradient[-1], rel=1e-5)


def test_npz_has_an_array_a_stack_and_series(small: Profiles, tmp_path: Path) -> None:
    small.save(tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz", allow_pickle=False) as file:
        header = json.loads(str(file["header"]))
        assert header["settings"]["hidden_size"] == SMALL.hidden_size
        assert set(file) == {"header"} | {f"{key}.{name}" for key in header["stacks"] for name in SERIES}
        given = small.stack("fixed", "no_norm", 5).weight_gradient
        np.testing.assert_array_equal(file["fixed.no_norm.5.weight_gradient"], given)


def test_another_ending_is_refused(small: Profiles, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.txt"):
        small.save(tmp_path / "p.txt")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda document: document.update(format="other/1"),
        lambda document: document["stacks"][0]["activation"].pop(),
        lambda document: document.pop("provenance"),
        lambda document: document["settings"].update(colour="red"),
    ],
)
def test_what_is_not_profiles_is_refused(tmp_path: Path, spoil: object) -> None:
    document = json.loads(SHIPPED.read_text())
    spoil(document)  # type: ignore[operator]
    (tmp_path / "p.json").write_text(json.dumps(document))
    with pytest.raises(ProbeError) as refused:
        Profiles.load(tmp_path / "p.json")
    assert refused.value.code == "not_profiles"


@pytest.mark.parametrize(
    ("content", "code"), [(None, "not_found"), ("[1", "not_profiles"), ("3", "not_profiles")]
)
def test_a_missing_or_broken_file_is_a_sentence(tmp_path: Path, content: str | None, code: str) -> None:
    path = tmp_path / "p.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ProbeError) as refused:
        Profiles.load(path)
    assert refused.value.code == code


def test_the_command_writes_what_was_asked_for(tmp_path: Path) -> None:
    asked = ["profiles", "--depth", "2", "--initialisation", "fixed", "--hidden-size", "16", "--seeds", "1"]
    done = CliRunner().invoke(commands, asked)
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert [stack["placement"] for stack in printed["stacks"]] == list(PLACEMENTS)
    assert printed["settings"]["seeds"] == 1
    CliRunner().invoke(commands, [*asked, "--out", str(tmp_path / "p.json")], catch_exceptions=False)
    assert json.loads((tmp_path / "p.json").read_text())["stacks"] == printed["stacks"]


@pytest.mark.parametrize("asked", [["--depth", "0"], ["--initialisation", "he"], ["--out", "p.txt"]])
def test_the_command_refuses_in_a_sentence(asked: list[str]) -> None:
    from model_probe.cli import main

    with pytest.raises(SystemExit) as left:
        main(["profiles", *asked])
    assert left.value.code == 2


def test_reading_what_ships_needs_no_torch() -> None:
    code = (
        "import sys; from model_probe.profiles import load_profiles; load_profiles(); "
        "import model_probe.cli; print('torch' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.strip() == "False"
