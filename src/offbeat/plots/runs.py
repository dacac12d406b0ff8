"""Reads what is plotted: the curves and settings of run directories, trials and experiments."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError
from offbeat.metrics.sinks import read_metrics

EXPERIMENT, TRIAL = "experiment.json", "trial.toml"
"""Files that identify the directory of an experiment and of a trial."""
Floats = NDArray[np.float64]
XAxis = Literal["steps", "frames", "time"]

_GRID_POINTS = 200
"""Maximum number of points at which curves of several runs are interpolated."""
MOVING_AVERAGE_POINTS = 100
"""Window of the moving average, in points of a curve."""
_KEYS = {"steps": "env_steps", "frames": "frames", "time": "wall_time_s"}


@dataclass(frozen=True)
class Curve:
    """Returns y over env steps, frames or seconds x. Metrics lines without one of the two values are omitted."""

    x: Floats
    y: Floats


@dataclass(frozen=True)
class Run:
    """The plotted data of a run directory."""

    settings: dict[str, Any]
    """'table.key' -> value from config.toml; for a session of an experiment, from its trial."""
    training: Curve
    evaluation: Curve


def read_run(run_dir: Path, x: XAxis) -> Run:
    """Read the settings and the curves of a run directory.

    Raises:
        ConfigError: the directory is not a run, has no returns yet, or has an invalid file.
    """
    config, metrics = run_dir / "config.toml", run_dir / "metrics.jsonl"
    if not config.is_file():
        raise ConfigError(
            f"{run_dir} is not a run: it has no config.toml. "
            "Pass a directory that `offbeat train` has created, for example offbeat plot runs/NAME"
        )
    lines = read_metrics(metrics) if metrics.is_file() else []
    try:
        training = _curve(lines, _KEYS[x], "episode_return_mean")
        evaluation = _curve(evaluated(lines), _KEYS[x], "eval_return_mean")
        settings = _settings(run_dir)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{run_dir} cannot be plotted: its {config.name} or {metrics.name} was changed by another program "
            f"({type(error).__name__}: {error})"
        ) from error
    if not len(training.x) and not len(evaluation.x):
        raise ConfigError(
            f"{metrics} has no returns yet: no episode has ended. "
            f"Train longer first: run offbeat resume {run_dir}, or offbeat train with more --steps"
        )
    return Run(settings, training, evaluation)


def evaluated(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the first metrics line of each evaluation; later lines repeat its result.

    Their env steps and frames are set to those of the evaluated weights, because the run continues meanwhile.
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
    """Return the settings of a run; for a session those of its trial, because auto layout may have changed its own."""
    tables = tomllib.loads((run_dir / "config.toml").read_text())
    trial = run_dir.parent / "trial.toml"
    if trial.is_file():
        of_trial = tomllib.loads(trial.read_text())
        tables = {name: {**of_trial.get(name, table), **_seed_of(name, table)} for name, table in tables.items()}
    return _flat(tables)


def _seed_of(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    return {"seed": table.get("seed")} if name == "run" else {}


def _curve(lines: Sequence[Mapping[str, Any]], x: str, y: str) -> Curve:
    known = [(line[x], line[y]) for line in lines if line.get(x) is not None and line.get(y) is not None]
    points = np.asarray(known, dtype=np.float64).reshape(-1, 2)
    return Curve(points[:, 0], points[:, 1])


def _flat(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{name}.{key}": value for name, table in tables.items() for key, value in table.items()}


# --- curves of several runs ---------------------------------------------------------------------------------


def aligned(curves: Sequence[Curve]) -> tuple[Floats, Floats]:
    """Interpolate curves on one grid over their common range; return x [points] and y [runs, points].

    Curves with equal x are returned unchanged. There are no points if a curve is empty or there is no common range.
    """
    if any(not len(curve.x) for curve in curves):
        return np.empty(0), np.empty((len(curves), 0))
    if all(np.array_equal(curve.x, curves[0].x) for curve in curves):
        return curves[0].x, np.stack([curve.y for curve in curves])
    low, high = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    points = min(_GRID_POINTS, max(len(curve.x) for curve in curves))
    grid = np.linspace(low, high, points) if low <= high else np.empty(0)
    return grid, np.stack([np.interp(grid, curve.x, curve.y) for curve in curves])


def moving_average(curve: Curve, window: int = MOVING_AVERAGE_POINTS) -> Curve:
    """Return the moving average over the last ``window`` points, or over fewer at the start of the curve."""
    sums = np.concatenate([[0.0], np.cumsum(curve.y)])
    ends = np.arange(1, len(curve.y) + 1)
    starts = np.maximum(0, ends - window)
    return Curve(curve.x, (sums[ends] - sums[starts]) / (ends - starts))


# --- directories of trials and experiments ------------------------------------------------------------------


def runs_of(path: Path) -> list[Path]:
    """Return the run directories to plot: a run itself, or the sessions of a trial or experiment that have returns.

    Args:
        path: Path of a run, a trial or an experiment.

    Raises:
        ConfigError: no session of the trial or experiment has returns.
    """
    trials = sorted(path.glob(f"trial-*/{TRIAL}"), key=_number) if (path / EXPERIMENT).is_file() else [path / TRIAL]
    if not trials or not trials[0].is_file():
        if (path / EXPERIMENT).is_file():
            raise _no_returns(path)
        return [path]
    sessions = [session for trial in trials for session in sessions_of(trial.parent)]
    with_returns = [session for session in sessions if _has_returns(session)]
    if not with_returns:
        raise _no_returns(path)
    return with_returns


def sessions_of(trial: Path) -> list[Path]:
    """Return the run directories of a trial, sorted by seed."""
    seeds = {path: path.name.removeprefix("seed-") for path in trial.glob("seed-*") if (path / "config.toml").is_file()}
    return sorted((path for path in seeds if seeds[path].isdecimal()), key=lambda path: int(seeds[path]))


def _number(trial: Path) -> int:
    number = trial.parent.name.removeprefix("trial-")
    return int(number) if number.isdecimal() else -1


def _has_returns(run: Path) -> bool:
    metrics = run / "metrics.jsonl"
    lines = read_metrics(metrics) if metrics.is_file() else []
    return any(line.get(key) is not None for line in lines for key in ("episode_return_mean", "eval_return_mean"))


def _no_returns(path: Path) -> ConfigError:
    return ConfigError(
        f"{path} has no returns yet: no episode has ended in any of its sessions. Continue it with `offbeat run`"
    )
