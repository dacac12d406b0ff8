"""`offbeat.plot`: draws the learning curves of runs into a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from offbeat.core.errors import ConfigError
from offbeat.core.files import GivenPath, user_path
from offbeat.plots.adaptation import plot_adaptation
from offbeat.plots.curves import plot_runs
from offbeat.plots.league import plot_elo
from offbeat.plots.runs import runs_of

X = Literal["steps", "frames", "time", "episodes"]


def plot(
    runs: GivenPath | Sequence[GivenPath], x: X = "steps", *, out: GivenPath | None = None, average: bool = False
) -> list[Path]:
    """Draw the returns of runs over steps, frames or time, as `offbeat plot` does.

    Runs that differ only in the seed are drawn as their interquartile mean with a 95 % band.

    Args:
        runs: a `Run`, or the directory of a run, a trial, an experiment or a population; or several of them.
        x: the quantity on the horizontal axis. "episodes": how the return of the last evaluation changes over the
            episodes in a new task, for algorithms that infer tasks.
        out: the file to write, in any format of matplotlib; None: return.png in the directory, or in the current folder
            for several directories; with x="episodes", adaptation.png.
        average: whether to draw the moving average of the training returns over 100 points too.

    Returns:
        The files that were written. For a run with a league, its Elo ratings are in a second file, return-elo.png.

    Raises:
        ConfigError: a directory is not a run or has no returns yet, or the file cannot be written.
    """
    paths = [user_path(run) for run in ([runs] if isinstance(runs, str | os.PathLike) else runs)]
    if not paths:
        raise ConfigError("no run is given: run `offbeat plot RUN` with a directory that `offbeat train` has created")
    if average and x == "episodes":
        raise ConfigError("--average is for curves over training: leave it out with --x episodes")
    name = "adaptation.png" if x == "episodes" else "return.png"
    file = (paths[0] / name if len(paths) == 1 else Path(name)) if out is None else user_path(out)
    elo = file.with_name(f"{file.stem}-elo{file.suffix}")
    for path in (file, elo) if out is None else ():
        if path.is_symlink():
            raise ConfigError(f"{path} is a symbolic link, and its target would be overwritten: pass --out FILE.png")
    directories = [run for path in paths for run in runs_of(path)]
    if x == "episodes":
        return [plot_adaptation(directories, out=file)]
    ratings = [plot_elo(path, out=elo) for path in paths if len(paths) == 1]
    return [plot_runs(directories, x=x, out=file, average=average), *filter(None, ratings)]
