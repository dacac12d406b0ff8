"""The part of `offbeat check` for envs whose state can be saved: whether new envs continue from it bit for bit.

`require_savable` tests one state before each run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from offbeat.core.errors import FAILURES, ConfigError, EnvFailed
from offbeat.core.saved_state import SAVABLE, NotSavable, saved_and_loaded
from offbeat.core.types import Tree
from offbeat.envs.checking.parts import raised
from offbeat.envs.checking.rollouts import EnvsByAgent, can_save, first_difference, rollout_of_agents
from offbeat.envs.contract import Snapshots
from offbeat.envs.failures import fault_of_call
from offbeat.envs.findings import Finding

BEFORE, AFTER = 25, 100
"""Env steps before the state is saved, and after it, at most."""
KINDS = f"let it return {SAVABLE}"
"""Remedy for a state of the wrong kind."""
COMPLETE = (
    "let snapshot() return all that the env keeps between steps, and let restore() set all of it, also in a new env "
    "that was never reset"
)
"""Remedy for an env that does not continue from its state."""


def require_savable(env_id: str, columns: EnvsByAgent) -> None:
    """Save the state of envs, as a checkpoint does, if it can be saved.

    Raises:
        ConfigError: a checkpoint cannot store this state, or `snapshot` of the env raises an exception.
    """
    if not can_save(columns):
        return
    state = _saved(columns)
    if isinstance(state, Finding):
        raise ConfigError(f"{env_id}: {state.problem}: {state.remedy}")


def check_snapshots(
    columns: EnvsByAgent, first: Mapping[str, Tree], make: Callable[[], AbstractContextManager[EnvsByAgent]], steps: int
) -> Iterator[Finding]:
    """Save the state of envs after some steps, restore it in new ones, and compare the rows that follow.

    Args:
        columns: envs that `can_save`.
        first: what their reset returned, by agent.
        make: makes new envs of this kind.
        steps: maximum number of env steps.

    Raises:
        EnvFailed: an env fails in a step.
    """
    before, after = (max(1, min(number, steps // 2)) for number in (BEFORE, AFTER))
    rows = rollout_of_agents(columns, first, before)
    last = {agent: {name: leaf[-1] for name, leaf in own.items()} for agent, own in rows.items()}
    state = _saved(columns)
    if isinstance(state, Finding):
        yield state
        return
    expected = rollout_of_agents(columns, last, after)
    with make() as others:
        fault = _restore(others, state)
        if fault is not None:
            yield fault
            return
        try:
            found = rollout_of_agents(others, last, after)
        except EnvFailed as error:
            yield Finding("error", f"a new env that has restored a snapshot fails: {error.problem}", COMPLETE)
            return
    if any(first_difference(own, found[agent]) is not None for agent, own in expected.items()):
        problem = "new envs that restore a snapshot go on with other rows: a resumed run is not exact"
        yield Finding("warning", problem, COMPLETE)


def _saved(columns: EnvsByAgent) -> dict[str, Any] | Finding:
    """Return the states of envs as a checkpoint gives them back, by agent, or why it cannot."""
    try:
        return {
            agent: saved_and_loaded(envs.snapshot()) for agent, envs in columns.items() if isinstance(envs, Snapshots)
        }
    except NotSavable as error:
        return Finding("error", f"the state that snapshot() returns cannot be saved: {error}", KINDS)
    except FAILURES as error:
        return raised(fault_of_call("snapshot()", error), error)


def _restore(columns: EnvsByAgent, state: Mapping[str, Any]) -> Finding | None:
    """Restore a state in new envs; return why it is not possible."""
    try:
        for agent, envs in columns.items():
            assert isinstance(envs, Snapshots)
            envs.restore(state[agent])
            envs.set_progress(0.0)
    except FAILURES as error:
        return raised(fault_of_call("restore() of a new env", error), error)
    return None
