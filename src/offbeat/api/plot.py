"""`offbeat.plot`: draws the returns or other metrics of runs into a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Literal

from offbeat.api.caller_warnings import warn_caller
from offbeat.config.arguments import checked
from offbeat.core.argument_notation import for_reader
from offbeat.core.errors import ConfigError
from offbeat.core.fields import read
from offbeat.core.files import GivenPath, user_path, user_paths
from offbeat.core.messages import once
from offbeat.metrics.progress.notebook import show_picture
from offbeat.plots.adaptation import draw_adaptation
from offbeat.plots.curves import draw_runs
from offbeat.plots.figures import require_format, save_figure
from offbeat.plots.league import plot_elo
from offbeat.plots.runs import RETURN, read_each, runs_of

X = Literal["steps", "frames", "time", "episodes"]


@checked
def plot(
    runs: GivenPath | Sequence[GivenPath],
    x: X = "steps",
    *,
    out: GivenPath | None = None,
    metrics: str | Sequence[str] = RETURN,
    labels: str | Sequence[str] = (),
    smooth: int = 1,
    average: bool = False,
    title: str | None = None,
    notify: Callable[[str], None] = warn_caller,
) -> list[Path]:
    """Draw the returns or other metrics of runs over steps, frames or time, as `offbeat plot` does.

    Runs that differ only in the seed are one curve: their interquartile mean with a 95 % band; of two or three, their
    mean with their range. Of several directories, those that have no returns yet, or lack another metric, are left out;
    with x="episodes", those that have no evaluation in new tasks. In a notebook the pictures are also shown below the
    cell.

    Args:
        runs: a `Run`, or the directory of a run, a trial, an experiment or a population; or several of them.
        x: the quantity on the horizontal axis. "episodes": how the return of the last evaluation changes over the
            episodes in a new task, for algorithms that infer tasks.
        out: the file to write, in any format of matplotlib (.png, .pdf, .svg, ...); None: return.png in the directory,
            or for several directories in the current folder, with a number if the file exists; of another metric the
            file has its name, such as entropy.png, of several metrics metrics.png; with x="episodes", adaptation.png.
        metrics: "return", or the name of a metric of metrics.jsonl; or several, which have a panel each.
        labels: texts for the legend in place of the settings that differ: one for each of the runs, or one for each
            curve.
        smooth: a number of points: each line is the moving average over its last ones.
        average: whether to draw the moving average of the training returns over 100 points too, as a dotted line; only
            with the return.
        title: the title; None: the algorithms and envs.
        notify: for the command line: called with a message that names the directories that are left out, the seeds that
            end a curve early, or the characters that the font lacks; by default it is a Python warning.

    Returns:
        The files that were written. For runs with a league, their Elo ratings are in a second file: return-elo.png
        beside the first one, or the name of `out` with -elo, and with a number if that file exists.

    Raises:
        ConfigError: a directory is not a run, none has returns yet, no run has a metric, the number of labels is wrong,
            or the file cannot be written.
    """
    notify = once(notify)  # the pictures of a league have the same texts
    paths = user_paths(runs)
    if not paths:
        raise ConfigError("no run is given: run `offbeat plot RUN` with a directory that `offbeat train` has created")
    x = read("x", x, X, "pass --x frames")
    drawn, texts = _several(metrics), _several(labels)
    if not drawn:
        raise ConfigError(f"metrics is empty, but at least one is expected: pass metrics={RETURN!r}")
    if x == "episodes":
        _refuse_with_episodes(
            {
                for_reader("metric", "metrics"): drawn != (RETURN,),
                for_reader("label", "labels"): bool(texts),
                "smooth": smooth != 1,
                "average": average,
                "title": title is not None,
            }
        )
    if average and RETURN not in drawn:
        raise ConfigError("average is of the training returns: leave out --average, or draw the return too")
    name = "adaptation.png" if x == "episodes" else f"{_file_stem(drawn)}.png"
    file = user_path(out if out is not None else paths[0] / name if len(paths) == 1 else name)
    if out is None and len(paths) > 1:
        file = _unused(file)
    require_format(file)
    elo = file.with_name(f"{RETURN if out is None else file.stem}-elo{file.suffix}")
    for path in (file, elo) if out is None else ():
        if path.is_symlink():
            raise ConfigError(f"{path} is a symbolic link, and its target would be overwritten: pass --out FILE.png")
    directories = read_each(
        dict(enumerate(paths)), lambda path: runs_of(path, drawn), notify, "no episode has ended there yet"
    )
    every = [run for own in directories.values() for run in own]
    if x == "episodes":
        return _shown([save_figure(draw_adaptation(every, notify=notify), file, notify)])
    if len(texts) == len(paths):
        texts = tuple(texts[index] for index, own in directories.items() for _ in own)
    figure = draw_runs(
        every, x, metrics=drawn, labels=texts, smooth=smooth, average=average, title=title, notify=notify
    )
    save_figure(figure, file, notify)
    elo = elo if out is None and len(paths) == 1 else _unused(elo)  # the user has named only the first file
    ratings = plot_elo(every, x, out=elo, labels=texts, notify=notify)
    return _shown([file, *filter(None, [ratings])])


def _shown(files: list[Path]) -> list[Path]:
    """Return the files; in a notebook, show them."""
    for file in files:
        show_picture(file)
    return files


def _file_stem(metrics: tuple[str, ...]) -> str:
    """Return the name of the default file, without suffix: policies-red-entropy for the metric policies/red/entropy.

    Other punctuation is percent-encoded, so that each metric has its own file.
    """
    if len(metrics) > 1:
        return "metrics"
    stem = re.sub(r"[^\w./]", lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), metrics[0])
    stem = stem.replace("/", "-")
    return f"metric-{stem}" if stem in ("", "adaptation", "metrics", "return-elo") else stem  # names of other pictures


def _unused(path: Path) -> Path:
    """Return the path, or the first one with a number that does not exist: return.png, return-2.png, return-3.png."""
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(each for each in chain((path,), numbered) if not each.exists() and not each.is_symlink())


def _several(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _refuse_with_episodes(given: Mapping[str, bool]) -> None:
    """Refuse arguments that are not supported with x="episodes". `given`: name -> whether it is given."""
    for name in (name for name, is_given in given.items() if is_given):
        raise ConfigError(f"{name} is for curves over training: leave it out with --x episodes")
