"""From what is to be drawn to run directories: a run is itself, a trial its sessions, an experiment those of all."""

from __future__ import annotations

from pathlib import Path

from offbeat.core.errors import ConfigError
from offbeat.metrics.sinks import read_metrics

EXPERIMENT, TRIAL = "experiment.json", "trial.toml"
"""What makes a directory an experiment, or a trial."""


def runs_of(path: Path) -> list[Path]:
    """Return the run directories to draw: of a trial or an experiment, the sessions that have returns.

    Raises:
        ConfigError: none of its sessions has.
    """
    trials = sorted(path.glob(f"trial-*/{TRIAL}"), key=_number) if (path / EXPERIMENT).is_file() else [path / TRIAL]
    if not trials or not trials[0].is_file():
        return [path] if not (path / EXPERIMENT).is_file() else _none(path)
    sessions = [session for trial in trials for session in sessions_of(trial.parent)]
    return [session for session in sessions if _has_returns(session)] or _none(path)


def sessions_of(trial: Path) -> list[Path]:
    """Return the run directories of a trial, by seed."""
    found = {path: path.name.removeprefix("seed-") for path in trial.glob("seed-*") if (path / "config.toml").is_file()}
    return sorted((path for path in found if found[path].isdecimal()), key=lambda path: int(found[path]))


def _number(trial: Path) -> int:
    number = trial.parent.name.removeprefix("trial-")
    return int(number) if number.isdecimal() else -1


def _has_returns(run: Path) -> bool:
    metrics = run / "metrics.jsonl"
    lines = read_metrics(metrics) if metrics.is_file() else []
    return any(line.get(key) is not None for line in lines for key in ("episode_return_mean", "eval_return_mean"))


def _none(path: Path) -> list[Path]:
    raise ConfigError(
        f"{path} has no returns yet: no episode has ended in any of its sessions. Go on with `offbeat run` first"
    )
