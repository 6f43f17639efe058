"""Charts: data in, `plotly.graph_objects.Figure` out. The same data gives the same JSON.

A figure takes its colours from `viz.theme` and its sentences from `viz.text`, and shows a reader's text letter
for letter (`viz.figures.base.literal`). Neither Streamlit nor torch is imported here.
"""
