// Three things that only the browser knows: the theme that is really drawn, the language of the document,
// and how far down the page the reader is.

function drawnTheme(element) {
  const probe = document.createElement("canvas").getContext("2d")
  probe.fillStyle = getComputedStyle(element).getPropertyValue("--st-background-color").trim() || "#fff"
  const value = parseInt(probe.fillStyle.slice(1), 16) // a canvas gives back "#rrggbb"
  const luminance = 0.299 * (value >> 16) + 0.587 * ((value >> 8) & 255) + 0.114 * (value & 255)
  return luminance < 128 ? "dark" : "light"
}

function followScroll(line) {
  const page = document.querySelector('[data-testid="stMain"]')
  if (!page) return () => {}
  const draw = () => {
    const room = page.scrollHeight - page.clientHeight
    line.style.transform = `scaleX(${room > 8 ? Math.min(page.scrollTop / room, 1) : 0})`
  }
  page.addEventListener("scroll", draw, { passive: true })
  draw()
  return () => page.removeEventListener("scroll", draw)
}

export default function ({ data, parentElement, setStateValue }) {
  const line = parentElement.querySelector(".progress")
  document.documentElement.lang = data.language

  const theme = drawnTheme(line)
  if (theme !== data.theme) setStateValue("theme", theme)

  if (!line.stopFollowing) line.stopFollowing = followScroll(line)
  return () => {
    line.stopFollowing?.()
    line.stopFollowing = null
  }
}
