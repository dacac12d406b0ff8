"""Draws learning curves of one or several run directories.

A curve shows the returns of evaluations, with the returns of training episodes as a faint line behind it, or another
metric. Runs that differ only in the seed are one curve, with a band (statistics.py). Other runs are separate curves,
and the legend shows their differences (labels.py). A run with several policies has a curve for each. Each metric on
each env has its own panel (panels.py), because their values cannot be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbeat.config.registry import algorithm_title
from offbeat.core.errors import ConfigError
from offbeat.core.messages import ignore
from offbeat.core.types import F64
from offbeat.metrics.text import first_few
from offbeat.plots.alignment import MOVING_AVERAGE_POINTS, Curve, aligned, moving_average
from offbeat.plots.figures import TITLE, line_style, literal, show_grid, wrapped
from offbeat.plots.labels import ALGORITHM, seeds_of
from offbeat.plots.legends import curve_handles, legend_of
from offbeat.plots.panels import UNITS, Panel, ended_early, names_of, read_panels
from offbeat.plots.runs import ELO, RETURN, NothingToDraw, PlottedRun, XAxis
from offbeat.plots.statistics import FEWEST_FOR_INTERVAL, band_of, iqm
from offbeat.plots.ticks import show_compact_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TIME_UNITS = ((7200.0, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
"""(minimum number of seconds, seconds per unit, unit), from the largest unit to the smallest."""
_MOST_NAMED = 3
"""Curves that a message names; the others are counted."""
_GREY = "#555555"
_FAINT: dict[str, Any] = {"linewidth": 1.0, "alpha": 0.4}
"""Style of training returns if there are evaluations."""
_STRONG: dict[str, Any] = {"linewidth": 1.8, "alpha": 1.0}
_DOTTED: dict[str, Any] = {"linewidth": 1.4, "alpha": 0.9, "linestyle": ":"}
_MARKED: dict[str, Any] = {"marker": "o", "markersize": 5, "markeredgecolor": "white", "markeredgewidth": 0.7}
_BAND_ALPHA = 0.2


def draw_runs(
    run_dirs: Sequence[Path],
    x: XAxis = "steps",
    *,
    metrics: Sequence[str] = (RETURN,),
    labels: Sequence[str] = (),
    smooth: int = 1,
    average: bool = False,
    title: str | None = None,
    notify: Callable[[str], None] = ignore,
) -> Figure:
    """Draw the returns or other metrics of runs against env steps, frames or wall-clock time; return the figure.

    A line with markers shows evaluations, a faint line training episodes. Runs that differ only in the seed are one
    curve: their points are paired by their number, or interpolated over their common range. With several policies, each
    of them has its curves.

    Args:
        run_dirs: Paths of run directories.
        x: Quantity on the x axis.
        metrics: "return", or names of metrics; each has its own panel.
        labels: Texts for the legend in place of the settings that differ: one for each run directory, or one for each
            curve. Runs with the same label are still separate curves if their settings differ.
        smooth: Number of points; each line is the moving average over its last ones. 1 leaves it as it is.
        average: Whether to add the moving average of the training returns over 100 points, as a dotted line.
        title: Title in place of the names of algorithms and envs.
        notify: Called with messages that name the runs without one of the metrics, which are left out of its panel, and
            the seeds that end a curve early.

    Raises:
        ConfigError: a directory is not a run or has no returns yet, no run has one of the metrics, or the number of
            labels is wrong.
    """
    if not run_dirs:
        raise ConfigError("no run to plot: pass a run directory, `offbeat plot RUN`")
    if smooth < 1:
        raise ConfigError(f"smooth is {smooth}, but at least 1 point is expected: pass, for example, --smooth 10")
    directories = list({Path(run_dir).resolve(): Path(run_dir) for run_dir in run_dirs}.values())
    of_runs = dict(zip(map(Path, run_dirs), labels, strict=True)) if len(labels) == len(run_dirs) else {}
    panels = read_panels(directories, x, metrics, of_runs, notify)
    names = names_of(panels, () if of_runs else labels)
    _require_points(panels)
    if early := ended_early(panels, names, x):
        named = "; ".join(first_few(early, _MOST_NAMED))
        notify(f"a curve of several seeds ends with the shortest of them: {named}")
    return _draw(panels, names, x, smooth=smooth, average=average, title=title)


def _require_points(panels: Sequence[Panel]) -> None:
    """Refuse a picture in which there would be no curve."""
    groups = [group for panel in panels for group in panel.groups]
    kinds = [([run.training for run in group], [run.evaluation for run in group]) for group in groups]
    if not any(len(aligned(curves)[0]) for kind in kinds for curves in kind):
        raise NothingToDraw(
            "there is no curve to plot: runs that differ only in the seed are plotted over their common range, and "
            "these have none. Plot them one by one, or train the shorter ones further"
        )


def _draw(
    panels: Sequence[Panel],
    names: Sequence[Sequence[str]],
    x: XAxis,
    *,
    smooth: int,
    average: bool,
    title: str | None,
) -> Figure:
    from matplotlib.figure import Figure

    distinct = list(dict.fromkeys(name for each in names for name in each))
    groups = [group for panel in panels for group in panel.groups]
    named = curve_handles(distinct) if len(distinct) > 1 else []
    rows, columns, places = _grid(panels)
    width = 8.0 if columns == 1 else 5.5 * columns
    legend = legend_of([*named, *_kind_handles(panels, distinct, smooth=smooth, average=average)], width)
    height = (4.2 if rows > 1 else 4.8) * rows + legend.height
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    scale, x_label = _x_axis(groups, x)
    for panel, each, place in zip(panels, names, places, strict=True):
        axes = figure.add_subplot(rows, columns, place)
        averaged = average and panel.metric == RETURN
        for group, name in zip(panel.groups, each, strict=True):
            _draw_group(axes, group, distinct.index(name), scale, smooth=smooth, average=averaged)
        _style_axes(axes, x_label, panel)
        if len({other.env for other in panels}) > 1:
            axes.set_title(wrapped(_panel_title(panel), width / columns - 1, 10), fontsize=10)
    figure.suptitle(wrapped(title or _title(panels), width, 15), **TITLE)
    legend.draw(figure)
    return figure


def _grid(panels: Sequence[Panel]) -> tuple[int, int, list[int]]:
    """Return the rows, the columns, and the place of each panel, from 1 in the order of reading.

    With several metrics on several envs there is a column for each env, with a gap where it does not have a metric.
    """
    envs, metrics = (list(dict.fromkeys(getattr(panel, key) for panel in panels)) for key in ("env", "metric"))
    if len(envs) > 1 and len(metrics) > 1:
        places = [metrics.index(panel.metric) * len(envs) + envs.index(panel.env) + 1 for panel in panels]
        return len(metrics), len(envs), places
    columns = math.ceil(math.sqrt(len(panels)))
    return math.ceil(len(panels) / columns), columns, list(range(1, len(panels) + 1))


def _title(panels: Sequence[Panel]) -> str:
    runs = [run for panel in panels for group in panel.groups for run in group]
    algorithms = list(dict.fromkeys(algorithm_title(run.settings.get(ALGORITHM, "?")) for run in runs))
    names = " and ".join(algorithms) if len(algorithms) <= 2 else f"{len(algorithms)} algorithms"
    envs = list(dict.fromkeys(panel.env for panel in panels))
    return literal(f"{names} on {envs[0] if len(envs) == 1 else f'{len(envs)} envs'}")


def _panel_title(panel: Panel) -> str:
    largest = max(panel.groups, key=len)
    return literal(f"{panel.env}, {seeds_of(largest)}" if len(largest) > 1 else panel.env)


def _y_label(panel: Panel) -> str:
    if panel.metric != RETURN:
        return "Elo rating of the newest policy" if panel.metric == ELO else literal(panel.metric)
    several_agents = any(run.per_agent for group in panel.groups for run in group)
    return "episode return per agent" if several_agents else "episode return"


# --- legend -------------------------------------------------------------------------------------------------


def _kind_handles(panels: Sequence[Panel], names: Sequence[str], *, smooth: int, average: bool) -> list[Any]:
    """Return the legend's entries for the kinds of lines: evaluation, training, average, band, smoothing.

    For a single group they have its color, and its name in the text. Otherwise they are grey.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    color = line_style(0)["color"] if len(names) == 1 else _GREY
    groups = [group for panel in panels for group in panel.groups]
    of_returns = [group for panel in panels if panel.metric == RETURN for group in panel.groups]
    sizes = {len(group) for group in groups}
    of = ", ".join(filter(None, [names[0] if len(names) == 1 else "", _mean_text(sizes)]))
    texts: list[tuple[str, dict[str, Any]]] = []
    if any(len(aligned([run.evaluation for run in group])[0]) for group in of_returns):
        texts.append(("evaluation", {**_STRONG, **_MARKED}))
    if any(len(aligned([run.training for run in group])[0]) for group in of_returns):
        texts.append(("training episodes", _FAINT if texts else _STRONG))
    if not texts and of:
        texts.append(("", _STRONG))
    kinds: list[Any] = [
        Line2D([], [], color=color, label=", ".join(filter(None, [text, "" if index else of])), **style)
        for index, (text, style) in enumerate(texts)
    ]
    if average and of_returns:
        kinds.append(
            Line2D([], [], color=color, label=f"training, average over {MOVING_AVERAGE_POINTS} points", **_DOTTED)
        )
    if max(sizes) > 1:
        kinds.append(Patch(color=color, alpha=_BAND_ALPHA, linewidth=0, label=_band_text(sizes)))
    if smooth > 1:
        lines = "other lines" if average and of_returns else "each line"
        kinds.append(Line2D([], [], linestyle="", label=f"{lines}: moving average over {smooth} points"))
    return kinds


def _mean_text(sizes: set[int]) -> str:
    """Return what a line shows of groups of these numbers of runs."""
    if max(sizes) == 1:
        return ""
    mean = "mean" if max(sizes) < FEWEST_FOR_INTERVAL else "interquartile mean"
    return f"{mean} of {f'{max(sizes)} seeds' if len(sizes) == 1 else 'the seeds'}"


def _band_text(sizes: set[int]) -> str:
    """Return what the bands of groups of these numbers of runs are."""
    several = {size for size in sizes if size > 1}
    if min(several) >= FEWEST_FOR_INTERVAL:
        return "95 % bootstrap interval"
    if max(several) < FEWEST_FOR_INTERVAL:
        return f"range of the {f'{max(several)} ' if len(sizes) == 1 else ''}seeds"
    return f"95 % bootstrap interval; of fewer than {FEWEST_FOR_INTERVAL} seeds, their range"


# --- axes ---------------------------------------------------------------------------------------------------


def _draw_group(
    axes: Axes, group: Sequence[PlottedRun], index: int, scale: float, *, smooth: int, average: bool
) -> None:
    style = line_style(index)
    training, training_y = _averaged([run.training for run in group], smooth)
    evaluation, evaluation_y = _averaged([run.evaluation for run in group], smooth)
    strength = _FAINT if len(evaluation) else _STRONG
    point = _MARKED if len(training) == 1 else {}  # a line of one point would be invisible
    axes.plot(training / scale, iqm(training_y, axis=0), **style, **strength, **point)
    if average:
        averaged, averaged_y = _averaged([run.training for run in group], MOVING_AVERAGE_POINTS)
        axes.plot(averaged / scale, iqm(averaged_y, axis=0), **{**style, **_DOTTED})
    axes.plot(evaluation / scale, iqm(evaluation_y, axis=0), **style, **_STRONG, **_MARKED, zorder=3)
    if len(group) > 1:  # one band per group: of the evaluations if there is more than one point
        banded, banded_y = (evaluation, evaluation_y) if len(evaluation) > 1 else (training, training_y)
        low, high = band_of(banded_y)
        axes.fill_between(banded / scale, low, high, color=style["color"], alpha=_BAND_ALPHA, linewidth=0)


def _averaged(curves: Sequence[Curve], window: int) -> tuple[F64, F64]:
    """Return the moving averages of curves, aligned."""
    return aligned([moving_average(curve, window) for curve in curves])


def _style_axes(axes: Axes, x_label: str, panel: Panel) -> None:
    axes.set_xlabel(x_label)
    axes.set_ylabel(_y_label(panel))
    show_compact_numbers(axes.xaxis)
    if panel.metric == ELO:  # a rating is usually written as 1240, not as 1.24k
        axes.ticklabel_format(axis="y", useOffset=False)
    else:
        show_compact_numbers(axes.yaxis)
    axes.set_xlim(left=0)
    show_grid(axes)


def _x_axis(groups: Sequence[Sequence[PlottedRun]], x: XAxis) -> tuple[float, str]:
    """Return the size of one unit of the x axis, and the label of the axis."""
    if x != "time":
        return 1.0, UNITS[x]
    curves = [curve for group in groups for run in group for curve in (run.training, run.evaluation)]
    longest = max(curve.x.max(initial=0.0) for curve in curves)
    scale, unit = next((scale, unit) for least, scale, unit in _TIME_UNITS if longest >= least)
    return scale, f"wall-clock time ({unit})"
