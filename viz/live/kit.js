// What drawings are made of. Positions are in the units of the scales that a drawing gives, sizes in pixels.
//
//   kit.element(tag, attributes, ...children)     an HTML element
//   kit.readout(what, attributes)                 an HTML element whose text the core keeps up to date
//   kit.linear(first, last), kit.log(first, last) scales, for a chart's x and y
//   kit.chart(parent, options) → chart            an SVG as wide as its parent, with frame, grid and labels:
//       {height, x, y, xTicks, yTicks, xTitle, yTitle, left, right}    ticks: [[value, label], …]
//   kit.line(chart, {role, points})               a curve through [[x, y], …];          .set(points)
//   kit.columns(chart, {role, base})              a column from base to each value;     .set(values)
//   kit.mark(chart, {role})                       an upright line with dots;            .set(x, [y, …])
//   kit.level(chart, {y, label, role})            a labelled horizontal line (√d, γ = 1)
//   kit.shade(chart, {from, to})                  a stretch of x with a quiet ground
//   kit.write(chart, {x, y, text, role, anchor})  a label at a place;                   .set(x, y)
//   kit.rows(parent, {labels, whats, role})       labelled bars with their readouts;    .set(shares of the width)
//
// A role is a class of look.md (residual, normalized, output, sink, reference, text): colour and dash come with it.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  made.append(...children)
  return made
}

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  made.append(...children)
  return made
}

const place = (value) => Math.round(value * 10) / 10 // a tenth of a pixel is fine enough, and short

function drawingKit(name) {
  const scale = (first, last, through) => {
    const [start, end] = [through(first), through(last)]
    return { first, last, to: (low, high) => (value) => low + ((through(value) - start) / (end - start)) * (high - low) }
  }
  const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${place(x)} ${place(y)}`).join("")

  const kit = {
    element,
    linear: (first, last) => scale(first, last, (value) => value),
    log: (first, last) => scale(first, last, Math.log),

    readout: (what, attributes = {}) => element("span", { ...attributes, "data-readout": `${name}.${what}` }),

    chart(parent, { height, x, y, xTicks = [], yTicks = [], xTitle = "", yTitle = "", left = 34, right = 14 }) {
      const width = parent.clientWidth
      const top = yTitle ? 26 : 8
      const bottom = 6 + (xTicks.length ? 18 : 0) + (xTitle ? 20 : 0)
      const box = { left, right: width - right, top, bottom: height - bottom }
      const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` })
      const chart = { picture, box, x: x.to(box.left, box.right), y: y.to(box.bottom, box.top), scaleX: x, scaleY: y }
      const back = svg("g", { class: "frame" })
      for (const [value, label] of yTicks) {
        back.append(svg("path", { d: `M${box.left} ${place(chart.y(value))}H${box.right}` }))
        back.append(svg("text", { x: box.left - 6, y: chart.y(value) + 4, "text-anchor": "end" }, label))
      }
      back.append(svg("path", { d: `M${box.left} ${box.bottom}H${box.right}`, class: "axis" }))
      for (const [value, label] of xTicks)
        back.append(svg("text", { x: chart.x(value), y: box.bottom + 17, "text-anchor": "middle" }, label))
      const middle = (box.left + box.right) / 2
      if (xTitle) back.append(svg("text", { x: middle, y: height - 6, "text-anchor": "middle" }, xTitle))
      if (yTitle) back.append(svg("text", { x: 0, y: 12 }, yTitle))
      chart.back = svg("g")
      picture.append(chart.back, back)
      parent.append(picture)
      return chart
    },

    line(chart, { role, points = [] }) {
      const curve = svg("path", { class: `line ${role}` })
      chart.picture.append(curve)
      const set = (next) => curve.setAttribute("d", path(next.map(([x, y]) => [chart.x(x), chart.y(y)])))
      set(points)
      return { set }
    },

    columns(chart, { role, base = 0 }) {
      const columns = svg("path", { class: `columns ${role}` })
      chart.picture.append(columns)
      const set = (values) => {
        const step = (chart.box.right - chart.box.left) / values.length
        columns.style.strokeWidth = `${Math.max(step > 4 ? step - 2 : step * 0.8, 0.5)}px`
        const foot = place(chart.y(base))
        const x = (i) => place(chart.box.left + (i + 0.5) * step)
        columns.setAttribute("d", values.map((value, i) => `M${x(i)} ${foot}V${place(chart.y(value))}`).join(""))
      }
      return { set }
    },

    mark(chart, { role }) {
      const upright = svg("path", { class: `mark ${role}` })
      const dots = svg("g", { class: `dots ${role}` })
      chart.picture.append(upright, dots)
      const set = (x, heights = []) => {
        const at = place(chart.x(x))
        upright.setAttribute("d", `M${at} ${chart.box.top}V${chart.box.bottom}`)
        while (dots.children.length < heights.length) dots.append(svg("circle", { r: 4.5 }))
        heights.forEach((y, i) => {
          dots.children[i].setAttribute("cx", at)
          dots.children[i].setAttribute("cy", place(chart.y(y)))
        })
      }
      return { set }
    },

    level(chart, { y, label, role = "reference" }) {
      const at = place(chart.y(y))
      chart.picture.append(svg("path", { class: `line ${role}`, d: `M${chart.box.left} ${at}H${chart.box.right}` }))
      kit.write(chart, { x: chart.scaleX.last, y, text: label, role, anchor: "end" })
    },

    shade(chart, { from, to }) {
      const [left, right] = [place(chart.x(from)), place(chart.x(to))]
      const { top, bottom } = chart.box
      chart.back.append(svg("rect", { class: "shade", x: left, y: top, width: right - left, height: bottom - top }))
    },

    write(chart, { x, y, text, role = "text", anchor = "start" }) {
      const label = svg("text", { class: `label ${role}`, "text-anchor": anchor }, text)
      chart.picture.append(label)
      const set = (nextX, nextY) => {
        label.setAttribute("x", place(chart.x(nextX)))
        label.setAttribute("y", place(chart.y(nextY) - 7))
      }
      set(x, y)
      return { set }
    },

    rows(parent, { labels, whats, role }) {
      const list = element("div", { class: `rows ${role}` })
      const bars = labels.map((label, i) => {
        const bar = element("span", { class: "bar" })
        list.append(element("span", { class: "name" }, label), element("span", { class: "track" }, bar), kit.readout(whats[i]))
        return bar
      })
      parent.append(list)
      const set = (shares) => shares.forEach((share, i) => (bars[i].style.width = `${place(share * 1000) / 10}%`))
      return { set }
    },
  }
  return kit
}
