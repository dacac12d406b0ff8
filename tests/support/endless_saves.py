"""A process that saves one checkpoint after the other until it is killed. It loads nothing slow."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from offbeat.run_directory.checkpoint import Checkpoint
from offbeat.run_directory.store import CheckpointStore

FOR_EVER = "import sys; from tests.support.endless_saves import save_for_ever; save_for_ever(*sys.argv[1:])"


def numbered(number: int) -> Checkpoint:
    """A checkpoint whose parts all tell its number."""
    values = np.full(20_000, number)
    return Checkpoint.of_one({"w": values}, {"env": "E", "number": number}, {"number": number, "adam": values})


def save_for_ever(folder: str, first: str) -> None:
    """Save checkpoints, numbered from `first` on; every fifth is the best."""
    store = CheckpointStore(Path(folder), max_full=2)
    for number in itertools.count(int(first)):
        store.save(number, numbered(number), ["best", "latest"] if number % 5 == 0 else ["latest"])
