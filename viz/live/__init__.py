"""Live widgets: sliders that repaint at every move, without a message to the server.

Streamlit's own slider sends nothing while it is dragged. Here Python computes every stop of the slider
beforehand, the numbers as text and what is to be drawn; the browser only shows stop number i. So every number
on the screen was formatted by Python, and JavaScript computes none.

**To add a widget** `blend`, write three things:

1. A Python module that makes its slider (viz/live/saturation.py is an example):

       STOPS = tuple(Stop(code=f"{p}", value=p, shown=f"{p} %", readouts={"cosine": "0.93"}, frame=[0.2, 0.7]) …)

       def blend_slider(words: Words) -> LiveSlider:
           return LiveSlider(
               name="blend",                   # data-live="blend", data-readout="blend.…", data-drawing="blend"
               parameter="blend",              # in the address: ?blend=40
               stops=STOPS,
               default="0",
               label=words.t("gain.blend.label"),
               sentence=words.t("gain.blend.sentence", cosine=slot("cosine")),
               still={"axis": words.t("gain.blend.axis")},      # what all frames share, any JSON
               alt=words.t("gain.blend.alt"),
           )

2. `viz/live/drawings/blend.js`, one function that builds the picture once and returns what paints a frame:

       drawings.blend = (stage, still, kit) => {
         const chart = kit.chart(stage, {height: 180, x: kit.linear(0, 47), y: kit.linear(-1, 2), yTicks: […]})
         const gain = kit.columns(chart, {base: 0, role: "output"})
         return (frame) => gain.set(frame)
       }

   The file is joined to the component by being there; so is `blend.css`
   beside it, whose rules begin with `.draws-blend`. What `kit` offers is at
   the top of kit.js. Colours are the roles of look.md, as CSS classes (`residual`, `output`, …) and variables
   (`var(--residual)`). A number in the picture is `kit.readout("cosine")`: the core fills it in.

3. On the page: `code = live(page, blend_slider(page.words))`. It returns the stop's code that the address
   now names, and puts what the reader releases there. A page that binds several choices at once calls
   `bind(…, slider.choice)` itself and then `mount(page, slider, code)`.

Readouts: `data-readout="blend.value"` stands beside the slider (`Stop.shown`, which is also what a screen
reader says), the others where `slot("cosine")` stands in the sentence or where the drawing puts them. A readout
of words is `phrase("meaning")`. The sentence keeps the height of its longest form, so nothing below it jumps.

In AppTest set the choice itself: `at.session_state[slider.choice.key] = "40"`. Tests of the browser:
tests/browser/test_live.py drives any widget by its name.
"""

from viz.live.component import live, mount
from viz.live.slider import Band, LiveSlider, Stop, Tick, phrase, slot

__all__ = ["Band", "LiveSlider", "Stop", "Tick", "live", "mount", "phrase", "slot"]
