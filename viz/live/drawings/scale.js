// A vector going in and the same vector coming out, in one unit of height; below, what is left of √d over the
// whole slider, under the slider's own thumb.

drawings.scale = (stage, still, kit) => {
  const SPAN = 3.2 // of either picture's height, up and down, in RMS of the output
  const peak = Math.max(...still.profile.map(Math.abs))

  const pair = stage.appendChild(kit.element("div", { class: "pair" }))
  const panel = (role, ...caption) => {
    const half = pair.appendChild(kit.element("div", { class: `half ${role}` }))
    half.append(kit.element("p", { class: "caption" }, ...caption))
    const chart = kit.chart(half, {
      height: 148,
      x: kit.linear(0, still.profile.length),
      y: kit.linear(-SPAN, SPAN),
      yTicks: [[-2, "−2"], [0, "0"], [2, "2"]],
      left: 26,
      right: 2,
    })
    const area = chart.picture.appendChild(svg("path", { class: "area" }))
    kit.line(chart, { role: "reference", points: still.profile.map((y, x) => [x + 0.5, y]) })
    const beyond = svg("text", { class: "label text beyond", x: chart.box.right, y: chart.box.top - 1, "text-anchor": "end" }, still.words.beyond)
    chart.picture.append(beyond)
    const [low, high] = [chart.y(-SPAN), chart.y(SPAN)]
    const at = (y) => place(Math.min(Math.max(chart.y(y), high), low))
    const [start, end, foot] = [place(chart.x(0.5)), place(chart.x(still.profile.length - 0.5)), place(chart.y(0))]
    return (factor) => {
      const edge = still.profile.map((y, x) => `L${place(chart.x(x + 0.5))} ${at(factor * y)}`)
      area.setAttribute("d", `M${start} ${foot}${edge.join("")}L${end} ${foot}Z`)
      beyond.classList.toggle("shown", factor * peak > SPAN)
    }
  }
  const input = panel(
    "residual",
    kit.element("b", {}, still.words.input), " L2 ", kit.readout("input_l2"), " · RMS ", kit.readout("rms"),
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
  kit.line(chart, { role: "reference", points: [[first, 100], [last, 100]] })
  kit.write(chart, { x: first, y: 100, text: still.words.whole, role: "reference" })
  kit.write(chart, { x: first, y: 50, text: "50 %", role: "reference" })
  kit.line(chart, { role: "output", points: still.curve })
  const real = kit.mark(chart, { role: "residual" })
  real.set(still.embedding[0], [still.embedding[1]])
  kit.write(chart, { x: still.embedding[0], y: 8, text: `\u00a0\u00a0${still.words.embedding}`, role: "residual" })
  const mark = kit.mark(chart, { role: "text" })

  return ([factor, percent]) => {
    input(factor)
    output(percent / 100)
    mark.set(factor, [percent])
  }
}
