"""`offbeat plot`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from offbeat.cli.output import spinner
from offbeat.core.errors import ConfigError


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
        from offbeat.plots.adaptation import plot_adaptation
        from offbeat.plots.curves import plot_runs
        from offbeat.plots.league import plot_elo
        from offbeat.plots.runs import runs_of

        if not self.runs:
            raise ConfigError(
                "no run is given: run `offbeat plot RUN` with a directory that `offbeat train` has created"
            )
        if self.average and self.x == "episodes":
            raise ConfigError("--average is for curves over training: leave it out with --x episodes")
        name = "adaptation.png" if self.x == "episodes" else "return.png"
        out = self.out or (self.runs[0] / name if len(self.runs) == 1 else Path(name))
        elo = out.with_name(f"{out.stem}-elo{out.suffix}")
        for path in (out, elo):
            if self.out is None and path.is_symlink():
                raise ConfigError(
                    f"{path} is a symbolic link, and its target would be overwritten: pass --out FILE.png"
                )
        with spinner("drawing"):
            directories = [run for path in self.runs for run in runs_of(path)]
            drawn: list[Path | None] = []
            if self.x == "episodes":
                drawn.append(plot_adaptation(directories, out=out))
            else:
                drawn.append(plot_runs(directories, x=self.x, out=out, average=self.average))
                drawn += [plot_elo(path, out=elo) for path in self.runs if len(self.runs) == 1]
        for path in filter(None, drawn):
            print(path)
        return 0
