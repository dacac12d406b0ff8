"""`offbeat plot`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from offbeat.cli.output import spinner


@dataclass(frozen=True)
class Plot:
    """Plot the return over steps, frames or time: offbeat plot runs/A runs/B, or offbeat plot experiments/NAME."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN...", help_behavior_hint="")]
    """Directories of runs, trials or experiments. Runs that differ only in the seed are drawn as their IQM with a 95 %
    band."""
    x: Literal["steps", "frames", "time", "episodes"] = "steps"
    """The quantity on the horizontal axis. episodes: how the return of the last evaluation changes over the episodes in
    a new task, for algorithms that infer tasks."""
    out: Annotated[Path | None, arg(metavar="FILE.png", help_behavior_hint="")] = None
    """File to write. Default: return.png in the directory, or in the current folder for several directories; with --x
    episodes, adaptation.png. For a run with a league, its Elo ratings are drawn into a second file, return-elo.png."""
    average: bool = False
    """Also draw the moving average of the training returns over 100 points."""

    def run(self) -> int:
        from offbeat.api.plot import plot

        with spinner("drawing"):
            drawn = plot(self.runs, self.x, out=self.out, average=self.average)
        for path in drawn:
            print(path)
        return 0
