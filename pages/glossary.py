"""Every term of the lesson, what it means, and where it can be seen."""

import streamlit as st

from viz.glossary import GROUPS, english_name, explanation, group
from viz.shell import open_page

page = open_page("glossary")
page.prose("glossary/question")

for name in GROUPS:
    st.header(page.t(f"glossary.group.{name}"), anchor=False)
    for term in group(name):
        with st.container(key=f"glossary-{term.key}"):
            heading, meaning = st.columns([2, 5], gap="small")
            with heading:
                st.subheader(page.t(f"glossary.name.{term.key}"), anchor=term.key)
                if english := english_name(term.key, page.words):
                    st.caption(english)
            with meaning:
                page.say(
                    "glossary.entry",
                    meaning=explanation(term.key, page.words),
                    page=page.t(f"common.page.{term.page}"),
                    stem=term.address,
                )
    if name == "place":
        page.prose("glossary/families")

page.footer()
