"""Opens two checkpoints in turn, as a person does who compares them: `python switching.py FOLDER_A FOLDER_B`.

Prints, as JSON, the resident memory in bytes before the first and while each is open. Somebody goes on
holding every closed checkpoint, as a visitor's session may.
"""

from __future__ import annotations

import json
import sys

import psutil

from model_probe import Checkpoint, capture, open_checkpoint
from model_probe.passes import give_back_memory

TIMES = 5
PROMPT = "The river flows softly through the valley. " * 3


def main(folders: list[str]) -> None:
    process = psutil.Process()
    kept: list[Checkpoint] = []
    warm_up = open_checkpoint(
        folders[1], device="cpu", dtype="float32"
    )  # what torch loads when it is first used
    capture(warm_up, PROMPT)
    warm_up.close()
    del warm_up
    give_back_memory()
    before, while_open = process.memory_info().rss, []
    for folder in folders * TIMES + folders[:1]:
        if kept:
            kept[-1].close()
        kept.append(open_checkpoint(folder, device="cpu", dtype="float32"))
        capture(kept[-1], PROMPT)
        while_open.append(process.memory_info().rss)
    print(json.dumps({"before": before, "while_open": while_open}))


if __name__ == "__main__":
    main(sys.argv[1:])
