"""The graphs of an experiment: of each trial, and of all trials beside each other; over env steps and over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from offbeat.core.errors import ConfigError
from offbeat.plots.curves import XAxis, plot_runs
from offbeat.plots.directories import runs_of

_AXES: tuple[XAxis, ...] = ("steps", "time")


def draw(experiment: Path, trials: Sequence[Path], notify: Callable[[str], None]) -> None:
    """Draw all graphs that there are returns for; `notify` is called with what is being drawn."""
    for folder in (*trials, experiment):
        try:
            runs = runs_of(folder)
        except ConfigError:  # no returns yet
            continue
        notify(f"drawing {folder.name}")
        for x in _AXES:
            plot_runs(runs, x, out=folder / f"return-{x}.png")
