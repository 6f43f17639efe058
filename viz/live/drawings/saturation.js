// Six shares as bars, and beside them how entropy and, once it is
// unveiled, the Jacobian's norm run over the whole slider.

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
  const styles = { entropy: { role: "reference", lift: -0.17 }, jacobian: { role: "text", lift: 0 } }
  for (const [curve, heights] of Object.entries(still.curves)) {
    const { role, lift } = styles[curve]
    kit.line(chart, { role, points: still.l2.map((l2, i) => [l2, heights[i]]) })
    kit.write(chart, { x: still.labelsAt, y: heights[0] + lift, text: still.words[curve], role })
  }
  const mark = kit.mark(chart, { role: "residual" })

  return (shares, i) => {
    rows.set(shares)
    mark.set(still.l2[i], Object.values(still.curves).map((heights) => heights[i]))
  }
}
