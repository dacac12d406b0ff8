"""`offbeat plot`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from offbeat.cli.busy import busy
from offbeat.core.errors import ConfigError


@dataclass(frozen=True)
class Plot:
    """Draw return against steps, frames or time: offbeat plot runs/A runs/B, or offbeat plot experiments/NAME."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN...")]
    """Directories of runs, trials or experiments; seeds of one config become their IQM with a 95 % band."""
    x: Literal["steps", "frames", "time"] = "steps"
    """What the horizontal axis shows."""
    out: Annotated[Path | None, arg(metavar="FILE.png", help_behavior_hint="")] = None
    """Where to write. Default: return.png in the directory, or in the current folder for several."""
    average: bool = False
    """Also draw the moving average of the training returns over 100 points."""

    def run(self) -> int:
        from offbeat.plots.curves import plot_runs
        from offbeat.plots.runs import runs_of

        if not self.runs:
            raise ConfigError("no run was given: run offbeat plot RUN, a directory that `offbeat train` made")
        out = self.out or (self.runs[0] / "return.png" if len(self.runs) == 1 else Path("return.png"))
        if self.out is None and out.is_symlink():
            raise ConfigError(f"{out} is a link, and what it leads to would be replaced: pass --out FILE.png")
        with busy("drawing"):
            drawn = plot_runs(
                [run for path in self.runs for run in runs_of(path)], x=self.x, out=out, average=self.average
            )
        print(drawn)
        return 0
