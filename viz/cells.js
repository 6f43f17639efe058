// A table of cells to type into. Every step of RMSNorm is computed here at each key; Python hears of the numbers
// when the reader pauses, and sends them back only where they changed without us (a link, Back, Forward).

const PAUSE = 500 // ms without a key before Python is told and the sentence is announced
const THIN_SPACE = "\u202f"
const SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉"
const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" }

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  made.append(...children)
  return made
}

// As viz.text.number writes it, without idle zeros.
function shown(value, digits) {
  if (!Number.isFinite(value)) return "—"
  if (value === 0) return "0"
  const size = Math.abs(value)
  const sign = value < 0 ? "−" : ""
  const idle = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text)
  const [mantissa, power] = size.toExponential(digits - 1).split("e")
  if (size < 1e-3 || size >= 1e7) {
    const raised = [...String(+power)].map((letter) => SUPERSCRIPTS[letter]).join("")
    return sign + (idle(mantissa) === "1" ? `10${raised}` : `${idle(mantissa)}·10${raised}`)
  }
  const [whole, decimals] = idle(size.toFixed(Math.max(digits - 1 - power, 0))).split(".")
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, THIN_SPACE)
  return sign + grouped + (decimals ? `.${decimals}` : "")
}

// What a reader may type: full-width digits and the true minus are understood, a decimal comma too.
function read(text, limits) {
  const plain = text.normalize("NFKC").replace(/[−–]/g, "-").replace(",", ".").trim()
  if (!plain) return { wrong: "empty" }
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain)) return { wrong: "no_number" }
  const scale = 10 ** limits.decimals
  const value = Math.round(Number(plain) * scale) / scale + 0 // −0 becomes 0
  return Math.abs(value) > limits.largest ? { wrong: "too_large" } : { value }
}

function rmsNorm(x, eps) {
  const squares = x.map((entry) => entry * entry)
  const meanSquare = squares.reduce((sum, square) => sum + square, 0) / x.length
  const rms = Math.sqrt(meanSquare + eps)
  return { squares, meanSquare, rms, y: x.map((entry) => entry / rms) }
}

const length = (x) => Math.sqrt(x.reduce((sum, entry) => sum + entry * entry, 0))
const named = (i) => `x${SUBSCRIPTS[i + 1]}`
const filled = (sentence, values) => sentence.replace(/\{(\w+)\}/g, (_, name) => values[name])

class Cells {
  constructor(root) {
    this.root = root
    this.turn = null // of what was sent last
    this.settled = null // the code that both sides last agreed on
  }

  // Called at every run of the page.
  update(data, setStateValue) {
    this.send = (code) => {
      this.settled = code
      this.turn = Date.now()
      setStateValue("entered", { code, turn: this.turn })
    }
    const before = this.data
    this.data = data
    const answered = this.turn === null || data.heard === this.turn
    const arrived = before === undefined || (answered && !this.waiting && data.code !== this.settled)
    if (arrived) {
      this.settled = data.code
      this.texts = data.code.split("_").map((text) => text.replace("-", "−"))
    }
    if (arrived || JSON.stringify(before.words) !== JSON.stringify(data.words)) this.build()
  }

  build() {
    const { words, limits } = this.data
    const button = (label, act) => {
      const made = element("button", { type: "button" }, label)
      made.addEventListener("click", act)
      return made
    }
    this.rows = element("tbody")
    this.mean = element("td", { class: "number", "data-readout": "formula.mean_square" })
    this.rms = element("td", { class: "number rms", "data-readout": "formula.rms" })
    const step = (n, label, role = "") =>
      element("th", { scope: "col", class: role }, element("span", { class: "step" }, String(n)), ` ${label}`)
    const foot = (n, label, cell) =>
      element(
        "tr",
        {},
        element("th", { scope: "row", colspan: 2 }, element("span", { class: "step" }, String(n)), ` ${label}`),
        cell,
        element("td", { colspan: 2 }),
      )
    const table = element(
      "table",
      {},
      element("caption", {}, words.caption),
      element("colgroup", {}, ...["name", "entry", "square", "y", "bars"].map((column) => element("col", { class: column }))),
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          element("td"),
          element("th", { scope: "col", class: "residual" }, words.x),
          step(1, words.square),
          step(4, words.divide, "normalized"),
          element("td"),
        ),
      ),
      this.rows,
      element("tfoot", {}, foot(2, words.mean, this.mean), foot(3, words.root, this.rms)),
    )
    this.addButton = button(words.add, () => this.resize(this.texts.length + 1))
    this.removeButton = button(words.remove, () => this.resize(this.texts.length - 1))
    const reset = button(words.reset, () => {
      this.texts = this.data.standard.split("_").map((text) => text.replace("-", "−"))
      this.fill()
      this.told()
    })
    this.says = element("p", { class: "says", role: "status" })
    this.root.replaceChildren(
      table,
      element("div", { class: "tools" }, this.addButton, this.removeButton, reset),
      this.says,
    )
    this.fill()
    this.say()
  }

  // One row a number, then all that follows from them.
  fill() {
    this.inputs = this.texts.map((text, i) => {
      const input = element("input", {
        type: "text",
        inputmode: "decimal",
        autocomplete: "off",
        "aria-label": filled(this.data.words.entry, { name: named(i) }),
        "data-cell": i,
      })
      input.value = text
      input.addEventListener("input", () => this.typed(i, input.value))
      input.addEventListener("focus", () => input.select())
      input.addEventListener("keydown", (event) => this.pressed(event, i))
      return input
    })
    this.outputs = this.texts.map((_, i) => ({
      square: element("td", { class: "number", "data-readout": `formula.square.${i}` }),
      y: element("td", { class: "number normalized", "data-readout": `formula.y.${i}` }),
      bar: element("span", { class: "bar" }),
    }))
    this.rows.replaceChildren(
      ...this.inputs.map((input, i) =>
        element(
          "tr",
          {},
          element("th", { scope: "row" }, named(i)),
          element("td", { class: "entry" }, input),
          this.outputs[i].square,
          this.outputs[i].y,
          element("td", { class: "track", "aria-hidden": "true" }, this.outputs[i].bar),
        ),
      ),
    )
    this.addButton.disabled = this.texts.length >= this.data.limits.most
    this.removeButton.disabled = this.texts.length <= this.data.limits.fewest
    this.show()
  }

  typed(i, text) {
    this.texts[i] = text
    this.show()
    this.told()
  }

  // Up and down step the number, Enter goes to the next.
  pressed(event, i) {
    if (event.key === "Enter") this.inputs[(i + 1) % this.inputs.length].focus()
    const direction = { ArrowUp: 1, ArrowDown: -1 }[event.key]
    const { value } = read(this.texts[i], this.data.limits)
    if (!direction || value === undefined) return
    event.preventDefault()
    const next = Math.round((value + direction * (event.shiftKey ? 10 : 1)) * 1e6) / 1e6
    if (Math.abs(next) > this.data.limits.largest) return
    this.inputs[i].value = String(next).replace("-", "−")
    this.typed(i, this.inputs[i].value)
  }

  resize(count) {
    if (count < this.data.limits.fewest || count > this.data.limits.most) return
    const added = count > this.texts.length
    this.texts = added ? [...this.texts, "1"] : this.texts.slice(0, count)
    this.fill()
    if (added) this.inputs.at(-1).focus({ preventScroll: true })
    this.told()
  }

  // The numbers at once; where one cannot be read there is a dash, never a 0.
  show() {
    const entries = this.texts.map((text) => read(text, this.data.limits))
    this.wrong = entries.map(({ wrong }, i) => [wrong, i]).filter(([wrong]) => wrong)
    entries.forEach(({ wrong }, i) => this.inputs[i].setAttribute("aria-invalid", String(Boolean(wrong))))
    this.x = this.wrong.length ? null : entries.map(({ value }) => value)
    const steps = this.x && rmsNorm(this.x, this.data.eps)
    const write = (place, value) => (place.textContent = shown(value ?? NaN, this.data.digits))
    this.outputs.forEach(({ square, y, bar }, i) => {
      write(square, entries[i].value === undefined ? NaN : entries[i].value ** 2)
      write(y, steps?.y[i])
      const share = (steps?.y[i] ?? 0) / Math.sqrt(this.texts.length) // |y| is at most √n
      bar.style.left = `${50 + 50 * Math.min(share, 0)}%`
      bar.style.width = `${50 * Math.abs(share)}%`
    })
    write(this.mean, steps?.meanSquare)
    write(this.rms, steps?.rms)
    this.steps = steps
  }

  told() {
    this.waiting = true
    clearTimeout(this.pausing)
    this.pausing = setTimeout(() => {
      this.waiting = false
      this.say()
      const code = this.x?.map((entry) => String(entry)).join("_")
      if (code && code !== this.settled) this.send(code)
    }, PAUSE)
  }

  say() {
    const { words, digits, limits } = this.data
    if (this.wrong.length) {
      const [wrong, i] = this.wrong[0]
      this.says.textContent = filled(words[wrong], { name: named(i), largest: shown(limits.largest, digits) })
      this.says.classList.add("wrong")
      return
    }
    this.says.classList.remove("wrong")
    const zeros = this.x.map((entry, i) => [entry, named(i)]).filter(([entry]) => entry === 0)
    if (zeros.length === this.x.length) {
      this.says.textContent = words.all_zero
      return
    }
    const lengths = { before: shown(length(this.x), digits), after: shown(length(this.steps.y), digits) }
    const names = zeros.map(([, name]) => name).join(words.comma)
    const kept = zeros.length ? filled(zeros.length > 1 ? words.zeros : words.zero, { names }) : ""
    const whole = Math.abs(length(this.steps.y) / Math.sqrt(this.x.length) - 1) < 10 ** -digits
    this.says.textContent = filled(whole ? words.length : words.short, { ...lengths, n: this.x.length }) + kept
  }

  stop() {
    clearTimeout(this.pausing)
  }
}

export default function ({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector(".cells")
  root.cells ??= new Cells(root)
  root.cells.update(data, setStateValue)
  return () => {
    root.cells?.stop()
    root.cells = null
  }
}
