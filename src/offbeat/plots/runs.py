"""Reads what is plotted: the curves and settings of run directories, trials and experiments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Literal, TypeVar

import numpy as np

from offbeat.config.config_file import read_tables
from offbeat.config.run_config import LIMITS, REPORTING
from offbeat.config.runtime_config import CHANGED_BY_AUTO_LAYOUT
from offbeat.core.errors import ConfigError, type_and_text
from offbeat.core.policy_names import DEFAULT_POLICY, policy_key
from offbeat.metrics.names import ADAPTATION
from offbeat.metrics.sinks import metrics_from_end, read_metrics
from offbeat.plots.alignment import Curve
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.names import EXPERIMENT, LEDGER, SPEC, TRIAL
from offbeat.run_directory.paths import require_run

K = TypeVar("K")
T = TypeVar("T")
XAxis = Literal["steps", "frames", "time"]

RETURN = "return"
"""Name of the two curves that are drawn together: the returns of training episodes and of evaluations."""
ELO = "elo"
"""Metric with the rating of the newest policy in a league."""
TRAINING, EVALUATION = "episode_return_mean", "eval_return_mean"
"""Metrics of these two curves."""
_OF_POLICY = re.compile(r"policies/(?P<name>[^/]+)/(?P<metric>.+)")
_OF_EVALUATIONS = ("eval_", "best_eval_", ADAPTATION)
"""Starts of the names of metrics that change only at evaluations."""
POLICY = "policy"
"""Key in the settings with the name of the policy."""
MEMBER, POPULATION = "member", "population"
"""Keys in the settings of a member of a population: its number, and the name of the population's directory."""
_CHANGE_RETURNS = ("eval_max_episode_steps", "eval_max_steps", "episodes_window")
"""Keys of [run] that change the returns that are reported, though not the training."""
_REPORTING = {f"run.{key}" for key in REPORTING if key not in _CHANGE_RETURNS} | {"env.info_metrics"}
"""Settings that change neither."""
_KEYS = {"steps": "env_steps", "frames": "frames", "time": "wall_time_s"}
OF_LINES = (*_KEYS.values(), "agent_steps", "evaluations", "eval_env_steps", "eval_team_return_mean")
"""Metrics that are read with each curve."""


class NothingToDraw(ConfigError):
    """A run, or each session of a trial, an experiment or a population, does not have yet what is drawn."""


class NoReturns(NothingToDraw):
    """It has no returns yet."""


@dataclass(frozen=True)
class PlottedRun:
    """The plotted data of a run directory, or of one of its policies: its returns, or another metric."""

    settings: dict[str, Any]
    """'table.key' -> value from config.toml; for a session of an experiment, from its trial. With several policies,
    'policy' is the name of this one."""
    training: Curve
    """Values during training; empty if the metric is one of evaluations."""
    evaluation: Curve
    """Values of evaluations; empty if the metric is not one of evaluations."""
    per_agent: bool = False
    """Whether the returns are those of single agents, because the env has several."""


def read_run(run_dir: Path, x: XAxis, metric: str = RETURN) -> list[PlottedRun]:
    """Read the settings and the curves of a run directory: of each policy that has the metric, if there are several.

    Args:
        run_dir: Path of the directory.
        x: Quantity on the x axis.
        metric: "return", or the name of a metric. The result is empty if the run does not have this metric.

    Raises:
        NoReturns: the metric is the return, and no episode has ended yet.
        ConfigError: the directory is not a run, or has an invalid file or none of metrics.
    """
    require_run(run_dir)
    _require_metrics(run_dir)
    names_read = (*OF_LINES, *_metrics_named(metric))
    lines = read_metrics(run_dir / "metrics.jsonl", lambda key: key.endswith(names_read))
    with refuse_changed(run_dir):
        settings, names = read_settings(run_dir), _policies_with(metric, lines) or [DEFAULT_POLICY]
        runs = [_curves_of(name, metric, lines, x, settings) for name in names]
    runs = [run for run in runs if len(run.training.x) or len(run.evaluation.x)]
    if metric == RETURN and not runs:
        raise _no_returns_of_run(run_dir)
    return runs


def _require_metrics(run_dir: Path) -> None:
    """Refuse a finished run without its metrics: before the end it may have none yet."""
    run = RunDirectory(run_dir)
    if not run.metrics_file.exists() and run.has_state("finished"):
        raise ConfigError(
            f"{run_dir / 'metrics.jsonl'} is missing, but the run has finished: copy the file to this place, or leave "
            "the run out"
        )


def _no_returns_of_run(run_dir: Path) -> NoReturns:
    finished = RunDirectory(run_dir).has_state("finished")
    steps, which = (" --steps N", " with a larger N than before") if finished else ("", "")
    return NoReturns(
        f"{run_dir / 'metrics.jsonl'} has no returns yet: no episode has ended. "
        f"Train longer first: run `offbeat resume {quote(str(run_dir))}{steps}`{which}, or train with more --steps"
    )


@contextmanager
def refuse_changed(run_dir: Path) -> Iterator[None]:
    """Convert the error of a value that offbeat has not written to a ConfigError; use it where a run is read."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{run_dir} cannot be plotted: its config.toml or metrics.jsonl was changed by another program "
            f"({type_and_text(error)})"
        ) from error


def metrics_of(run_dir: Path) -> set[str]:
    """Return the names of the metrics that a run has, without those of policies before them."""
    lines = metrics_from_end(run_dir / "metrics.jsonl")
    keys = {key for line in lines for key, value in line.items() if isinstance(value, int | float)}
    return {found["metric"] if (found := _OF_POLICY.fullmatch(key)) else key for key in keys}


def _policies_with(metric: str, lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the policies with a metric of their own, in alphabetical order."""
    metrics = _metrics_named(metric)
    keys = {key for line in lines for key, value in line.items() if value is not None}
    return sorted({found["name"] for found in map(_OF_POLICY.fullmatch, keys) if found and found["metric"] in metrics})


def _metrics_named(metric: str) -> tuple[str, ...]:
    return (TRAINING, EVALUATION) if metric == RETURN else (metric,)


def _curves_of(
    policy: str, metric: str, lines: Sequence[Mapping[str, Any]], x: XAxis, settings: Mapping[str, Any]
) -> PlottedRun:
    named = {} if policy == DEFAULT_POLICY else {POLICY: policy}
    training, evaluation = _curve([], x, ""), _curve([], x, "")
    if metric == RETURN or not metric.startswith(_OF_EVALUATIONS):
        training = _curve(lines, _KEYS[x], policy_key(policy, TRAINING if metric == RETURN else metric))
    if metric == RETURN or metric.startswith(_OF_EVALUATIONS):
        name = policy_key(policy, EVALUATION if metric == RETURN else metric)
        evaluation = _curve(evaluated(lines), _KEYS[x], name)
    return PlottedRun({**named, **settings}, training, evaluation, _has_several_agents(lines, settings))


def _has_several_agents(lines: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> bool:
    """Return whether the settings or the metrics show that the env has several agents."""
    return any(key.startswith(("policies.", "league.")) for key in settings) or any(
        line.get("eval_team_return_mean") is not None or (line.get("agent_steps") or 0) > (line.get("env_steps") or 0)
        for line in lines
    )


def evaluated(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the first metrics line of each evaluation; later lines repeat its result.

    Their env steps, frames and time are set to those of the evaluated weights, because the run continues meanwhile.
    """
    first = (
        line for before, line in zip([{}, *lines], lines, strict=False) if _evaluations(line) > _evaluations(before)
    )
    times = _curve([{"env_steps": 0, "wall_time_s": 0.0}, *lines], "env_steps", "wall_time_s")
    env_steps, first_with = np.unique(times.x, return_index=True)
    return [_as_evaluated(line, Curve(env_steps, times.y[first_with])) for line in first]


def _as_evaluated(line: Mapping[str, Any], times: Curve) -> Mapping[str, Any]:
    """Set the counters of a line to those of the evaluated weights; `times`: the seconds at each env step."""
    env_steps, evaluated_env_steps = line.get("env_steps"), line.get("eval_env_steps")
    if not env_steps or evaluated_env_steps is None:
        return line
    return {
        **line,
        "env_steps": evaluated_env_steps,
        "frames": evaluated_env_steps * ((line.get("frames") or env_steps) // env_steps),
        "wall_time_s": float(np.interp(evaluated_env_steps, times.x, times.y)),
    }


def _evaluations(line: Mapping[str, Any]) -> int:
    return int(line.get("evaluations") or 0)


def read_settings(run_dir: Path) -> dict[str, Any]:
    """Return the settings of a run; of a session, the layout, limits and imports of its trial, as its own may differ.

    Those that change neither training nor the returns that are reported are left out.
    Those of a member of a population are the last ones, because they change: its number says which member it is.

    Raises:
        ConfigError: a file cannot be read, is too large, or is not TOML.
        TypeError: the algorithm or the env is no text.
    """
    tables = read_tables(run_dir / "config.toml")
    trial = run_dir.parent / TRIAL
    if trial.is_file():
        tables = _with_keys_of(read_tables(trial), tables)
    settings = {key: value for key, value in _flat(tables).items() if key not in _REPORTING}
    for key in ("run.algorithm", "run.env"):
        if not isinstance(settings.get(key, ""), str):
            raise TypeError(f"{key} is no text")
    number = run_dir.name.removeprefix("member-")
    if number.isdecimal() and (run_dir.parent / LEDGER).is_file():
        return {**settings, MEMBER: int(number), POPULATION: run_dir.resolve().parent.name}
    return settings


def _with_keys_of(trial: Mapping[str, Any], session: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a session with the trial's values of keys in which sessions of one trial may differ.

    Auto layout changes them, or a resume without limits, or a caller who names other modules.
    Other settings of the session are its own: a resume may have changed them.
    """
    measured = trial.get("runtime", {}).get("split") == "measured"
    keys = {"run": ("imports", *LIMITS), "runtime": CHANGED_BY_AUTO_LAYOUT if measured else ()}
    return {
        name: {**table, **{key: value for key, value in trial.get(name, {}).items() if key in keys.get(name, ())}}
        for name, table in session.items()
    }


def _curve(lines: Sequence[Mapping[str, Any]], x: str, y: str) -> Curve:
    known = [(line[x], line[y]) for line in lines if line.get(x) is not None and line.get(y) is not None]
    points = np.asarray(known, dtype=np.float64).reshape(-1, 2)
    return Curve(points[:, 0], points[:, 1])


def _flat(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of all tables by 'table.key'; those of policies by 'policies.NAME.key'."""
    flat: dict[str, Any] = {}
    for name, table in tables.items():
        for key, value in table.items():
            flat |= _flat({f"{name}.{key}": value}) if isinstance(value, Mapping) else {f"{name}.{key}": value}
    return flat


# --- several directories ------------------------------------------------------------------


def read_each(
    paths: Mapping[K, Path], read: Callable[[Path], T], notify: Callable[[str], None], reason: str
) -> dict[K, T]:
    """Read several directories, and leave out those that do not have what is drawn.

    Args:
        paths: The directories, by any key.
        read: Reads one of them; raises `NothingToDraw`.
        notify: Called with a message that names those that are left out.
        reason: Why they are, for the message.

    Raises:
        NothingToDraw: that of the first directory, if none has what is drawn.
    """
    found: dict[K, T] = {}
    refused: dict[Path, NothingToDraw] = {}
    for key, path in paths.items():
        try:
            found[key] = read(path)
        except NothingToDraw as error:
            refused[path] = error
    if refused and not found:
        raise next(iter(refused.values()))
    if refused:
        notify(f"left out, because {reason}: {', '.join(map(str, refused))}")
    return found


def runs_of(path: Path, metrics: Sequence[str] = (RETURN,)) -> list[Path]:
    """Return the run directories to plot: a run itself, or those of a trial, an experiment or a population.

    Args:
        path: Path of a run, a trial, an experiment or a population.
        metrics: What is plotted. If the return is among them, runs without returns are left out.

    Raises:
        NoReturns: no run is left.
        ConfigError: the path is none of these, a finished run without its metrics, or an experiment with a trial
            without its trial.toml.
    """
    is_experiment = (path / EXPERIMENT).is_file()
    trials = _trials_of(path) if is_experiment else [path] if (path / TRIAL).is_file() else []
    members = _numbered(path, "member-", "config.toml")
    if not members and not trials:
        if is_experiment:
            raise _no_returns(path)
        require_run(path)
        _require_metrics(path)
        if RETURN in metrics and not has_returns(path):
            raise _no_returns_of_run(path)
        return [path]
    sessions = members or [session for trial in trials for session in sessions_of(trial)]
    for session in sessions:
        _require_metrics(session)
    drawn = [session for session in sessions if RETURN not in metrics or has_returns(session)]
    if not drawn:
        raise _no_returns(path)
    return drawn


def _trials_of(experiment: Path) -> list[Path]:
    """Return the directories of the trials of an experiment; refuse one with sessions but without its trial.toml."""
    trials = _numbered(experiment, "trial-", TRIAL)
    known = set(trials)
    for session in sorted(experiment.glob("trial-*/seed-*/config.toml")):
        trial = session.parents[1]
        if trial not in known and trial.name.removeprefix("trial-").isdecimal():
            raise ConfigError(
                f"{trial / TRIAL} is missing, but the trial has sessions: copy the file to this place, or move {trial} "
                "to another folder"
            )
    return trials


def sessions_of(trial: Path) -> list[Path]:
    """Return the run directories of a trial, sorted by seed."""
    return _numbered(trial, "seed-", "config.toml")


def _numbered(folder: Path, prefix: str, file: str) -> list[Path]:
    """Return the folders with a file whose names are a prefix and a number, by the number; not seed-1.lost-1."""
    numbers = {found.parent: found.parent.name.removeprefix(prefix) for found in folder.glob(f"{prefix}*/{file}")}
    return sorted((path for path in numbers if numbers[path].isdecimal()), key=lambda path: int(numbers[path]))


def has_returns(run: Path) -> bool:
    """Whether an episode has ended in a run, in training or in an evaluation.

    The last line of metrics is read first: only after a resume, it may lack the returns that earlier ones have.
    """
    lines = metrics_from_end(run / "metrics.jsonl")
    return any(line.get(key) is not None for line in lines for key in (TRAINING, EVALUATION))


def _no_returns(path: Path) -> NoReturns:
    """Return the error, with the command that continues the experiment or the population, which keeps no spec."""
    experiment = next((folder for folder in (path, path.parent) if (folder / EXPERIMENT).is_file()), None)
    spec, folder = ("SPEC.toml", path) if experiment is None else (str(experiment / SPEC), experiment)
    return NoReturns(
        f"{path} has no returns yet: no episode has ended in any of its sessions. Continue it with "
        f"`offbeat run {quote(spec)} --dir {quote(str(folder))}`"
    )
