"""Vector drawings that follow theme, language and width: HTML pages have none of their own that could do that.

    draw(pre_norm(page.words))
    draw(forward_map(page.words, num_layers=24, href=page.href))

A drawing is built in Python from the parts in `svg.py` (no Streamlit there, so tests read it as text), and has
a name and a description in words for those who do not see it. Where it has two pictures, the wide one is shown
where there is room. Colours are the roles of look.md, as classes.
"""

from viz.drawings.component import draw
from viz.drawings.svg import Drawing, Picture

__all__ = ["Drawing", "Picture", "draw"]
