"""Plots adaptation curves: the return of each episode in a new task, as the policy learns what the task is.

The numbers are in the metrics of evaluations. Runs that differ only in the seed are one curve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from offbeat.config.registry import algorithm_title
from offbeat.core.errors import ConfigError
from offbeat.core.types import F64
from offbeat.metrics.names import ADAPTATION, ADAPTATION_TRIALS, adaptation_key
from offbeat.metrics.sinks import read_metrics
from offbeat.metrics.text import compact, counted
from offbeat.plots.figures import TITLE, line_style, literal, show_grid, wrapped
from offbeat.plots.labels import group_by_settings, labels_of, seeds_of
from offbeat.plots.legends import curve_handle, curve_handles, legend_of
from offbeat.plots.runs import OF_LINES, NothingToDraw, evaluated, read_each, read_settings, refuse_changed
from offbeat.plots.statistics import FEWEST_FOR_INTERVAL, band_of, iqm
from offbeat.plots.ticks import show_compact_numbers
from offbeat.run_directory.paths import require_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NORMAL_QUANTILE = 1.96
"""Standard errors on each side of a mean that make a 95 % interval."""
_WIDTH = 8.0
"""Of the picture, in inches."""
_FIRST: dict[str, Any] = {"color": "#7F7F7F", "linestyle": "--"}
"""Style of the first evaluation."""
_BAND_ALPHA = 0.2


@dataclass(frozen=True)
class Adaptation:
    """One evaluation in new tasks."""

    env_steps: int
    """Env steps that the weights had learned from."""
    trials: int
    means: F64
    """[episodes]: mean return over the trials."""
    deviations: F64
    """[episodes]: standard deviation of the return over the trials, divided by their number."""


@dataclass(frozen=True)
class AdaptationCurve:
    """What is drawn of the evaluations of one or several seeds; all arrays [episodes]."""

    mean: F64
    low: F64
    high: F64
    """The edges of the band; equal to the mean without a band."""
    text: str
    """The env steps and the trials."""
    band: str
    """What the line and the band are; empty without a band."""


@dataclass(frozen=True)
class AdaptationRun:
    """The evaluations of a run that are plotted."""

    settings: Mapping[str, Any]
    """'table.key' -> value, as in `plots.runs.Run`."""
    first: Adaptation
    last: Adaptation


class NoEvaluation(NothingToDraw):
    """A run has no evaluation in new tasks."""


def draw_adaptation(run_dirs: Sequence[Path], *, notify: Callable[[str], None]) -> Figure:
    """Draw the last evaluation of each group of runs, and of a single group the first one too; return the figure.

    Args:
        run_dirs: Paths of run directories. Those without an evaluation in new tasks are left out.
        notify: Called with a message that names the runs that are left out.

    Raises:
        ConfigError: a directory is not a run, or none has an evaluation in new tasks; or the runs are on several envs
            or have trials of different lengths.
    """
    paths = {path: path for path in run_dirs}
    runs = list(read_each(paths, read_adaptation, notify, "they have no evaluation in new tasks").values())
    for what, values in (
        ("envs", {str(run.settings.get("run.env")) for run in runs}),
        ("numbers of episodes in a trial", {str(len(run.last.means)) for run in runs}),
    ):
        if len(values) > 1:
            raise ConfigError(
                f"the runs have different {what} ({', '.join(sorted(values))}), which cannot be compared in one "
                "picture: plot them one by one"
            )
    return _draw(group_by_settings(runs))


def read_adaptation(run_dir: Path) -> AdaptationRun:
    """Read the first and the last evaluation of a run.

    Raises:
        NoEvaluation: it has no evaluation in new tasks.
        ConfigError: it is not a run, or has an invalid file.
    """
    require_run(run_dir)
    lines = read_metrics(run_dir / "metrics.jsonl", lambda key: key in OF_LINES or key.startswith(ADAPTATION))
    with refuse_changed(run_dir):
        settings = read_settings(run_dir)
        found = [adaptation for line in evaluated(lines) if (adaptation := _adaptation_of(line)) is not None]
    if not found:
        raise NoEvaluation(
            f"{run_dir} has no evaluation in new tasks: --x episodes is for algorithms that infer tasks, such as "
            "pearl, after their first evaluation"
        )
    return AdaptationRun(settings, found[0], found[-1])


def _adaptation_of(line: Mapping[str, Any]) -> Adaptation | None:
    """Return the evaluation in a metrics line; None if it has none."""
    means: list[float] = []
    deviations: list[float] = []
    while (mean := line.get(adaptation_key(len(means) + 1, "mean"))) is not None:
        deviations.append(float(line[adaptation_key(len(means) + 1, "std")]))
        means.append(float(mean))
    trials = line.get(ADAPTATION_TRIALS)
    if not trials or not means:
        return None
    return Adaptation(int(line.get("env_steps") or 0), int(trials), np.array(means), np.array(deviations))


def curve_of(evaluations: Sequence[Adaptation]) -> AdaptationCurve:
    """Return the curve of one evaluation over its trials, or of several runs over the runs, as in learning curves."""
    means = np.stack([each.means for each in evaluations])
    trials = sum(each.trials for each in evaluations)
    if len(means) > 1:
        mean, low, high = iqm(means, axis=0), *band_of(means)
        band = "mean, range" if len(means) < FEWEST_FOR_INTERVAL else "interquartile mean, 95 % bootstrap interval"
    else:
        mean, (low, high) = means[0], _interval(evaluations[0])
        band = "" if trials < FEWEST_FOR_INTERVAL else "mean, 95 % interval"
    steps = compact(float(np.mean([each.env_steps for each in evaluations])))
    return AdaptationCurve(mean, low, high, f"after {steps} env steps ({counted(trials, 'trial')})", band)


def _interval(evaluation: Adaptation) -> tuple[F64, F64]:
    """Return the 95 % interval of the mean over the trials; of few trials the mean itself."""
    if evaluation.trials < FEWEST_FOR_INTERVAL:
        return evaluation.means, evaluation.means
    half_width = _NORMAL_QUANTILE * evaluation.deviations / np.sqrt(evaluation.trials - 1)
    return evaluation.means - half_width, evaluation.means + half_width


# --- drawing ------------------------------------------------------------------------------------------------


def _draw(groups: Sequence[Sequence[AdaptationRun]]) -> Figure:
    from matplotlib.figure import Figure

    curves = [curve_of([run.last for run in group]) for group in groups]
    first = []
    if len(groups) == 1 and any(run.first.env_steps < run.last.env_steps for run in groups[0]):
        first = [curve_of([run.first for run in groups[0]])]
    legend = legend_of(_handles(groups, curves, first), _WIDTH)
    figure = Figure(figsize=(_WIDTH, 4.8 + legend.height), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for curve in first:
        _draw_curve(axes, curve, {**_FIRST, "markersize": 4})
    for index, curve in enumerate(curves):
        _draw_curve(axes, curve, {**line_style(index), "markersize": 5})
    _style(axes, groups[0][0])
    legend.draw(figure)
    return figure


def _handles(
    groups: Sequence[Sequence[AdaptationRun]], curves: Sequence[AdaptationCurve], first: Sequence[AdaptationCurve]
) -> list[Any]:
    """Return the entries of the legend; if all curves have the same kind of band, an entry of its own says which."""
    from matplotlib.patches import Patch

    bands = {curve.band for curve in (*first, *curves)}

    def text(name: str, curve: AdaptationCurve) -> str:
        band = curve.band if len(bands) > 1 else ""
        return ", ".join(filter(None, [name, curve.text, band]))

    (names,) = labels_of([[group[0].settings for group in groups]])
    named = [", ".join(filter(None, [name, seeds_of(group)])) for group, name in zip(groups, names, strict=True)]
    handles: list[Any] = [curve_handle(text("first evaluation", curve), _FIRST) for curve in first]
    handles += curve_handles([text(name, curve) for name, curve in zip(named, curves, strict=True)])
    if len(bands) == 1 and (band := bands.pop()):
        handles.append(Patch(color="#555555", alpha=_BAND_ALPHA, linewidth=0, label=band))
    return handles


def _draw_curve(axes: Axes, curve: AdaptationCurve, style: Mapping[str, Any]) -> None:
    episodes = np.arange(1, len(curve.mean) + 1)
    axes.fill_between(episodes, curve.low, curve.high, color=style["color"], alpha=_BAND_ALPHA, linewidth=0)
    axes.plot(episodes, curve.mean, linewidth=1.8, marker="o", **style)


def _style(axes: Axes, run: AdaptationRun) -> None:
    from matplotlib.ticker import MaxNLocator

    episodes = len(run.last.means)
    axes.axvline(episodes - 0.5, color="#555555", linewidth=1.0, linestyle=":")
    for x, alignment, text in (
        (episodes - 0.55, "right", "task variable from the prior"),
        (episodes - 0.45, "left", "posterior"),
    ):
        axes.text(x, 1.0, text, transform=axes.get_xaxis_transform(), ha=alignment, va="bottom", fontsize=9)
    axes.set_xlabel("episode in a new task")
    axes.set_ylabel("return of the episode")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    show_compact_numbers(axes.yaxis)
    axes.set_xlim(0.8, episodes + 0.3)
    show_grid(axes)
    algorithm, env = (run.settings.get(f"run.{key}", "?") for key in ("algorithm", "env"))
    axes.set_title(f"{wrapped(literal(f'{algorithm_title(algorithm)} on {env}'), 7.0, 15)}\n", **TITLE)
