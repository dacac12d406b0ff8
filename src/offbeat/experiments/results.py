"""Results of sessions and trials, from their metrics lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from offbeat.core.errors import ConfigError
from offbeat.experiments.sessions import Session
from offbeat.metrics.sinks import read_metrics
from offbeat.plots.runs import EVALUATION, OF_LINES, TRAINING, evaluated
from offbeat.plots.statistics import band_of, iqm

ReturnKind = Literal["evaluation", "training"]
"""evaluation: mean returns of evaluations; training: of the last 100 training episodes."""
_COUNTERS = ("env_steps", "updates", "wall_time_s")
"""Numbers that each metrics line has."""


@dataclass(frozen=True)
class Result:
    """The results of a session so far; None if not known."""

    finished: bool
    final_return: float | None
    """The last mean return, of evaluations or of training: see `ReturnKind`."""
    best_return: float | None
    """Highest such return of the session."""
    steps_to_target: int | None
    """Env steps at which the target was first reached."""
    seconds_to_target: float | None
    env_steps: int
    wall_time_s: float
    sps: float | None
    """Env steps per second of the whole session, evaluations and checkpoints included."""
    ups: float | None
    """Updates per second, likewise."""


def return_kind(sessions: Iterable[Session]) -> ReturnKind:
    """Return which returns of these sessions can be compared: of evaluations, if one of them has been evaluated."""
    evaluated_ones = (session.last_line().get("best_eval_return_mean") is not None for session in sessions)
    return "evaluation" if any(evaluated_ones) else "training"


def result_of(session: Session, target: float | None, kind: ReturnKind, *, finished: bool) -> Result | None:
    """Return the results of a session, with its returns of this kind; None before its first metrics line.

    The metrics are only read again if the file has changed: a search by Optuna asks for the results of all earlier
    trials before each new one.

    Args:
        session: the session.
        target: return to reach; None for no target.
        kind: of which returns the results are.
        finished: whether the session is finished, by its status.

    Raises:
        ConfigError: its metrics lines were changed by another program.
    """
    try:
        file = session.run.metrics_file.stat()
    except FileNotFoundError:
        return None
    result = _result_in(session.run.metrics_file, (file.st_ino, file.st_size, file.st_mtime_ns), target, kind)
    return result and replace(result, finished=finished)


@cache
def _result_in(
    metrics: Path,
    _version: tuple[int, int, int],
    target: float | None,
    kind: ReturnKind,
) -> Result | None:
    """Return the results in a file of metrics, as those of an unfinished session; `_version`: that of the file."""
    lines = _lines_of(metrics)
    if not lines:
        return None
    returns = _returns(metrics, lines, kind)
    reached = next((line for score, line in returns if target is not None and score >= target), None)
    last = lines[-1]
    return Result(
        finished=False,
        final_return=returns[-1][0] if returns else None,
        best_return=max((score for score, _ in returns), default=None),
        steps_to_target=None if reached is None else int(reached["env_steps"]),
        seconds_to_target=None if reached is None else float(reached["wall_time_s"]),
        env_steps=int(last["env_steps"]),
        wall_time_s=float(last["wall_time_s"]),
        sps=_rate(last["env_steps"], last["wall_time_s"]),
        ups=_rate(last["updates"], last["wall_time_s"]),
    )


def evaluations_of(session: Session) -> tuple[tuple[int, float], ...]:
    """Return (env steps, mean return) of each evaluation of a session so far. Raises as `result_of`."""
    metrics = session.run.metrics_file
    if not metrics.exists():
        return ()
    returns = _returns(metrics, _lines_of(metrics), "evaluation")
    return tuple((int(line["env_steps"]), float(mean)) for mean, line in returns)


def _lines_of(metrics: Path) -> list[dict[str, Any]]:
    """Return all metrics lines of a file."""
    lines = read_metrics(metrics, {*OF_LINES, *_COUNTERS, EVALUATION, TRAINING}.__contains__)
    for counter in _COUNTERS:
        if not all(isinstance(line.get(counter), int | float) for line in lines):
            raise ConfigError(
                f"{metrics} has a line without the number {counter}: the file was changed by another program. Remove "
                "that line, or restore the file"
            )
    return lines


def _returns(
    metrics: Path, lines: Sequence[Mapping[str, Any]], kind: ReturnKind
) -> list[tuple[float, Mapping[str, Any]]]:
    """Return the mean returns of this kind in the lines of a file, each with its metrics line."""
    key, chosen = (EVALUATION, evaluated(lines)) if kind == "evaluation" else (TRAINING, lines)
    returns = [(line[key], line) for line in chosen if line.get(key) is not None]
    if not all(isinstance(mean, int | float) for mean, _ in returns):
        raise ConfigError(f"{metrics} has an {key} that is no number: the file was changed by another program")
    return returns


def _rate(amount: float, seconds: float) -> float | None:
    return amount / seconds if seconds > 0 else None


# --- trials -------------------------------------------------------------------------------------------------

TableRow = dict[str, Any]
"""Column of the table -> value; None if not known."""


def summary(results: Sequence[Result], *, with_target: bool) -> TableRow:
    """Return the summary of a trial's sessions. Its returns are those of finished ones: others have learned less."""
    finished = [result for result in results if result.finished]
    finals = [result.final_return for result in finished if result.final_return is not None]
    low, high = _interval(finals)
    reached = [result for result in results if result.steps_to_target is not None]
    target = {
        "reached_target": len(reached),
        "steps_to_target": _mean([result.steps_to_target for result in reached]),
        "seconds_to_target": _mean([result.seconds_to_target for result in reached]),
    }
    return {
        "final_return": _mean(finals),
        "final_std": stdev(finals) if len(finals) > 1 else None,
        "final_iqm": float(iqm(finals)) if finals else None,
        "final_iqm_low": low,
        "final_iqm_high": high,
        "best_return": _mean([result.best_return for result in finished]),
        **(target if with_target else {}),
        "env_steps": _mean([result.env_steps for result in results]),
        "wall_time_s": _mean([result.wall_time_s for result in results]),
        "sps": _mean([result.sps for result in results]),
        "ups": _mean([result.ups for result in results]),
    }


def _interval(scores: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the 95 % bootstrap interval of the IQM, or the range of few scores; None for a single one."""
    if len(scores) < 2:
        return None, None
    low, high = band_of([[score] for score in scores])
    return float(low[0]), float(high[0])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
