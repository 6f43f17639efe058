"""Every link into a state of a page finds that state there: quiz, glossary and prose."""

from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from streamlit.testing.v1 import AppTest

from viz.glossary import TERMS
from viz.markup import PAGE_MARK
from viz.questions import QUESTIONS
from viz.text import LANGUAGES, words

ROOT = Path(__file__).resolve().parents[2]


def targets() -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """(page, choices) of every link that names choices."""
    found = {(term.page, tuple(term.choices.items())) for term in TERMS}
    found |= {(option.page, tuple(option.choices.items())) for q in QUESTIONS for option in q.options}
    for lang in LANGUAGES:
        for texts in words(lang).templates().values():
            for text in texts:
                for _, stem, query in PAGE_MARK.findall(text):
                    if "{" not in query:
                        found.add((stem, tuple(parse_qsl(query))))
    return {(page, choices) for page, choices in found if choices}


@pytest.mark.parametrize(("page", "choices"), sorted(targets()), ids=str)
def test_the_state_that_a_link_names_exists(page, choices):
    app = AppTest.from_file(str(ROOT / "pages" / f"{page}.py"), default_timeout=60)
    app.query_params["lang"] = "en"
    for name, code in choices:
        app.query_params[name] = code
    app.run()
    assert not app.exception
    for name, code in choices:
        chosen = app.session_state[f"choice.{name}"]
        assert chosen == code or chosen.startswith(f"{code}.")


def test_there_are_such_links():
    assert {page for page, _ in targets()} >= {"probe", "gain", "saturation", "scale", "placement"}
