// Six shares as bars, and beside them how entropy and the Jacobian's norm run over the whole slider.

drawings.saturation = (stage, still, kit) => {
  const bars = stage.appendChild(kit.element("div", { class: "half" }))
  bars.append(kit.element("p", { class: "caption" }, still.words.shares))
  const rows = kit.rows(bars, {
    labels: still.tokens,
    whats: still.tokens.map((token) => `share.${token}`),
    role: "residual",
  })

  const curves = stage.appendChild(kit.element("div", { class: "half" }))
  curves.append(kit.element("p", { class: "caption" }, still.words.curves))
  const chart = kit.chart(curves, {
    height: 196,
    x: kit.log(still.l2[0], still.l2.at(-1)),
    y: kit.linear(0, 1.08),
    xTicks: still.l2Ticks,
    yTicks: still.yTicks,
  })
  still.limits.forEach((from, i) => {
    if (i % 2 === 0) kit.shade(chart, { from, to: still.limits[i + 1] ?? still.l2.at(-1) })
  })
  kit.line(chart, { role: "reference", points: still.l2.map((l2, i) => [l2, still.entropy[i]]) })
  kit.line(chart, { role: "text", points: still.l2.map((l2, i) => [l2, still.jacobian[i]]) })
  kit.write(chart, { x: still.labelsAt, y: still.entropy[0] - 0.17, text: still.words.entropy, role: "reference" })
  kit.write(chart, { x: still.labelsAt, y: still.jacobian[0], text: still.words.jacobian })
  const mark = kit.mark(chart, { role: "residual" })

  return (shares, i) => {
    rows.set(shares)
    mark.set(still.l2[i], [still.entropy[i], still.jacobian[i]])
  }
}
