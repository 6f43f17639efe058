"""Imports point one way, and what a lesson page needs is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {  # package: the project's own packages that it may import
    "model_probe": {"model_probe"},
    "viz": {"viz", "model_probe"},
    "pages": {"viz", "model_probe"},
}
HEAVY = {"torch", "transformers", "gguf", "accelerate"}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    """The first part of every module that the file imports (not for type checkers alone)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for guard in ast.walk(tree)
        if isinstance(guard, ast.If) and isinstance(guard.test, ast.Name) and guard.test.id == "TYPE_CHECKING"
        for node in ast.walk(guard)
    }
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    names: set[str] = set()
    for node in nodes:
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_point_one_way(package):
    assert modules(package)
    for path in modules(package):
        own = imports(path) & {"model_probe", "viz", "pages", "app"}
        assert own <= ALLOWED[package], path


def test_the_probe_knows_nothing_of_the_app():
    for path in modules("model_probe"):
        assert not imports(path) & {"streamlit", "plotly"}, path


def test_figures_know_neither_streamlit_nor_torch():
    for path in [*modules("viz/figures"), ROOT / "viz/text.py", ROOT / "viz/theme.py"]:
        assert not imports(path) & ({"streamlit"} | HEAVY), path


def test_no_page_and_no_part_of_viz_imports_torch_at_once():
    for path in [*modules("viz"), *modules("pages"), ROOT / "app.py"]:
        assert not imports(path, top_level_only=True) & HEAVY, path


@pytest.mark.parametrize(
    "code",
    [
        "import model_probe; model_probe.load_recording().traces['fox'].depth()",
        "import model_probe; model_probe.NormTrace; model_probe.local_checkpoints()",
        "import viz.shell, viz.measure, viz.figures",
    ],
)
def test_nothing_heavy_is_loaded_by(code):
    check = f"{code}\nimport sys\nprint(sorted({HEAVY!r} & set(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stdout.strip() == "[]"


def test_the_router_only_routes():
    assert len((ROOT / "app.py").read_text(encoding="utf-8").splitlines()) <= 60
