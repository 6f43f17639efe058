"""What prose draws for a term (viz/markup.py): the only HTML that is among it."""

from __future__ import annotations

import re
from typing import Final

NOTE: Final = re.compile(
    r'<span popover id="term-\w+" class="lab-note"><span class="lab-note-name">[^<]*</span>[^<]*'
    r'(?:<span class="lab-note-way">[^<]*</span>)?</span>'
)
_BUTTON: Final = re.compile(r'<button type="button" class="lab-term" popovertarget="term-\w+">|</button>')
_TOGETHER: Final = re.compile(r'<span class="lab-together">([^<]*)</span>')


def without_notes(prose: str) -> str:
    """The prose as it reads with every note closed, without HTML."""
    return _TOGETHER.sub(r"\1", _BUTTON.sub("", NOTE.sub("", prose)))
