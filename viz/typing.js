// Streamlit takes what is typed into a text area when the field loses the focus or at Ctrl+Enter. A button that is
// disabled until something has changed would then need two clicks; so after a pause the page presses Ctrl+Enter.

const PAUSE = 400 // milliseconds

export default function ({ data }) {
  const field = `.st-key-${data.field} textarea`
  let timer
  const onInput = (event) => {
    if (!event.target.matches?.(field)) return
    clearTimeout(timer)
    timer = setTimeout(() => {
      const enter = { key: "Enter", code: "Enter", ctrlKey: true, metaKey: true, bubbles: true }
      event.target.dispatchEvent(new KeyboardEvent("keydown", enter))
    }, PAUSE)
  }
  document.addEventListener("input", onInput)
  return () => {
    clearTimeout(timer)
    document.removeEventListener("input", onInput)
  }
}
