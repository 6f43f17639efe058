"""The quiz: every answer is marked at once, explained, and leads to where it can be tried."""

import streamlit as st

from viz.questions import QUESTIONS, rights
from viz.quiz import answer, answers, ask_wrong_ones_again, score
from viz.shell import open_page

page = open_page("quiz")
page.prose("quiz/question", n=len(QUESTIONS))

for place, question in enumerate(QUESTIONS, start=1):
    given, values, right = answers().get(question.key), question.values, rights()[question.key]
    with st.container(key=f"quiz-{question.key}"):
        st.caption(page.t("quiz.number", n=place, total=len(QUESTIONS)))
        st.header(page.t(f"quiz.{question.key}.ask", **values), anchor=False)
        with st.container(key=f"quiz-options-{question.key}", gap="xsmall"):
            for option in question.options:
                sign, mark = "", ""
                if given is not None and option.code in (given, right):
                    sign = "✓ " if option.code == right else "✗ "
                    mark = ".said" if option.code == given else ".right"  # the style sheet knows them
                st.button(
                    sign + page.t(f"quiz.{question.key}.{option.code}.text", **values),
                    key=f"quiz.{question.key}.{option.code}{mark}",
                    disabled=given is not None,
                    on_click=answer,
                    args=(question, option),
                )
        if given is None:
            continue
        verdict = page.t("quiz.right" if given == right else "quiz.wrong")
        page.say(
            "quiz.marked",
            verdict=f":{'green' if given == right else 'yellow'}[**{verdict}**]",
            why=page.t(f"quiz.{question.key}.{given}.why", **values),
            page=page.t(f"common.page.{question.option(given).page}"),
            address=question.option(given).address,
        )
        with st.expander(page.t("quiz.others")):
            for option in question.options:
                if option.code != given:
                    page.say(
                        "quiz.other",
                        verdict=page.t("quiz.right_one" if option.code == right else "quiz.wrong_one"),
                        text=page.t(f"quiz.{question.key}.{option.code}.text", **values),
                        why=page.t(f"quiz.{question.key}.{option.code}.why", **values),
                        page=page.t(f"common.page.{option.page}"),
                        address=option.address,
                    )

done = score()
st.header(page.t("quiz.score.heading"), anchor=False)
st.markdown(page.t("quiz.score.so_far", right=done.right, n=done.answered, total=done.total))
if done.answered > done.right:
    st.button(
        page.t("quiz.again", n=done.answered - done.right), key="quiz-again", on_click=ask_wrong_ones_again
    )
elif done.answered == done.total:
    page.prose("quiz/done")

page.footer()
