"""What a checkpoint says of how far a run had come: checked before anything goes on from it.

The file may be a stranger's, or damaged. The counters and versions are checked one by one, the learner's statistics and
moments against those that these settings make; what else does not fit is found where it is put back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from offbeat.config.runtimes import runtime_entry
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Counter, Share, build, in_short, read
from offbeat.core.pace import RatioCounts
from offbeat.metrics.bottleneck import BottleneckReport
from offbeat.metrics.recorder import Counters


class WorkerProgress(NamedTuple):
    """What a worker has done, up to the end of its last learning step. All count through every resume."""

    learning_steps: int = 0
    env_steps: int = 0
    origin: int = 0
    """The ticket that its replay began with."""
    valid: int = 0
    """Transitions since then: the ratio is held on these."""
    unheld: int = 0
    """Updates that were made before then: the ratio is not held on these."""

    @property
    def ratio(self) -> RatioCounts:
        """What its replay's ratio is held on."""
        return RatioCounts(self.origin, self.valid, self.unheld)

    def with_ratio(self, ratio: RatioCounts) -> WorkerProgress:
        """Return the same with another ratio."""
        return self._replace(**ratio._asdict())


_WorkerProgress = make_dataclass("_WorkerProgress", [(name, Counter) for name in WorkerProgress._fields])
_CHANGED = "state.json was changed, or is of another version of offbeat: resume from another checkpoint"


def require_state(state: Mapping[str, Any], run: Path) -> None:
    """Refuse a state that nothing can go on from.

    Args:
        state: of a checkpoint.
        run: its directory.

    Raises:
        ConfigError: with the first thing that cannot be.
    """
    where = f"the state of {run}"
    counted = build(Counters, state.get("counters"), f"{where}, counters", _CHANGED)
    layout, best = state.get("runtime"), state.get("best")
    if not isinstance(layout, dict) or not isinstance(layout.get("runtime"), str):
        raise _wrong(where, "runtime", layout)
    if not (best is None or _is_number(best)):
        raise _wrong(where, "best", best)
    if not isinstance(state.get("recorder"), dict):
        raise _wrong(where, "recorder", state.get("recorder"))
    policies = list(_states_of_policies(state, where))
    for place, own in policies:
        if not isinstance(own.get("learner"), dict) or not isinstance(own["learner"].get("algorithm"), dict):
            raise _wrong(place, "learner", own.get("learner"))
    _require_recorder(state["recorder"], f"{where}, recorder")
    if runtime_entry(layout["runtime"]).workers_learn:
        _require_workers(state, counted, where)
        return
    for place, own in policies:
        _require_versions(own, counted.learning_step, place)
    if not _all_values(state.get("actors"), lambda actor: isinstance(actor, dict | None)) or isinstance(
        state["actors"], dict
    ):
        raise _wrong(where, "actors", state.get("actors"))


def _states_of_policies(state: Mapping[str, Any], where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield where the state of each policy is, and the state."""
    policies = state.get("policies")
    if policies is None:
        yield where, state
        return
    if not isinstance(policies, dict) or not policies or not _all_values(policies, lambda own: isinstance(own, dict)):
        raise _wrong(where, "policies", policies)
    for name, own in policies.items():
        yield f"{where}, policies, {name}", own


def _require_recorder(recorder: Mapping[str, Any], where: str) -> None:
    """Refuse a state of the recorder that cannot be."""
    build(Counters, recorder.get("counted"), f"{where}, counted", _CHANGED)
    for name, holds in _RECORDED.items():
        if not holds(recorder.get(name, {} if name in _ONCE_NOT_SAVED else None)):
            raise _wrong(where, name, recorder.get(name))
    if recorder.get("bottleneck") is not None:
        build(BottleneckReport, recorder["bottleneck"], f"{where}, bottleneck", _CHANGED)


def _require_versions(state: Mapping[str, Any], learned: int, where: str) -> None:
    """Refuse versions of the weights that are not those before the learning step that comes next."""
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
    """Refuse counts of lock-free workers that do not add up to those of the run."""
    workers = state.get("workers")
    if not isinstance(workers, list) or not workers:
        raise _wrong(where, "workers", workers)
    for index, worker in enumerate(workers):
        if not isinstance(worker, dict) or set(worker) != {"done", "updates", "refused", "learner", "actor"}:
            raise _wrong(where, f"workers, {index}", worker)
        build(_WorkerProgress, worker["done"], f"{where}, workers, {index}, done", _CHANGED)
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
            raise _wrong(where, f"workers with {total} {name} in all beside {name} of the run", getattr(counted, name))


def require_like(state: Any, expected: Any, where: str) -> None:
    """Refuse a part of a state that has other keys, types or shapes than what these settings make.

    Raises:
        ConfigError: with the first that differs.
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


@contextmanager
def refuse_mismatches(run: Path) -> Iterator[None]:
    """Turn whatever goes wrong while a state is put back into an error with words.

    Raises:
        ConfigError: something did.
    """
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"the state of {run} does not fit its settings ({type(error).__name__}: {in_short(str(error))}): {_CHANGED}"
        ) from error


def _wrong(where: str, name: str, value: object) -> ConfigError:
    return ConfigError(f"{where} has {name} {in_short(value)}, which cannot be: {_CHANGED}")


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**63)


def _all_values(value: object, holds: Callable[[Any], bool]) -> bool:
    """Whether a value is a list of what `holds` is true of, or a table of it."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return parts is not None and all(map(holds, parts))


def _numbers(value: object) -> bool:
    return isinstance(value, list) and _all_values(value, _is_number)


def _table(holds: Callable[[Any], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, dict) and _all_values(value, holds)


_MAYBE = _table(lambda value: value is None or _is_number(value))
_EPISODES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("returns", "lengths"), _numbers),
    "totals": _table(_is_number),
}


def _is_window(value: object) -> bool:
    """Whether a value is what an `EpisodeWindow` saves."""
    return isinstance(value, dict) and all(holds(value.get(name)) for name, holds in _EPISODES.items())


_ONCE_NOT_SAVED = ("spent", "given", "policies")
_RECORDED: dict[str, Callable[[Any], bool]] = {
    **_EPISODES,
    "policies": _table(_is_window),
    **dict.fromkeys(("waited", "spent", "given"), _table(_is_number)),
    **dict.fromkeys(("evaluation", "period"), _MAYBE),
    "metrics": _table(_numbers),
    "info": _table(lambda value: _numbers(value) and len(value) == 2),
    "silent": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
}
"""What the recorder keeps, by name -> whether it is that."""


def _is_vector(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype == np.float32
