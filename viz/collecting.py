"""Python's search for garbage leaves out what stays.

Once torch and a checkpoint are loaded, to look through all objects takes a quarter of a second in which no page moves;
a class of thirty waited for little else. So Streamlit does not have it done after every run of a page any more
(`runner.postScriptGC`), and what has been loaded for good is frozen (`gc.freeze`): Python's own searches, every so often,
then look through what the pages make.
"""

from __future__ import annotations

import gc
import sys
import threading

from viz.kept import forget

_settled = threading.Event()  # gc.get_freeze_count would count all objects, one by one


def settle() -> None:
    """All that is held now stays: it is looked through no more. What is let go all the same is freed as ever, unless it
    holds itself; a checkpoint that is closed does not (tests/test_collecting.py), figures do."""
    forget()
    gc.collect()
    gc.freeze()
    _settled.set()


def settle_once() -> None:
    """The same where torch has been loaded and nothing is settled yet."""
    if "torch" in sys.modules and not _settled.is_set():
        settle()
