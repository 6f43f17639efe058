"""What a lesson page is compared with: Streamlit and one plotly chart, nothing else."""

import plotly.graph_objects as go
import streamlit as st

st.title("Bare")
st.plotly_chart(go.Figure(go.Scatter(y=[1, 2, 4, 8])), theme=None, key="bare")
