// What only the browser knows: the theme that is really drawn, the language of the document, how far down the
// page the reader is, and which link of prose or drawing was followed: by itself it would open a new session.

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

// A page has no such element before it is drawn.
function bringIntoView(id) {
  const look = () => document.getElementById(id)?.scrollIntoView()
  const drawn = new MutationObserver(() => document.getElementById(id) && stop())
  const stop = () => (drawn.disconnect(), setTimeout(look, 100)) // the new page begins at its top first
  drawn.observe(document.body, { childList: true, subtree: true })
  setTimeout(() => drawn.disconnect(), 10_000)
}

const FOLLOWED = '[data-testid="stMarkdown"] a[href], a[data-visit]' // of the prose, and of drawings

function followLinks(element, setTriggerValue) {
  const follow = (event) => {
    const link = event.composedPath().find((part) => part.matches?.(FOLLOWED))
    if (!link || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return
    const { origin, pathname, searchParams, hash } = new URL(link.getAttribute("href"), document.baseURI)
    const page = element.pages[pathname.split("/").pop()]
    if (origin !== location.origin || !page || link.getAttribute("href").startsWith("#")) return
    event.preventDefault()
    if (hash) bringIntoView(hash.slice(1))
    setTriggerValue("visit", { page, choices: Object.fromEntries(searchParams) })
  }
  document.addEventListener("click", follow)
  return () => document.removeEventListener("click", follow)
}

export default function ({ data, parentElement, setStateValue, setTriggerValue }) {
  const line = parentElement.querySelector(".progress")
  document.documentElement.lang = data.language

  const theme = drawnTheme(line)
  if (theme !== data.theme) setStateValue("theme", theme)

  line.pages = data.pages
  if (!line.stopFollowing) {
    const stops = [followScroll(line), followLinks(line, setTriggerValue)]
    line.stopFollowing = () => stops.forEach((stop) => stop())
  }
  return () => {
    line.stopFollowing?.()
    line.stopFollowing = null
  }
}
