// Each feature's gain as a column, moving from 1 to what was learned; beside it the whole vector as an arrow,
// in the plane of the normalized vector and the output. The
// columns are left out while they would give an answer away.

// The columns, and the dashes that they move to; what paints them at a share of the way.
function gainColumns(stage, still, kit) {
  const features = stage.appendChild(kit.element("div", { class: "features" }))
  features.append(kit.element("p", { class: "caption" }, still.words.columns))
  const chart = kit.chart(features, {
    height: 232,
    x: kit.linear(0, still.gains.length),
    y: kit.linear(...still.span),
    yTicks: still.ticks,
    left: 30,
    right: 46,
  })
  const columns = kit.columns(chart, { role: "output" })
  const step = (chart.box.right - chart.box.left) / still.gains.length
  const goals = still.gains.map((gain, i) => {
    const left = chart.box.left + i * step
    return `M${place(left + 0.18 * step)} ${place(chart.y(gain))}h${place(0.64 * step)}`
  })
  chart.picture.append(svg("path", { class: "goals", d: goals.join("") }))
  kit.line(chart, { role: "normalized", points: [[0, 1], [still.gains.length, 1]] })
  const one = kit.write(chart, { x: still.gains.length, y: 1, text: `\u00a0${still.words.one}`, role: "normalized" })
  one.set(still.gains.length, 1 - 11 / Math.abs(chart.y(1) - chart.y(0)))
  return (share) => columns.set(still.gains.map((gain) => 1 + share * (gain - 1)))
}

drawings.gain = (stage, still, kit) => {
  const paintColumns = still.gains ? gainColumns(stage, still, kit) : () => {}

  const turn = stage.appendChild(kit.element("div", { class: still.gains ? "turn" : "turn alone" }))
  const named = (role) => kit.element("b", { class: role }, still.words[role])
  turn.append(kit.element("p", { class: "caption" }, `${still.words.dial} `, named("normalized"), " → ", named("output")))
  const [width, height, foot] = [200, 196, 176]
  const reach = Math.min(width - 30, foot - 14) / still.longest // pixels of the normalized vector
  const picture = turn.appendChild(svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` }))
  const arc = picture.appendChild(svg("path", { class: "arc" }))
  const arrow = (role) => {
    const shaft = picture.appendChild(svg("path", { class: `line ${role}` }))
    const head = picture.appendChild(svg("path", { class: `head-of ${role}` }))
    return (length, angle) => {
      const [x, y] = [8 + length * Math.cos(angle), foot - length * Math.sin(angle)]
      const size = Math.min(11, length)
      const side = (by) => `${place(x - size * Math.cos(angle + by))} ${place(y + size * Math.sin(angle + by))}`
      shaft.setAttribute("d", `M8 ${foot}L${place(x)} ${place(y)}`)
      head.setAttribute("d", `M${place(x)} ${place(y)}L${side(0.42)}L${side(-0.42)}Z`)
      return [x, y]
    }
  }
  const goal = arrow("goal")
  const normalized = arrow("normalized")
  const output = arrow("output")
  goal(reach * still.learned[0], still.learned[1])
  normalized(reach, 0)

  return ([share, ratio, angle]) => {
    paintColumns(share)
    output(reach * ratio, angle)
    const radius = Math.min(reach, reach * ratio) * 0.6
    const [x, y] = [8 + radius * Math.cos(angle), foot - radius * Math.sin(angle)]
    arc.setAttribute("d", `M${place(8 + radius)} ${foot}A${place(radius)} ${place(radius)} 0 0 0 ${place(x)} ${place(y)}`)
  }
}
