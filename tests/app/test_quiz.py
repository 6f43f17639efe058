"""The quiz, taken wholly right, wholly wrong, and option by option."""

from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from streamlit.testing.v1 import AppTest

from viz.book import entry
from viz.questions import QUESTIONS, rights
from viz.text import LANGUAGES, words

ROOT = Path(__file__).resolve().parents[2]
COMPUTED = [q.key for q in QUESTIONS if not isinstance(q.answer, str)]


def start(lang: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.query_params["lang"] = lang
    return at_page(app.run(), "quiz")


def at_page(app: AppTest, stem: str) -> AppTest:
    app.switch_page(str(ROOT / "pages" / f"{stem}.py"))
    app.run()
    assert not app.exception
    return app


def answer(app: AppTest, key: str, code: str) -> AppTest:
    app.button(key=f"quiz.{key}.{code}").click().run()
    assert not app.exception
    return app


def markdown(app: AppTest) -> str:
    return "\n".join(m.value for m in app.markdown)


def test_there_are_enough_questions_of_every_kind():
    assert len(QUESTIONS) >= 15
    assert len(COMPUTED) >= 3
    assert {"lacks", "pre_norm", "size"} <= {q.key for q in QUESTIONS}
    for question in QUESTIONS:
        codes = [option.code for option in question.options]
        assert len(codes) == len(set(codes)) >= 3
        assert rights()[question.key] in codes


def test_the_right_answers_do_not_always_stand_in_the_same_place():
    places = [[o.code for o in q.options].index(rights()[q.key]) for q in QUESTIONS]
    assert len(set(places)) >= 3
    assert max(places.count(p) for p in set(places)) <= 0.6 * len(places)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_option_has_a_text_a_reason_and_a_page_that_is_there(lang):
    reader = words(lang)
    for question in QUESTIONS:
        texts = set()
        assert reader.t(f"quiz.{question.key}.ask", **question.values)
        for option in question.options:
            texts.add(reader.t(f"quiz.{question.key}.{option.code}.text", **question.values))
            assert len(reader.t(f"quiz.{question.key}.{option.code}.why", **question.values)) > 8
            assert entry(option.page).script.is_file(), option.page
        assert len(texts) == len(question.options)


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("wanted", ["right", "wrong"])
def test_taken_wholly_right_and_wholly_wrong(lang, wanted):
    app, reader = start(lang), words(lang)
    for question in QUESTIONS:
        right = rights()[question.key]
        code = right if wanted == "right" else next(o.code for o in question.options if o.code != right)
        app = answer(app, question.key, code)
    total = len(QUESTIONS)
    score = total if wanted == "right" else 0
    said = markdown(app)
    assert reader.t("quiz.score.so_far", right=score, n=total, total=total) in said
    assert said.count(reader.t("quiz.right")) >= score
    again = [b for b in app.button if b.key == "quiz-again"]
    assert len(again) == (0 if wanted == "right" else 1)
    if again:
        app = again[0].click().run()
        assert not app.exception
        assert reader.t("quiz.score.so_far", right=0, n=0, total=total) in markdown(app)
        assert not any(button.disabled or button.key.endswith(".said") for button in app.button)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.key)
def test_every_option_is_marked_explained_and_linked(question):
    reader = words("en")
    for option in question.options:
        app = answer(start("en"), question.key, option.code)
        is_right = option.code == rights()[question.key]
        marked = next(
            m.value for m in app.markdown if reader.t("quiz.right" if is_right else "quiz.wrong") in m.value
        )
        assert reader.t(f"quiz.{question.key}.{option.code}.why", **question.values) in marked
        target = urlsplit(marked.rsplit("](", 1)[1].rstrip(")"))
        assert target.path.removeprefix("./") in (option.page, "")
        assert dict(option.choices).items() <= dict(parse_qsl(target.query)).items()
        said = markdown(app)
        for other in question.options:
            assert reader.t(f"quiz.{question.key}.{other.code}.why", **question.values) in said
        mine = [b for b in app.button if b.key and b.key.startswith(f"quiz.{question.key}.")]
        assert len(mine) == len(question.options)
        assert all(button.disabled for button in mine)
        assert [b.label[:2] for b in mine if b.label[:2] in ("✓ ", "✗ ")].count("✓ ") == 1
        right = next(b for b in mine if b.label.startswith("✓ "))
        code = rights()[question.key]
        assert right.key == f"quiz.{question.key}.{code}.{'said' if is_right else 'right'}"
        assert [b.key for b in mine if b.key.endswith(".said")] == [f"quiz.{question.key}.{option.code}.said"]


def test_answers_are_kept_between_pages():
    app = start("en")
    app = answer(app, "lacks", "gain")
    app = at_page(at_page(app, "probe"), "quiz")
    assert app.button(key="quiz.lacks.gain.said").disabled
    assert words("en").t("quiz.lacks.gain.why") in markdown(app)
