"""RMSNorm Lab: `streamlit run app.py`.

The router. Streamlit runs it at every rerun; it finds the page that the address names and runs its script
in `pages/`. The list of pages is `viz/book.py`, the frame around each of them `viz/shell.py`.
"""

from viz.shell import navigate

navigate().run()
