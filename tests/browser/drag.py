"""Dragging a live slider, and watching what is painted and sent while the pointer is down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from playwright.sync_api import Locator, Page

THUMB: Final = 26  # pixels: its centre runs from half of it to the width less half of it

# Notes the text of all readouts at every frame in which it changed, with the time.
WATCH: Final = """
slider => {
  const name = slider.dataset.live
  const read = () => [...slider.getRootNode().querySelectorAll(`[data-readout^="${name}."]`)]
    .map(e => e.textContent).join('|')
  window.painted = []
  window.watching = true
  let last = read()
  const tick = () => {
    const now = read()
    if (now !== last) { last = now; window.painted.push([performance.now(), now]) }
    if (window.watching) requestAnimationFrame(tick)
  }
  requestAnimationFrame(tick)
}
"""


@dataclass(frozen=True, slots=True)
class Drag:
    """What came of one drag."""

    moves: int  # of the pointer that reached another stop
    painted: int  # different states of the readouts, painted while the pointer moved
    pictures: int  # different states of the picture, of those looked at
    lag_ms: float  # from the last move to the last paint; negative when it was painted at once
    messages: int  # websocket frames sent while the pointer was down


def slider(page: Page, name: str) -> Locator:
    return page.locator(f'input[type=range][data-live="{name}"]')


def readouts(page: Page, name: str) -> dict[str, str]:
    """Every readout of a slider as it is shown: {"share.A": "0.325", …}."""
    pairs = page.locator(f'[data-readout^="{name}."]').evaluate_all(
        "all => all.map(e => [e.dataset.readout, e.textContent])"
    )
    return {what.removeprefix(f"{name}."): text for what, text in pairs}


def drag(page: Page, name: str, *, moves: int = 40, pause_ms: int = 25) -> Drag:
    """Drags the thumb to the farther end in even moves, rests there and lets go."""
    range_ = slider(page, name)
    range_.scroll_into_view_if_needed()
    box = range_.bounding_box()
    assert box is not None
    value, last = (int(range_.evaluate(f"e => +e.{what}")) for what in ("value", "max"))
    left, right = box["x"] + THUMB / 2, box["x"] + box["width"] - THUMB / 2
    start = left + (right - left) * value / last
    end = right if right - start > start - left else left
    y = box["y"] + box["height"] / 2

    sent: list[object] = []

    def note(frame: object) -> None:  # Playwright takes no built-in such as sent.append
        sent.append(frame)

    devtools = page.context.new_cdp_session(page)
    devtools.send("Network.enable")
    devtools.on("Network.webSocketFrameSent", note)
    page.mouse.move(start, y)
    page.mouse.down()
    range_.evaluate(WATCH)
    page.wait_for_timeout(100)
    sent.clear()
    pictures = set()
    for i in range(1, moves + 1):
        page.mouse.move(start + (end - start) * i / moves, y)
        page.wait_for_timeout(pause_ms)
        if i % (moves // 6) == 0:
            pictures.add(page.locator(f'[data-drawing="{name}"]').evaluate("e => e.outerHTML"))
    moved = float(page.evaluate("performance.now()")) - pause_ms
    page.wait_for_timeout(600)
    messages = len(sent)
    painted = page.evaluate("window.watching = false, window.painted")
    page.mouse.up()
    devtools.detach()
    stops = abs(end - start) / (right - left) * last
    return Drag(
        moves=int(min(moves, stops)),
        painted=len(painted),
        pictures=len(pictures),
        lag_ms=painted[-1][0] - moved if painted else float("inf"),
        messages=messages,
    )
