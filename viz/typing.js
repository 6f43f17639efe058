// Streamlit takes what is typed into a text area when the field loses the focus or at Ctrl+Enter. A button that is
// disabled until something has changed would then need two clicks; so after a pause the page presses Ctrl+Enter.

const PAUSE = 400 // milliseconds

export default function ({ data }) {
  const field = document.querySelector(`.st-key-${CSS.escape(data.key.replace(/[^\w-]/g, "-"))} textarea`)
  if (!field || field.dataset.watched) return
  field.dataset.watched = "true"
  let timer
  field.addEventListener("input", () => {
    clearTimeout(timer)
    timer = setTimeout(() => {
      field.dispatchEvent(
        new KeyboardEvent("keydown", { key: "Enter", code: "Enter", ctrlKey: true, metaKey: true, bubbles: true }),
      )
    }, PAUSE)
  })
}
