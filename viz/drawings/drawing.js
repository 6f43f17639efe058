// Puts the drawing there. Its links are followed by the shell (viz/shell.js), as those of the prose are.

export default function ({ data, parentElement }) {
  const place = parentElement.querySelector(".drawing")
  if (place.drawn === data.markup) return
  place.drawn = data.markup
  place.innerHTML = data.markup
}
