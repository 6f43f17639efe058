// Two buttons that save a chart of the page as a picture, provenance and all.

async function save(format, data) {
  const chart = document.querySelector(`.st-key-${CSS.escape(data.chart)} .js-plotly-plot`)
  const { margin, height, annotations = [], font } = chart.layout
  const foot = 10 + 15 * data.source.split("<br>").length
  const source = {
    text: data.source,
    x: 0,
    xref: "paper",
    xanchor: "left",
    xshift: 4 - margin.l,
    y: 0,
    yref: "paper",
    yanchor: "top",
    yshift: -margin.b,
    showarrow: false,
    align: "left",
    font: { size: 11, color: chart.layout.xaxis.tickfont?.color ?? font.color },
  }
  const head = 34
  const title = {
    text: `<b>${chart.layout.meta?.title ?? ""}</b>`,
    x: 0,
    xref: "paper",
    xanchor: "left",
    xshift: 4 - margin.l,
    y: 1,
    yref: "paper",
    yanchor: "bottom",
    yshift: margin.t,
    showarrow: false,
    font: { size: 16, color: font.color },
  }
  const layout = {
    ...chart.layout,
    autosize: false,
    width: data.width,
    height: height + head + foot,
    margin: { ...margin, t: margin.t + head, b: margin.b + foot },
    annotations: [...annotations, title, source],
  }
  await window.Plotly.downloadImage(
    { data: chart.data, layout },
    { format, filename: data.name, width: data.width, height: height + head + foot, scale: 2 },
  )
}

export default function ({ data, parentElement }) {
  const status = parentElement.querySelector("[role=status]")
  for (const button of parentElement.querySelectorAll("button")) {
    button.textContent = data.labels[button.dataset.format]
    button.onclick = async () => {
      status.textContent = ""
      try {
        await save(button.dataset.format, data)
      } catch {
        status.textContent = data.failed
      }
    }
  }
}
