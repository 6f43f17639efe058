// Tells Python when the first chart is on the screen.

const DRAWN = ".js-plotly-plot .main-svg .trace"

export default function ({ setStateValue }) {
  const look = () => {
    if (!document.querySelector(DRAWN)) return
    drawn.disconnect()
    setStateValue("painted", true)
  }
  const drawn = new MutationObserver(look)
  drawn.observe(document.body, { childList: true, subtree: true })
  look()
  return () => drawn.disconnect()
}
