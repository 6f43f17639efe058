"""The prompts that the recording holds and the app offers, by id, in the order of the menu."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

PRESETS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fox": (
            "The quick brown fox jumps over the lazy dog. RMSNorm keeps every token's scale under control."
        ),
        "river": "The river flows softly through the valley.",
        "chinese": "清晨的茶馆里，老人一边下棋，一边讲着三十年前的故事🫖。",
        "python": (
            "def rms_norm(x, gain, eps=1e-6):\n"
            "    mean_square = (x * x).mean(-1, keepdim=True)\n"
            "    return x * (mean_square + eps).rsqrt() * gain\n"
        ),
        "paragraph": (
            "A lighthouse keeper's day began with the lamp. Before the sun had cleared the water she "
            "trimmed the wick, polished the great glass lens with a linen cloth, and wrote the night's "
            "weather into a ledger that had already outlived four of her predecessors. The entries were "
            "short: wind from the north-west, sea moderate, two schooners and a steamer passed, nothing "
            "to report. Yet anyone who read them in order could watch whole winters go by. In one "
            "February the ink had frozen and the keeper wrote in pencil; in another, three pages were "
            "stained by the wave that came through the kitchen door. When the light was finally turned "
            "over to an electric motor, the ledgers went to a museum in the harbour town, where a "
            "student of the climate found them ninety years later. She copied the wind, the state of "
            "the sea and the hour of each fog into a table, and compared them with what the models had "
            "supposed for those years. Most of the time the two agreed. Where they did not, it was "
            "usually the model that had to give way: the keeper had been there, had looked out of the "
            "window, and had written down what she saw. The student kept a photograph of one page above "
            "her desk. It showed a single line, in a careful hand, for a day on which nothing at all "
            "had happened."
        ),
    }
)
DEFAULT: Final = "fox"
