"""Learning curves of one run or of many, drawn from their run directories.

A curve is the return of evaluations, with the return of training episodes as a faint line behind it. Runs that differ
only in the seed become one curve: their interquartile mean, with its 95 % bootstrap band (statistics.py). All others
stay apart, and the legend names what differs. Each env has a panel of its own, because returns of different envs cannot
be compared.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError
from offbeat.metrics.sinks import read_metrics
from offbeat.metrics.text import compact
from offbeat.plots.statistics import iqm, stratified_bootstrap_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
XAxis = Literal["steps", "frames", "time"]

_GRID_POINTS = 200
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000")
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""
_KEYS = {"steps": "env_steps", "frames": "frames", "time": "wall_time_s"}
_TIME_UNITS = ((7200.0, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
"""(from this many seconds on, seconds per unit, unit)"""
_SEED, _ENV = "run.seed", "run.env"
_WINDOW = 100
"""Points of a curve that its moving average is over."""
_GREY = "#555555"
_FAINT: dict[str, Any] = {"linewidth": 1.0, "alpha": 0.4}
"""How training returns look where there are evaluations."""
_STRONG: dict[str, Any] = {"linewidth": 1.8, "alpha": 1.0}
_DOTTED: dict[str, Any] = {"linewidth": 1.4, "alpha": 0.9, "linestyle": ":"}
_MARKED: dict[str, Any] = {"marker": "o", "markersize": 5, "markeredgecolor": "white", "markeredgewidth": 0.7}
_BAND_ALPHA = 0.2
_BOLD: dict[str, Any] = {"fontsize": 13, "fontweight": "bold"}


@dataclass(frozen=True)
class Curve:
    """Returns along x, without the lines where one of the two is not known."""

    x: Floats
    y: Floats


@dataclass(frozen=True)
class Run:
    """What is plotted of a run directory."""

    settings: dict[str, Any]
    """'table.key' -> value, of config.toml; for a session of an experiment, of its trial."""
    training: Curve
    evaluation: Curve


def plot_runs(run_dirs: Sequence[Path], x: XAxis = "steps", *, out: Path, average: bool = False) -> Path:
    """Draw the returns of runs against env steps, frames or wall-clock time; return ``out``.

    A line with markers is the return of evaluations, a faint line that of training episodes. Runs that differ only in
    the seed are one group, drawn over the range that all of them have.

    Args:
        run_dirs: directories that `offbeat train` made.
        x: what they are drawn against.
        out: the picture, in any format that matplotlib writes (.png, .svg, .pdf, ...).
        average: also draw, dotted, the moving average of the training returns over 100 points.

    Raises:
        ConfigError: a directory is no run or has no returns yet, or ``out`` has no such suffix or cannot be written.
    """
    if not run_dirs:
        raise ConfigError("there is nothing to plot: run offbeat plot RUN, with a run directory")
    directories = list({Path(run_dir).resolve(): Path(run_dir) for run_dir in run_dirs}.values())
    runs = _told_apart({directory: read_run(directory, x) for directory in directories})
    figure = _draw(_panels(runs), x, average=average)
    _save(figure, out)
    return out


# --- what is plotted ----------------------------------------------------------------------------------------


def read_run(run_dir: Path, x: XAxis) -> Run:
    """Read the settings and the curves of a run directory; see `plot_runs` for the errors."""
    config, metrics = run_dir / "config.toml", run_dir / "metrics.jsonl"
    if not config.is_file():
        raise ConfigError(
            f"{run_dir} is no run: it has no config.toml. "
            "Give a directory that offbeat train made, such as offbeat plot runs/NAME"
        )
    lines = read_metrics(metrics) if metrics.is_file() else []
    try:
        training = _curve(lines, _KEYS[x], "episode_return_mean")
        evaluation = _curve(evaluated(lines), _KEYS[x], "eval_return_mean")
        settings = _settings(run_dir)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{run_dir} cannot be drawn: its {config.name} or {metrics.name} was changed by another program "
            f"({type(error).__name__}: {error})"
        ) from error
    if not len(training.x) and not len(evaluation.x):
        raise ConfigError(
            f"{metrics} has no returns yet: no episode has ended. "
            f"Train longer first: run offbeat resume {run_dir}, or offbeat train with more --steps"
        )
    return Run(settings, training, evaluation)


def evaluated(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the metrics lines that are the first to tell of an evaluation: later ones repeat it.

    Their env steps and frames are those of the weights that were evaluated: the run may have gone on meanwhile.
    """
    first = (
        line for before, line in zip([{}, *lines], lines, strict=False) if _evaluations(line) > _evaluations(before)
    )
    return [_as_evaluated(line) for line in first]


def _as_evaluated(line: Mapping[str, Any]) -> Mapping[str, Any]:
    env_steps, evaluated_env_steps = line.get("env_steps"), line.get("eval_env_steps")
    if not env_steps or evaluated_env_steps is None:
        return line
    frame_skip = (line.get("frames") or env_steps) // env_steps
    return {**line, "env_steps": evaluated_env_steps, "frames": evaluated_env_steps * frame_skip}


def _evaluations(line: Mapping[str, Any]) -> int:
    return int(line.get("evaluations") or 0)


def _settings(run_dir: Path) -> dict[str, Any]:
    """Return what a run was to be: a trial has one layout, though each of its sessions may have measured its own."""
    tables = tomllib.loads((run_dir / "config.toml").read_text())
    trial = run_dir.parent / "trial.toml"
    if trial.is_file():
        asked = tomllib.loads(trial.read_text())
        tables = {name: {**asked.get(name, table), **_seed_of(name, table)} for name, table in tables.items()}
    return _flat(tables)


def _seed_of(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    return {"seed": table.get("seed")} if name == "run" else {}


def _curve(lines: Sequence[Mapping[str, Any]], x: str, y: str) -> Curve:
    known = [(line[x], line[y]) for line in lines if line.get(x) is not None and line.get(y) is not None]
    points = np.asarray(known, dtype=np.float64).reshape(-1, 2)
    return Curve(points[:, 0], points[:, 1])


def _flat(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{name}.{key}": value for name, table in tables.items() for key, value in table.items()}


def _told_apart(runs: Mapping[Path, Run]) -> list[Run]:
    """Name the directory of runs that repeat another one's config and seed: they are no seeds more."""
    seen: set[str] = set()
    apart = []
    for directory, run in runs.items():
        settings = json.dumps(run.settings, sort_keys=True, default=str)
        name = directory.parent.name if (directory.parent / "trial.toml").is_file() else directory.name
        apart.append(replace(run, settings={**run.settings, "directory": name}) if settings in seen else run)
        seen.add(settings)
    return apart


def _panels(runs: Sequence[Run]) -> dict[str, list[list[Run]]]:
    """Return the groups of runs of each env."""
    envs = dict.fromkeys(str(run.settings.get(_ENV, "?")) for run in runs)
    return {
        env: _equal_but_for_the_seed([run for run in runs if str(run.settings.get(_ENV, "?")) == env]) for env in envs
    }


def _equal_but_for_the_seed(runs: Sequence[Run]) -> list[list[Run]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        settings = {key: value for key, value in run.settings.items() if key != _SEED}
        groups.setdefault(json.dumps(settings, sort_keys=True, default=str), []).append(run)
    return list(groups.values())


def aligned(curves: Sequence[Curve]) -> tuple[Floats, Floats]:
    """Put curves onto one grid over the range that all of them have: x [points], y [runs, points].

    Curves whose x are the same keep them; others are interpolated linearly. No point at all is returned where
    a curve is empty or the ranges do not meet.
    """
    if any(not len(curve.x) for curve in curves):
        return np.empty(0), np.empty((len(curves), 0))
    if all(np.array_equal(curve.x, curves[0].x) for curve in curves):
        return curves[0].x, np.stack([curve.y for curve in curves])
    low, high = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    points = min(_GRID_POINTS, max(len(curve.x) for curve in curves))
    grid = np.linspace(low, high, points) if low <= high else np.empty(0)
    return grid, np.stack([np.interp(grid, curve.x, curve.y) for curve in curves])


def moving_average(curve: Curve, window: int = _WINDOW) -> Curve:
    """Return the curve whose points are the means of the last ``window`` points, or of all those that there are."""
    sums = np.concatenate([[0.0], np.cumsum(curve.y)])
    ends = np.arange(1, len(curve.y) + 1)
    begins = np.maximum(0, ends - window)
    return Curve(curve.x, (sums[ends] - sums[begins]) / (ends - begins))


# --- what it is called --------------------------------------------------------------------------------------


def labels_of(settings: Sequence[Mapping[str, Any]], most: int = 4) -> list[str]:
    """Name what differs between groups of runs, one label each: 'clip 0.1, epochs 4'."""
    return [_label(each, _differing(settings), most) for each in settings]


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for each in settings for key in each if key != _SEED)
    return [key for key in keys if len({json.dumps(each.get(key), default=str) for each in settings}) > 1]


def _label(settings: Mapping[str, Any], differing: Sequence[str], most: int = 4) -> str:
    shown, more = differing[:most], len(differing) - most
    tail = [f"{more} more"] if more > 0 else []
    return ", ".join([*(_named(key, settings.get(key)) for key in shown), *tail])


def _named(key: str, value: Any) -> str:
    if key in ("run.algorithm", "run.env", "runtime.runtime"):
        return str(value)
    name = key.rpartition(".")[2]
    return f"{name} -" if value is None else f"{name} {value}"


def _title(runs: Sequence[Run]) -> str:
    algorithms = dict.fromkeys(str(run.settings.get("run.algorithm", "?")).upper() for run in runs)
    envs = dict.fromkeys(str(run.settings.get(_ENV, "?")) for run in runs)
    names = " and ".join(algorithms) if len(algorithms) <= 2 else f"Returns of {len(runs)} runs"
    return f"{names} on {next(iter(envs)) if len(envs) == 1 else f'{len(envs)} envs'}"


# --- how it is drawn ----------------------------------------------------------------------------------------


def _draw(panels: Mapping[str, Sequence[Sequence[Run]]], x: XAxis, *, average: bool) -> Figure:
    from matplotlib.figure import Figure

    labels = _labels(panels)
    names = list(dict.fromkeys(label for panel in labels.values() for label in panel))
    across = math.ceil(math.sqrt(len(panels)))
    down = math.ceil(len(panels) / across)
    columns = 1 if max(map(len, names)) > 45 else 2
    height = (4.2 if down > 1 else 4.8) * down + 0.2 * math.ceil(len(names) / columns)
    figure = Figure(figsize=(8.0 if across == 1 else 5.5 * across, height), dpi=150, layout="constrained")
    scale, x_label = _x_axis([group for panel in panels.values() for group in panel], x)
    for index, (env, panel) in enumerate(panels.items()):
        axes = figure.add_subplot(down, across, index + 1)
        for group, label in zip(panel, labels[env], strict=True):
            _draw_group(axes, group, names.index(label), scale, average=average)
        _dress(axes, x_label)
        if len(panels) > 1:
            axes.set_title(f"{env}, {_seeds(max(panel, key=len))}", fontsize=10)
    groups = [group for panel in panels.values() for group in panel]
    figure.suptitle(_title([run for group in groups for run in group]), **_BOLD)
    figure.legend(
        handles=[*_names(names), *_kinds(groups, names, average=average)],
        loc="outside lower center", ncols=columns, frameon=False, fontsize=9,
    )  # fmt: skip
    return figure


def _labels(panels: Mapping[str, Sequence[Sequence[Run]]]) -> dict[str, list[str]]:
    """Name the groups of each panel by what differs within any; where there is one panel, by their seeds too."""
    settings = {env: [group[0].settings for group in panel] for env, panel in panels.items()}
    differing = list(dict.fromkeys(key for each in settings.values() for key in _differing(each)))
    if len(panels) > 1:
        return {env: [_label(group, differing) for group in each] for env, each in settings.items()}
    return {
        env: [
            f"{label} ({_seeds(group)})" if label else _seeds(group) for group, label in zip(panel, names, strict=True)
        ]
        for env, panel in panels.items()
        for names in [labels_of(settings[env])]
    }


def _seeds(group: Sequence[Run]) -> str:
    return f"{len(group)} seeds" if len(group) > 1 else f"seed {group[0].settings.get(_SEED, '?')}"


def _names(names: Sequence[str]) -> list[Any]:
    """Return the legend's entries that say which colour is which group of runs: none where there is one group."""
    from matplotlib.lines import Line2D

    if len(names) == 1:
        return []
    return [Line2D([], [], linewidth=2.5, label=name, **_style(index)) for index, name in enumerate(names) if name]


def _kinds(groups: Sequence[Sequence[Run]], names: Sequence[str], *, average: bool) -> list[Any]:
    """Return the legend's entries that say what each kind of line is.

    Where there is one group, they have its colour and name its seeds; else they are grey.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    alone = len(names) == 1
    color = _style(0)["color"] if alone else _GREY
    several = any(len(group) > 1 for group in groups)
    seeds = (names[0] if alone else "") or "the seeds"
    mean = f", interquartile mean of {seeds}" if several else f", {names[0]}" if alone and names[0] else ""
    runs = [run for group in groups for run in group]
    kinds: list[Any] = []
    if any(len(run.evaluation.x) for run in runs):
        kinds.append(Line2D([], [], color=color, label=f"evaluation{mean}", **_STRONG, **_MARKED))
    if any(len(run.training.x) for run in runs):
        style = _FAINT if kinds else _STRONG
        kinds.append(Line2D([], [], color=color, label=f"training episodes{'' if kinds else mean}", **style))
    if average:
        kinds.append(Line2D([], [], color=color, label=f"training, average over {_WINDOW} points", **_DOTTED))
    if several:
        kinds.append(Patch(color=color, alpha=_BAND_ALPHA, linewidth=0, label="95 % bootstrap interval"))
    return kinds


def _style(index: int) -> dict[str, Any]:
    """Return the colour and the dashes of the index-th curve."""
    return {"color": _COLORS[index % len(_COLORS)], "linestyle": ("-", "--", "-.")[index // len(_COLORS) % 3]}


def _draw_group(axes: Axes, group: Sequence[Run], index: int, scale: float, *, average: bool) -> None:
    style = _style(index)
    training, training_y = aligned([run.training for run in group])
    evaluation, evaluation_y = aligned([run.evaluation for run in group])
    axes.plot(training / scale, iqm(training_y, axis=0), **style, **(_FAINT if len(evaluation) else _STRONG))
    if average:
        averaged, averaged_y = aligned([moving_average(run.training) for run in group])
        axes.plot(averaged / scale, iqm(averaged_y, axis=0), **{**style, **_DOTTED})
    axes.plot(evaluation / scale, iqm(evaluation_y, axis=0), **style, **_STRONG, **_MARKED, zorder=3)
    if len(group) > 1:  # one band a group: of the evaluations, where there are enough to make one
        banded, banded_y = (evaluation, evaluation_y) if len(evaluation) > 1 else (training, training_y)
        band = stratified_bootstrap_band(banded_y)
        axes.fill_between(banded / scale, *band, color=style["color"], alpha=_BAND_ALPHA, linewidth=0)


def _dress(axes: Axes, x_label: str) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set_xlabel(x_label)
    axes.set_ylabel("episode return")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.set_xlim(left=0)
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _x_axis(groups: Sequence[Sequence[Run]], x: XAxis) -> tuple[float, str]:
    """How much of x is one unit of the axis, and what the axis is called."""
    if x != "time":
        return 1.0, {"steps": "env steps", "frames": "frames"}[x]
    curves = [curve for group in groups for run in group for curve in (run.training, run.evaluation)]
    longest = max(curve.x.max(initial=0.0) for curve in curves)
    scale, unit = next((scale, unit) for least, scale, unit in _TIME_UNITS if longest >= least)
    return scale, f"wall-clock time ({unit})"


def _save(figure: Figure, out: Path) -> None:
    known = figure.canvas.get_supported_filetypes()
    if out.suffix[1:].lower() not in known:
        raise ConfigError(
            f"cannot write a picture to {out}: its name must end in one of "
            f"{', '.join('.' + suffix for suffix in sorted(known))}, such as {out.with_suffix('.png')}"
        )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written ({error.strerror}): give another with --out") from None
