// A curve for each placement of the norm, from the first layer to the last, that grows as layers are added. The
// faint trail is the last layer of every shallower stack. Under it the same as a table. A curve may leave the
// picture at the top; then its name stays there, with an arrow.

drawings.depth = (stage, still, kit) => {
  const NAMES = 16 // pixels between two names at the curves' ends
  const chart = kit.chart(stage, {
    height: 372,
    x: kit.linear(...still.layers),
    y: kit.log(...still.span),
    xTicks: still.layerTicks,
    yTicks: still.valueTicks,
    xTitle: still.words.x,
    yTitle: still.words.y,
    left: 40,
    right: 84,
  })
  const { left, right, top, bottom } = chart.box
  const inside = svg("rect", { x: left, y: top, width: right - left, height: bottom - top })
  chart.picture.append(svg("clipPath", { id: "depth-window" }, inside))
  const lines = chart.picture.appendChild(svg("g", { "clip-path": "url(#depth-window)" }))
  const clipped = { ...chart, picture: lines }
  const shown = still.curves.filter((curve) => curve.shown)
  const trails = shown.map(({ role }) => kit.line(clipped, { role: `trail ${role}` }))
  const curves = shown.map(({ role, name }) => {
    const line = kit.line(clipped, { role })
    const end = chart.picture.appendChild(svg("circle", { class: `end ${role}`, r: 4.5 }))
    const label = chart.picture.appendChild(svg("text", { class: `label ${role}` }, name))
    return { line, end, label }
  })
  tabulate(stage, still, kit)

  return (frame, i) => {
    const values = frame.filter((_, c) => still.curves[c].shown)
    const ends = values.map((curve) => [chart.x(curve.length), chart.y(curve.at(-1))])
    curves.forEach(({ line, end }, c) => {
      trails[c].set(shown[c].trail.slice(0, i + 1))
      line.set(values[c].map((value, layer) => [layer + 1, value]))
      end.setAttribute("cx", place(ends[c][0]))
      end.setAttribute("cy", place(ends[c][1]))
      end.classList.toggle("beyond", ends[c][1] < top)
    })
    let lowest = -Infinity // names keep clear of each other, from the top down
    for (const c of ends.map((_, c) => c).sort((a, b) => ends[a][1] - ends[b][1])) {
      lowest = Math.max(ends[c][1] + 4, top + 12, lowest + NAMES)
      const name = shown[c].name + (ends[c][1] < top ? " ↑" : "")
      if (curves[c].label.textContent !== name) curves[c].label.textContent = name
      curves[c].label.setAttribute("x", place(ends[c][0] + 10))
      curves[c].label.setAttribute("y", place(lowest))
    }
  }
}

function tabulate(stage, still, kit) {
  const columns = ["first", "last", "ratio"]
  const head = columns.map((column) => kit.element("th", { scope: "col" }, still.words[column]))
  const body = still.curves.map(({ role, name, shown }) => {
    const swatch = svg("svg", { width: 30, height: 10 }, svg("path", { class: `line ${role}`, d: "M0 5H30" }))
    const cells = columns.map((column) =>
      kit.element("td", {}, shown ? kit.readout(`${role}.${column}`) : still.words.hidden),
    )
    return kit.element("tr", { class: role }, kit.element("th", { scope: "row" }, swatch, name), ...cells)
  })
  const table = kit.element("table", {}, kit.element("thead", {}, kit.element("tr", {}, kit.element("td"), ...head)))
  table.append(kit.element("tbody", {}, ...body))
  stage.append(table, kit.element("p", { class: "caption" }, still.words.trail))
}
