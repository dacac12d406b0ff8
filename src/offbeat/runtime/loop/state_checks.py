"""Validation of a checkpoint's state, before a run resumes from it.

The file may be damaged, or come from someone else. Counters and versions are checked one by one; the learner's
statistics and moments are compared with those of a new learner with the same settings. Other errors are found when the
state is restored, see `refuse_mismatches`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from offbeat.config.runtimes import runtime_entry
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Counter, Share, build, in_short, read
from offbeat.metrics.bottleneck import BottleneckReport
from offbeat.metrics.counters import Counters, WorkerCounters

_WorkerCounters = make_dataclass("_WorkerCounters", [(name, Counter) for name in WorkerCounters._fields])
_CHANGED = "state.json was changed, or is of another version of offbeat: resume from another checkpoint"


def require_state(state: Mapping[str, Any], run: Path) -> None:
    """Check that a run can resume from a state.

    Args:
        state: the state of a checkpoint.
        run: the run directory, for messages.

    Raises:
        ConfigError: names the first invalid value.
    """
    where = f"the state of {run}"
    counted = build(Counters, state.get("counters"), f"{where}, counters", _CHANGED)
    for name, kind in {"runtime": str, "settings": dict, "recorder": dict}.items():
        if not isinstance(state.get(name), kind):
            raise _wrong(where, name, state.get(name))
    if not _are_evaluations(state.get("evaluations")):
        raise _wrong(where, "evaluations", state.get("evaluations"))
    policies = list(_states_of_policies(state, where))
    for path, policy in policies:
        if not isinstance(policy.get("learner"), dict) or not isinstance(policy["learner"].get("algorithm"), dict):
            raise _wrong(path, "learner", policy.get("learner"))
    _require_recorder(state["recorder"], f"{where}, recorder")
    if runtime_entry(state["runtime"]).workers_learn:
        _require_workers(state, counted, where)
        return
    for path, policy in policies:
        _require_versions(policy, counted.learning_step, path)
    actors = state.get("actors")
    if not isinstance(actors, list) or not all(isinstance(actor, dict | None) for actor in actors):
        raise _wrong(where, "actors", actors)


def _states_of_policies(state: Mapping[str, Any], where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path of each policy's state, for messages, and the state."""
    policies = state.get("policies")
    if policies is None:
        yield where, state
        return
    if not isinstance(policies, dict) or not policies or not all(isinstance(policies[name], dict) for name in policies):
        raise _wrong(where, "policies", policies)
    for name, policy in policies.items():
        yield f"{where}, policies, {name}", policy


def _require_recorder(recorder: Mapping[str, Any], where: str) -> None:
    """Check the state of the recorder."""
    build(Counters, recorder.get("counted"), f"{where}, counted", _CHANGED)
    for name, is_valid in _RECORDED.items():
        if not is_valid(recorder.get(name)):
            raise _wrong(where, name, recorder.get(name))
    if recorder.get("bottleneck") is not None:
        build(BottleneckReport, recorder["bottleneck"], f"{where}, bottleneck", _CHANGED)


def _require_versions(state: Mapping[str, Any], learned: int, where: str) -> None:
    """Check that the versions of the weights are the last ones before learning step `learned`."""
    versions, progress = state.get("versions"), state.get("progress")
    if not isinstance(versions, dict) or not all(_is_vector(vector) for vector in versions.values()):
        raise _wrong(where, "versions", versions)
    numbers = {str(number) for number in range(learned + 1 - len(versions), learned + 1)}
    if not versions or set(versions) != numbers:
        raise _wrong(where, "versions", sorted(versions))
    if not isinstance(progress, dict) or set(progress) != numbers:
        raise _wrong(where, "progress", progress)
    for number, share in progress.items():
        read(f"{where}, progress, {number}", share, Share, _CHANGED)


def _require_workers(state: Mapping[str, Any], counted: Counters, where: str) -> None:
    """Check the states of lock-free workers, and that their counters add up to those of the run."""
    workers = state.get("workers")
    if not isinstance(workers, list) or not workers:
        raise _wrong(where, "workers", workers)
    for index, worker in enumerate(workers):
        if not isinstance(worker, dict) or set(worker) != {"done", "updates", "refused", "learner", "actor"}:
            raise _wrong(where, f"workers, {index}", worker)
        build(_WorkerCounters, worker["done"], f"{where}, workers, {index}, done", _CHANGED)
        for name in ("updates", "refused"):
            read(f"{where}, workers, {index}, {name}", worker[name], Counter, _CHANGED)
        for name in ("learner", "actor"):
            if not isinstance(worker[name], dict | None):
                raise _wrong(where, f"workers, {index}, {name}", worker[name])
    sums = {
        "env_steps": sum(worker["done"]["env_steps"] for worker in workers),
        "learning_step": sum(worker["done"]["learning_steps"] for worker in workers),
        "updates": sum(worker["updates"] for worker in workers),
        "updates_refused": sum(worker["refused"] for worker in workers),
    }
    for name, total in sums.items():
        if getattr(counted, name) != total:
            raise _wrong(where, f"{total} {name} of all workers, but {name} of the run", getattr(counted, name))


def require_like(state: Any, expected: Any, where: str) -> None:
    """Check that a part of a state has the same keys, types and shapes as `expected`.

    Raises:
        ConfigError: names the first part that differs.
    """
    if isinstance(expected, Mapping):
        if not isinstance(state, Mapping) or set(state) != set(map(str, expected)):
            raise _wrong("the state", where, state)
        for key, part in expected.items():
            require_like(state[str(key)], part, f"{where}, {key}")
    elif isinstance(expected, np.ndarray):
        same = isinstance(state, np.ndarray) and (state.shape, state.dtype) == (expected.shape, expected.dtype)
        if not same:
            raise _wrong("the state", where, state)
    elif _is_number(expected) and not (_is_number(state) and math.isfinite(state)):
        raise _wrong("the state", where, state)


_OF_DEVICES = ("out of memory", "can't allocate memory", "CUDA error")
"""Words in errors of torch that are not about the state. For the memory of the CPU, torch has no class of its own."""


@contextmanager
def refuse_mismatches(run: Path | str) -> Iterator[None]:
    """Inside this context, turn errors of restoring a state into a ConfigError with a clear message.

    Raises:
        ConfigError: the state does not fit the settings.
    """
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, RuntimeError) and any(words in str(error) for words in _OF_DEVICES):
            raise
        raise ConfigError(
            f"the state of {run} does not fit its settings ({type(error).__name__}: {in_short(str(error))}): {_CHANGED}"
        ) from error


def _wrong(where: str, name: str, value: object) -> ConfigError:
    return ConfigError(f"{where} has {name} {in_short(value)}, which is not valid: {_CHANGED}")


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**63)


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _table_of(is_valid: Callable[[Any], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, dict) and all(map(is_valid, value.values()))


def _is_optional_number(value: object) -> bool:
    return value is None or _is_number(value)


_EVALUATIONS: dict[str, Callable[[Any], bool]] = {
    "cost_s": _is_number,
    "last_cost_s": _is_optional_number,
    "is_due": lambda value: isinstance(value, bool),
}


def _are_evaluations(value: object) -> bool:
    """Whether a value is the result of `Evaluations.state`."""
    return (
        isinstance(value, dict)
        and value.keys() == _EVALUATIONS.keys()
        and all(is_valid(value[key]) for key, is_valid in _EVALUATIONS.items())
    )


_EPISODES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("returns", "lengths"), _are_numbers),
    "totals": _table_of(_is_number),
}


def _is_window(value: object) -> bool:
    """Whether a value is the state of an `EpisodeWindow`."""
    return isinstance(value, dict) and all(is_valid(value.get(name)) for name, is_valid in _EPISODES.items())


_RECORDED: dict[str, Callable[[Any], bool]] = {
    **_EPISODES,
    "policies": _table_of(_is_window),
    **dict.fromkeys(("waited", "spent", "given", "agent_steps"), _table_of(_is_number)),
    **dict.fromkeys(("evaluation", "period"), _table_of(_is_optional_number)),
    "metrics": _table_of(_are_numbers),
    "info": _table_of(lambda value: _are_numbers(value) and len(value) == 2),
    "silent": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
}
"""A check for each value in the recorder's state, by key."""


def _is_vector(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype == np.float32
