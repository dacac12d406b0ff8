"""`offbeat plot`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg

from offbeat.cli.output import spinner
from offbeat.core.printing import print_text


@dataclass(frozen=True)
class Plot:
    """Plot returns or other metrics of runs: offbeat plot runs/A runs/B, or offbeat plot experiments/NAME."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN...", help_behavior_hint="")]
    """Directories of runs, trials or experiments. Runs that differ only in the seed are drawn as one curve: their IQM
    with a 95 % band; of two or three, their mean with their range. Those without returns yet are left out."""
    x: Literal["steps", "frames", "time", "episodes"] = "steps"
    """The quantity on the horizontal axis. episodes: how the return of the last evaluation changes over the episodes in
    a new task, for algorithms that infer tasks."""
    out: Annotated[Path | None, arg(metavar="FILE.png", help_behavior_hint="")] = None
    """File to write; its suffix selects the format: .png, .pdf, .svg and others. Default: return.png in the directory,
    or in the current folder for several directories; with --metric entropy, entropy.png; with several metrics,
    metrics.png; with --x episodes, adaptation.png. For runs with a league, their Elo ratings are drawn into a second
    file, return-elo.png, or FILE-elo.png, with a number if that file exists."""
    metric: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME", help_behavior_hint="")] = ()
    """Metric to draw in place of the return, such as entropy. Pass --metric several times for a panel each; `--metric
    return` is the return."""
    label: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="TEXT", help_behavior_hint="")] = ()
    """Text for the legend in place of the settings that differ. Pass --label once for each RUN, in their order, or once
    for each curve."""
    smooth: Annotated[int, arg(metavar="POINTS")] = 1
    """Draw the moving average of each line over so many points."""
    average: bool = False
    """Also draw the moving average of the training returns over 100 points, as a dotted line."""
    title: Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")] = None
    """Title. Default: the algorithms and envs of the runs."""

    def run(self) -> int:
        from offbeat.api.plot import plot
        from offbeat.plots.runs import RETURN

        with spinner("drawing"):
            drawn = plot(
                self.runs,
                self.x,
                out=self.out,
                metrics=self.metric or RETURN,
                labels=self.label,
                smooth=self.smooth,
                average=self.average,
                title=self.title,
                notify=lambda text: print_text(text, sys.stderr),
            )
        for path in drawn:
            print(path)
        return 0
