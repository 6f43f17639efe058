// One bar a token, on a log scale that holds for every norm; attention sinks in their own colour.

drawings.layer = (stage, still, kit) => {
  const [low, high] = still.span
  const chart = kit.chart(stage, {
    height: 260,
    x: kit.linear(0, still.tokens),
    y: kit.log(low, high),
    xTicks: still.xTicks,
    yTicks: still.yTicks,
    xTitle: still.words.x,
    yTitle: still.words.y,
    left: 52,
  })
  const bars = kit.columns(chart, { role: still.role, base: low })
  const sinks = kit.columns(chart, { role: "sink", base: low })
  if (still.level) kit.level(chart, { y: still.level[0], label: still.level[1] })
  const name = kit.write(chart, { x: 0, y: low, text: "", role: "sink" })
  const label = chart.picture.lastElementChild

  return ([values, sinkAt]) => {
    const held = (keep) => values.map((value, i) => (value !== null && value > low && keep(i) ? value : low))
    const isSink = new Set(sinkAt)
    bars.set(held((i) => !isSink.has(i)))
    sinks.set(held((i) => isSink.has(i)))
    const first = sinkAt.find((i) => values[i] !== null)
    label.textContent = first === undefined ? "" : `★ ${still.words.sink}`
    if (first !== undefined) name.set(first + 1, Math.min(Math.max(values[first], low), high / 1.6))
  }
}
