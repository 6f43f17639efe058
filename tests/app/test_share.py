"""A link to exactly this state, and the pages that were opened: for every page, in both languages."""

from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from streamlit.testing.v1 import AppTest

from viz.book import open_pages
from viz.text import LANGUAGES, words

ROOT = Path(__file__).resolve().parents[2]
STATES = {
    "saturation": {"l2": "512"},
    "gain": {"layer": "3"},
    "probe": {"statistic": "mean", "norm": "3.input_layernorm"},
}
SECRET = "my own words that are nobody's business"


def opened(stem: str, lang: str, **choices: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / f"{stem}.py"), default_timeout=60)
    for name, code in {"lang": lang, **choices}.items():
        app.query_params[name] = code
    app.run()
    assert not app.exception
    return app


def shared(app: AppTest) -> dict[str, str]:
    """What the link in the footer holds."""
    return dict(parse_qsl(app.code[-1].value.partition("?")[2]))


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("stem", [page.stem for page in open_pages()])
def test_every_page_has_a_link_to_its_state(stem, lang):
    choices = STATES.get(stem, {})
    assert shared(opened(stem, lang, **choices)) == {"lang": lang, **choices}


def test_a_typed_prompt_is_not_in_the_link():
    app = opened("probe", "en")
    app.text_area(key="probe.text").set_value(SECRET).run()
    assert not app.exception
    assert "business" not in app.code[-1].value
    assert shared(app)["prompt"] == "own"


def test_the_contents_tick_what_was_opened():
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.query_params["lang"] = "en"
    app.run()
    app.switch_page(str(ROOT / "pages" / "scale.py")).run()
    titles = [link.proto.label for link in app.get("page_link")] + [m.value for m in app.markdown]
    reader = words("en")
    for stem, read in (("start", True), ("formula", False)):
        assert any(t.startswith(f"{reader.t(f'common.page.{stem}')} ✓") for t in titles) == read
