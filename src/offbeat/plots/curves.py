"""Plots learning curves of one or several run directories.

A curve shows the returns of evaluations, with the returns of training episodes as a faint line behind it. Runs that
differ only in the seed are one curve: their interquartile mean, with its 95 % bootstrap band (statistics.py). Other
runs are separate curves, and the legend shows their differences. A run with several policies has a curve for each.
Each env has its own panel, because returns of different envs cannot be compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from offbeat.core.errors import ConfigError
from offbeat.metrics.text import compact
from offbeat.plots.figures import TITLE, line_style, save_figure
from offbeat.plots.runs import (
    MEMBER,
    MOVING_AVERAGE_POINTS,
    POLICY,
    POPULATION,
    Run,
    XAxis,
    aligned,
    moving_average,
    read_run,
)
from offbeat.plots.statistics import iqm, stratified_bootstrap_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TIME_UNITS = ((7200.0, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
"""(minimum number of seconds, seconds per unit, unit), from the largest unit to the smallest."""
_SEED, _ENV, _DIRECTORY = "run.seed", "run.env", "directory"
_GREY = "#555555"
_FAINT: dict[str, Any] = {"linewidth": 1.0, "alpha": 0.4}
"""Style of training returns if there are evaluations."""
_STRONG: dict[str, Any] = {"linewidth": 1.8, "alpha": 1.0}
_DOTTED: dict[str, Any] = {"linewidth": 1.4, "alpha": 0.9, "linestyle": ":"}
_MARKED: dict[str, Any] = {"marker": "o", "markersize": 5, "markeredgecolor": "white", "markeredgewidth": 0.7}
_BAND_ALPHA = 0.2


class HasSettings(Protocol):
    """A run with the settings that distinguish it."""

    @property
    def settings(self) -> Mapping[str, Any]: ...


R = TypeVar("R", bound=HasSettings)


def plot_runs(run_dirs: Sequence[Path], x: XAxis = "steps", *, out: Path, average: bool = False) -> Path:
    """Plot the returns of runs against env steps, frames or wall-clock time; return ``out``.

    A line with markers shows evaluations, a faint line training episodes. Runs that differ only in the seed are one
    group, plotted over their common range. With several policies, each of them has its lines.

    Args:
        run_dirs: Paths of run directories.
        x: Quantity on the x axis.
        out: Path of the image, in any format of matplotlib (.png, .svg, .pdf, ...).
        average: Whether to add the moving average of the training returns over 100 points, as a dotted line.

    Raises:
        ConfigError: a directory is not a run or has no returns yet, or ``out`` has an unknown suffix or cannot be
            written.
    """
    if not run_dirs:
        raise ConfigError("no run to plot: pass a run directory, offbeat plot RUN")
    directories = list({Path(run_dir).resolve(): Path(run_dir) for run_dir in run_dirs}.values())
    runs = _distinguished({directory: read_run(directory, x) for directory in directories})
    figure = _draw(_panels(runs), x, average=average)
    save_figure(figure, out)
    return out


# --- groups and panels ---------------------------------------------------------------------------------------


def _distinguished(runs: Mapping[Path, Sequence[Run]]) -> list[Run]:
    """Add the directory's name to the settings of runs that have the config and seed of another run."""
    earlier: set[str] = set()
    distinguished = []
    for directory, run in ((directory, run) for directory, policies in runs.items() for run in policies):
        settings = json.dumps(run.settings, sort_keys=True, default=str)
        name = directory.parent.name if (directory.parent / "trial.toml").is_file() else directory.name
        distinguished.append(replace(run, settings={**run.settings, _DIRECTORY: name}) if settings in earlier else run)
        earlier.add(settings)
    return distinguished


def _panels(runs: Sequence[Run]) -> dict[str, list[list[Run]]]:
    """Return the groups of runs of each env."""
    envs = dict.fromkeys(str(run.settings.get(_ENV, "?")) for run in runs)
    return {env: group_by_settings([run for run in runs if str(run.settings.get(_ENV, "?")) == env]) for env in envs}


def group_by_settings(runs: Sequence[R]) -> list[list[R]]:
    """Return groups of runs that differ only in the seed."""
    groups: dict[str, list[R]] = {}
    for run in runs:
        settings = {key: value for key, value in run.settings.items() if key != _SEED}
        groups.setdefault(json.dumps(settings, sort_keys=True, default=str), []).append(run)
    return list(groups.values())


# --- labels -------------------------------------------------------------------------------------------------


def labels_of(settings: Sequence[Mapping[str, Any]], max_keys: int = 4) -> list[str]:
    """Return one label per group with the settings that differ, such as 'clip 0.1, epochs 4'."""
    return [_label(each, _differing(settings), max_keys) for each in settings]


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values differ. Those of a policy's table are compared where there is such a policy."""
    keys = dict.fromkeys(key for each in settings for key in each if key != _SEED)
    return [
        key
        for key in keys
        if len({json.dumps(each.get(key), default=str) for each in settings if _has_table_of(key, each)}) > 1
    ]


def _has_table_of(key: str, settings: Mapping[str, Any]) -> bool:
    if not key.startswith("policies."):
        return True
    table = ".".join(key.split(".")[:2])
    return any(other.startswith(f"{table}.") for other in settings)


def _label(settings: Mapping[str, Any], differing: Sequence[str], max_keys: int = 4) -> str:
    if MEMBER in settings:  # its other settings have changed during the run
        differing = [key for key in (POPULATION, MEMBER, POLICY) if key in differing or key == MEMBER]
    else:
        unset = [key for key in (POPULATION, MEMBER, _DIRECTORY) if key not in settings]
        differing = [key for key in differing if key not in unset]
    shown, more = differing[:max_keys], len(differing) - max_keys
    tail = [f"{more} more"] if more > 0 else []
    return ", ".join([*(_named(key, settings.get(key)) for key in shown), *tail])


def _named(key: str, value: Any) -> str:
    if key == POLICY:
        return "all agents" if value is None else f"policy {value}"
    if key in ("run.algorithm", "run.env", "runtime.runtime", POPULATION):
        return str(value)
    table, _, name = key.rpartition(".")
    if table.startswith("policies."):
        name = f"{name} of {table.split('.')[1]}"
    return f"{name} -" if value is None else f"{name} {value}"


def _title(runs: Sequence[Run]) -> str:
    algorithms = dict.fromkeys(str(run.settings.get("run.algorithm", "?")).upper() for run in runs)
    envs = dict.fromkeys(str(run.settings.get(_ENV, "?")) for run in runs)
    names = " and ".join(algorithms) if len(algorithms) <= 2 else f"Returns of {len(runs)} runs"
    return f"{names} on {next(iter(envs)) if len(envs) == 1 else f'{len(envs)} envs'}"


# --- drawing ------------------------------------------------------------------------------------------------


def _draw(panels: Mapping[str, Sequence[Sequence[Run]]], x: XAxis, *, average: bool) -> Figure:
    from matplotlib.figure import Figure

    labels = _labels(panels)
    names = list(dict.fromkeys(label for panel in labels.values() for label in panel))
    columns = math.ceil(math.sqrt(len(panels)))
    rows = math.ceil(len(panels) / columns)
    legend_columns = 1 if max(map(len, names)) > 45 else 2
    height = (4.2 if rows > 1 else 4.8) * rows + 0.2 * math.ceil(len(names) / legend_columns)
    figure = Figure(figsize=(8.0 if columns == 1 else 5.5 * columns, height), dpi=150, layout="constrained")
    scale, x_label = _x_axis([group for panel in panels.values() for group in panel], x)
    for index, (env, panel) in enumerate(panels.items()):
        axes = figure.add_subplot(rows, columns, index + 1)
        for group, label in zip(panel, labels[env], strict=True):
            _draw_group(axes, group, names.index(label), scale, average=average)
        _style_axes(axes, x_label, per_agent=any(run.per_agent for group in panel for run in group))
        if len(panels) > 1:
            axes.set_title(", ".join(filter(None, [env, _seeds(max(panel, key=len))])), fontsize=10)
    groups = [group for panel in panels.values() for group in panel]
    figure.suptitle(_title([run for group in groups for run in group]), **TITLE)
    figure.legend(
        handles=[*_group_handles(names), *_kind_handles(groups, names, average=average)],
        loc="outside lower center", ncols=legend_columns, frameon=False, fontsize=9,
    )  # fmt: skip
    return figure


def _labels(panels: Mapping[str, Sequence[Sequence[Run]]]) -> dict[str, list[str]]:
    """Return the label of each group: the settings that differ in any panel; with a single panel, the seeds too."""
    settings = {env: [group[0].settings for group in panel] for env, panel in panels.items()}
    differing = list(dict.fromkeys(key for each in settings.values() for key in _differing(each)))
    if len(panels) > 1:
        return {env: [_label(group, differing) for group in each] for env, each in settings.items()}
    return {
        env: [
            f"{label} ({seeds})" if label and seeds else label or seeds
            for group, label in zip(panel, names, strict=True)
            for seeds in [_seeds(group)]
        ]
        for env, panel in panels.items()
        for names in [labels_of(settings[env])]
    }


def _seeds(group: Sequence[Run]) -> str:
    if MEMBER in group[0].settings:
        return ""
    return f"{len(group)} seeds" if len(group) > 1 else f"seed {group[0].settings.get(_SEED, '?')}"


def _group_handles(names: Sequence[str]) -> list[Any]:
    """Return the legend's entries for the color of each group of runs; none for a single group."""
    from matplotlib.lines import Line2D

    if len(names) == 1:
        return []
    return [Line2D([], [], linewidth=2.5, label=name, **line_style(index)) for index, name in enumerate(names) if name]


def _kind_handles(groups: Sequence[Sequence[Run]], names: Sequence[str], *, average: bool) -> list[Any]:
    """Return the legend's entries for the kinds of lines: evaluation, training, average, interval.

    For a single group they have its color, and its seeds in the text. Otherwise they are grey.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    single = len(names) == 1
    color = line_style(0)["color"] if single else _GREY
    several = any(len(group) > 1 for group in groups)
    seeds = (names[0] if single else "") or "the seeds"
    mean = f", interquartile mean of {seeds}" if several else f", {names[0]}" if single and names[0] else ""
    runs = [run for group in groups for run in group]
    kinds: list[Any] = []
    if any(len(run.evaluation.x) for run in runs):
        kinds.append(Line2D([], [], color=color, label=f"evaluation{mean}", **_STRONG, **_MARKED))
    if any(len(run.training.x) for run in runs):
        style = _FAINT if kinds else _STRONG
        kinds.append(Line2D([], [], color=color, label=f"training episodes{'' if kinds else mean}", **style))
    if average:
        kinds.append(
            Line2D([], [], color=color, label=f"training, average over {MOVING_AVERAGE_POINTS} points", **_DOTTED)
        )
    if several:
        kinds.append(Patch(color=color, alpha=_BAND_ALPHA, linewidth=0, label="95 % bootstrap interval"))
    return kinds


def _draw_group(axes: Axes, group: Sequence[Run], index: int, scale: float, *, average: bool) -> None:
    style = line_style(index)
    training, training_y = aligned([run.training for run in group])
    evaluation, evaluation_y = aligned([run.evaluation for run in group])
    axes.plot(training / scale, iqm(training_y, axis=0), **style, **(_FAINT if len(evaluation) else _STRONG))
    if average:
        averaged, averaged_y = aligned([moving_average(run.training) for run in group])
        axes.plot(averaged / scale, iqm(averaged_y, axis=0), **{**style, **_DOTTED})
    axes.plot(evaluation / scale, iqm(evaluation_y, axis=0), **style, **_STRONG, **_MARKED, zorder=3)
    if len(group) > 1:  # one band per group: of the evaluations if there is more than one point
        banded, banded_y = (evaluation, evaluation_y) if len(evaluation) > 1 else (training, training_y)
        band = stratified_bootstrap_band(banded_y)
        axes.fill_between(banded / scale, *band, color=style["color"], alpha=_BAND_ALPHA, linewidth=0)


def _style_axes(axes: Axes, x_label: str, *, per_agent: bool) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set_xlabel(x_label)
    axes.set_ylabel("episode return per agent" if per_agent else "episode return")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.set_xlim(left=0)
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _x_axis(groups: Sequence[Sequence[Run]], x: XAxis) -> tuple[float, str]:
    """Return the size of one unit of the x axis, and the label of the axis."""
    if x != "time":
        return 1.0, {"steps": "env steps", "frames": "frames"}[x]
    curves = [curve for group in groups for run in group for curve in (run.training, run.evaluation)]
    longest = max(curve.x.max(initial=0.0) for curve in curves)
    scale, unit = next((scale, unit) for least, scale, unit in _TIME_UNITS if longest >= least)
    return scale, f"wall-clock time ({unit})"
