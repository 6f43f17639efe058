// A vector going in and the same vector coming out, in one unit of height; below, what is left of √d over the
// whole slider, under the slider's own thumb.

drawings.scale = (stage, still, kit) => {
  const SPAN = 4 // of either picture's height, up and down, in RMS of the output
  const peak = Math.max(...still.profile.map(Math.abs))

  const pair = stage.appendChild(kit.element("div", { class: "pair" }))
  const panel = (role, ...caption) => {
    const half = pair.appendChild(kit.element("div", { class: `half ${role}` }))
    half.append(kit.element("p", { class: "caption" }, ...caption))
    const chart = kit.chart(half, {
      height: 148,
      x: kit.linear(0, still.profile.length),
      y: kit.linear(-SPAN, SPAN),
      yTicks: [[-3, "−3"], [0, "0"], [3, "3"]],
      left: 26,
      right: 2,
    })
    const columns = kit.columns(chart, { role })
    kit.line(chart, { role: "reference", points: still.profile.map((y, x) => [x + 0.5, y]) })
    const within = (y) => Math.min(Math.max(y, -SPAN), SPAN)
    return (factor) => columns.set(still.profile.map((y) => within(factor * y)))
  }
  const beyond = kit.element("span", { class: "beyond" }, still.words.beyond)
  const input = panel(
    "residual",
    kit.element("b", {}, still.words.input), " L2 ", kit.readout("input_l2"), " · RMS ", kit.readout("rms"), " ", beyond,
  )
  const output = panel(
    "output",
    kit.element("b", {}, still.words.output), " L2 ", kit.readout("output_l2"), " · ", kit.readout("percent"), still.words.percent,
  )

  stage.append(kit.element("p", { class: "caption over" }, still.words.curve))
  const [first, last] = [still.curve[0][0], still.curve.at(-1)[0]]
  const chart = kit.chart(stage, {
    height: 132,
    x: kit.log(first, last),
    y: kit.linear(0, 122),
    yTicks: [[0, ""], [50, ""]],
    left: 13, // half a thumb: the mark stays below it
    right: 13,
  })
  kit.shade(chart, { from: still.usual[0], to: still.usual[1] })
  kit.level(chart, { y: 100, label: still.words.whole })
  kit.write(chart, { x: first, y: 50, text: "50 %", role: "reference" })
  kit.line(chart, { role: "output", points: still.curve })
  const real = kit.mark(chart, { role: "residual" })
  real.set(still.embedding[0], [still.embedding[1]])
  kit.write(chart, { x: still.embedding[0], y: 8, text: ` ${still.words.embedding}`, role: "residual" })
  const mark = kit.mark(chart, { role: "text" })

  return ([factor, percent]) => {
    input(factor)
    output(percent / 100)
    beyond.classList.toggle("shown", factor * peak > SPAN)
    mark.set(factor, [percent])
  }
}
