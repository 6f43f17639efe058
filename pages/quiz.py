"""The quiz: every answer is marked at once, explained, and leads to where it can be tried."""

import streamlit as st

from viz.quiz import QUESTIONS, answers, ask_wrong_ones_again, rights, score, take_answer, widget_key
from viz.shell import open_page

page = open_page("quiz")
page.prose("quiz/question", n=len(QUESTIONS))

for place, question in enumerate(QUESTIONS, start=1):
    given, values, right = answers().get(question.key), question.values, rights()[question.key]
    texts = {o.code: page.t(f"quiz.{question.key}.{o.code}.text", **values) for o in question.options}
    with st.container(key=f"quiz-{question.key}"):
        st.subheader(page.t("quiz.number", n=place, total=len(QUESTIONS)), anchor=False)
        st.radio(
            page.t(f"quiz.{question.key}.ask", **values),
            list(texts),
            format_func=texts.__getitem__,
            index=None if given is None else list(texts).index(given),
            key=widget_key(question),
            disabled=given is not None,
            on_change=take_answer,
            args=(question,),
        )
        if given is None:
            continue
        others = [option for option in question.options if option.code != given]
        for option in question.options:
            if option.code == given:
                verdict = page.t("quiz.right" if given == right else "quiz.wrong")
                page.say(
                    "quiz.marked",
                    verdict=f":{'green' if given == right else 'yellow'}[**{verdict}**]",
                    why=page.t(f"quiz.{question.key}.{given}.why", **values),
                    page=page.t(f"common.page.{option.page}"),
                    address=option.address,
                )
        with st.expander(page.t("quiz.others")):
            for option in others:
                page.say(
                    "quiz.other",
                    verdict=page.t("quiz.right_one" if option.code == right else "quiz.wrong_one"),
                    text=texts[option.code],
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
