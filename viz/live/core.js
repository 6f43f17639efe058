// What every live slider shares: the range input, its readouts and sentence, the reset, and the way to Python
// and back. Python has computed every stop (viz/live/slider.py); here stop number i is shown. A drawing adds
// itself: drawings.KIND = (stage, still, kit) => (frame, i) => {…}. kit.js has what drawings are made of.

const KEY_PAUSE = 150 // ms without a key before its value is sent
const REST = 400 // ms without a move before the sentence is announced
const GLIDE = 280 // ms to travel to where a reset, Back or Forward leads
const drawings = {}

class LiveSlider {
  constructor(root) {
    this.root = root
    this.range = root.querySelector("input")
    this.value = root.querySelector(".value")
    this.label = root.querySelector("label")
    this.resetButton = root.querySelector(".reset")
    this.ticks = root.querySelector(".ticks")
    this.bands = root.querySelector(".bands")
    this.stage = root.querySelector(".stage")
    this.says = root.querySelector(".says")
    this.index = 0
    this.turn = null // of what was sent last
    this.settled = null // the code that both sides last agreed on

    this.range.addEventListener("input", () => this.moved())
    this.range.addEventListener("change", () => this.released())
    this.range.addEventListener("keydown", () => (this.byKey = true))
    this.range.addEventListener("pointerdown", () => {
      this.byKey = false
      this.held = true
    })
    for (const end of ["pointerup", "pointercancel"]) this.range.addEventListener(end, () => (this.held = false))
    this.resetButton.addEventListener("click", () => this.reset())
    this.resizing = new ResizeObserver(() => this.fit())
    this.resizing.observe(this.stage)
  }

  // Called at every run of the page, and when the theme changes.
  update(data, setStateValue) {
    this.send = (code) => {
      this.settled = code
      this.turn = Date.now()
      setStateValue("released", { stop: code, turn: this.turn })
    }
    if (data.version !== this.data?.version) this.redraw(data)
    const older = this.turn !== null && data.heard !== this.turn
    if (this.settled === null) this.arrive(data)
    else if (!older && !this.held && !this.pending && data.stop !== this.settled) {
      this.settled = data.stop
      this.glide(data.codes.indexOf(data.stop))
    }
  }

  arrive(data) {
    this.settled = data.stop
    this.turn = data.heard
    this.show(data.codes.indexOf(data.stop))
  }

  redraw(data) {
    const here = data.codes.indexOf(this.data?.codes[this.index] ?? data.stop)
    this.data = data
    this.index = here < 0 ? data.codes.indexOf(data.stop) : here
    this.root.className = `live ${data.role}`
    this.root.setAttribute("aria-label", data.label)
    this.label.textContent = data.label
    this.range.dataset.live = data.name
    this.range.setAttribute("aria-label", data.label)
    this.range.max = data.codes.length - 1
    this.value.dataset.readout = `${data.name}.value`
    this.resetButton.textContent = data.words.reset
    this.resetButton.setAttribute("aria-label", data.words.resets)
    this.stage.dataset.drawing = data.name
    this.stage.className = `stage draws-${data.drawing}`
    this.ticks.replaceChildren(...data.ticks.map(([at, label]) => this.tick(at, label)))
    this.bands.replaceChildren(...data.bands.map(([start, end, label]) => this.band(start, end, label)))
    this.says.replaceChildren(...data.sentence.map(([kind, text]) => this.piece(kind, text)))
    this.width = this.paint = null
    this.fit()
    this.show(this.index)
  }

  // Builds the picture for the width there is; called again when that changes.
  fit() {
    const width = Math.round(this.stage.clientWidth)
    if (!this.data || !width || width === this.width) return
    this.width = width
    this.stage.replaceChildren()
    const kit = drawingKit(this.data.name)
    this.paint = drawings[this.data.drawing](this.stage, this.data.still, kit)
    for (const picture of this.stage.querySelectorAll("svg")) picture.setAttribute("aria-hidden", "true")
    this.stage.append(element("span", { class: "alt", role: "img", "aria-label": this.data.alt }))
    this.collect()
    this.reserve()
    this.show(this.index)
  }

  // Every readout with the column of texts that it shows.
  collect() {
    this.readouts = []
    for (const place of this.root.querySelectorAll("[data-readout]")) {
      const texts = this.data.readouts[place.dataset.readout.slice(this.data.name.length + 1)]
      if (texts) this.readouts.push([place, texts])
    }
  }

  // The sentence keeps the height of its longest form.
  reserve() {
    this.says.style.minHeight = ""
    const spoken = this.readouts.filter(([place]) => this.says.contains(place))
    const longest = new Map() // a form of the sentence for every set of phrases
    this.data.codes.forEach((_, i) => {
      const phrases = spoken.filter(([place]) => place.className === "phrase").map(([, texts]) => texts[i])
      const length = spoken.reduce((sum, [, texts]) => sum + texts[i].length, 0)
      const form = phrases.join("\n")
      if (!(longest.get(form)?.length >= length)) longest.set(form, { i, length })
    })
    const forms = [...longest.values()].sort((a, b) => b.length - a.length).slice(0, 12)
    let height = 0
    for (const { i } of forms) {
      for (const [place, texts] of spoken) place.textContent = texts[i]
      height = Math.max(height, Math.ceil(this.says.getBoundingClientRect().height))
    }
    this.says.style.minHeight = `${height}px`
  }

  show(index) {
    if (index < 0 || !this.data) return
    this.index = index
    const last = this.data.codes.length - 1
    if (+this.range.value !== index) this.range.value = index
    this.range.setAttribute("aria-valuetext", this.data.readouts.value[index])
    this.root.style.setProperty("--at", index / last)
    this.data.bands.forEach(([start, end], i) =>
      this.bands.children[i].classList.toggle("here", start <= index && (index < end || end >= last)),
    )
    for (const [place, texts] of this.readouts ?? [])
      if (place.textContent !== texts[index]) place.textContent = texts[index]
    this.paint?.(this.data.frames[index], index)
  }

  moved() {
    cancelAnimationFrame(this.gliding)
    this.hush()
    this.show(+this.range.value)
    if (this.byKey) this.pending = true
  }

  // While the value changes nothing is announced; at rest the sentence is, by being written once more.
  hush() {
    this.root.setAttribute("aria-live", "off")
    clearTimeout(this.resting)
    this.resting = setTimeout(() => {
      this.root.setAttribute("aria-live", "polite")
      this.says.replaceChildren(...this.says.childNodes)
    }, REST)
  }

  released() {
    clearTimeout(this.sending)
    const send = () => {
      this.pending = false
      const code = this.data.codes[this.index]
      if (code !== this.settled) this.send(code)
    }
    if (!this.byKey) return send()
    this.pending = true
    this.sending = setTimeout(send, KEY_PAUSE)
  }

  reset() {
    clearTimeout(this.sending)
    this.pending = false
    this.glide(this.data.codes.indexOf(this.data.standard))
    if (this.data.standard !== this.settled) this.send(this.data.standard)
  }

  glide(target) {
    cancelAnimationFrame(this.gliding)
    this.hush()
    const from = this.index
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches
    if (still || document.hidden || Math.abs(target - from) < 2) return this.show(target)
    const begin = performance.now()
    const step = (now) => {
      const t = Math.min(Math.max((now - begin) / GLIDE, 0), 1)
      this.show(Math.round(from + (target - from) * t * t * (3 - 2 * t)))
      if (t < 1) this.gliding = requestAnimationFrame(step)
    }
    this.gliding = requestAnimationFrame(step)
  }

  tick(at, label) {
    const mark = element("span", {}, element("span", {}, label))
    mark.style.setProperty("--at", at / (this.data.codes.length - 1))
    return mark
  }

  band(start, end, label) {
    const band = element("span", {}, element("span", {}, label))
    band.style.setProperty("--start", start / (this.data.codes.length - 1))
    band.style.setProperty("--end", end / (this.data.codes.length - 1))
    return band
  }

  piece(kind, text) {
    return kind === "text"
      ? document.createTextNode(text)
      : element("span", { class: kind, "data-readout": `${this.data.name}.${text}` })
  }

  stop() {
    this.resizing.disconnect()
    cancelAnimationFrame(this.gliding)
    clearTimeout(this.resting)
    clearTimeout(this.sending)
  }
}

export default function ({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector(".live")
  root.slider ??= new LiveSlider(root)
  root.slider.update(data, setStateValue)
  return () => {
    root.slider?.stop()
    root.slider = null
  }
}
