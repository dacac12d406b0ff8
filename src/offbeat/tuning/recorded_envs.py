"""Envs that cost nothing, because they return the rows of a recorded unroll: to measure acting alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.core.seeding import stream
from offbeat.core.types import ENV_STEP, Array, EnvSpec, Tree
from offbeat.envs.contract import Advanced, Outcome
from offbeat.runtime.plan import PolicyPlan


class RecordedEnvs:
    """Envs of one group that ignore actions and return the rows of a recorded unroll, again and again."""

    offers_mask = reports_no_decision = False

    def __init__(self, spec: EnvSpec, slot: Tree) -> None:
        """Return the rows of `slot`, [T + 1, N, ...] by field name."""
        self.spec = spec
        self.groups: tuple[slice, ...] = (slice(0, spec.columns),)
        self.next_no_decision: NDArray[np.bool_] = np.zeros(spec.columns, np.bool_)
        leaves = [leaf.name for leaf in spec.observation]
        self._first = {name: slot[name][0].copy() for name in leaves}
        self._outcomes = cycle(_outcome(slot, leaves, row) for row in range(len(slot["reward"]) - 1))

    def set_progress(self, progress: float) -> None:
        """Ignore the training progress."""

    def reset(self) -> Tree:
        return self._first

    def start_tasks(self, tasks: NDArray[np.int64]) -> Tree:  # noqa: ARG002
        """Ignore the tasks."""
        return self._first

    def advance(
        self, steps: NDArray[np.int64], random: np.random.Generator, before_step: Callable[[], None] = lambda: None
    ) -> Advanced:
        raise NotImplementedError("recorded envs cannot be advanced")

    def send(self, actions: Array, group: int = 0) -> None:
        """Ignore the actions."""

    def recv(self, group: int = 0) -> Outcome:  # noqa: ARG002  (there is one group)
        return next(self._outcomes)

    def close(self) -> None:
        """Nothing to close."""


def _outcome(slot: Tree, leaves: Sequence[str], row: int) -> Outcome:
    """Return a copy of a recorded row as an outcome, with the observation of the next row."""
    no_info = np.zeros((*slot["reward"].shape, 0))
    arrays = {"info": no_info, **{name: slot[name] for name in Outcome._fields if name in slot and name not in leaves}}
    copies: dict[str, Any] = {name: array[row].copy() for name, array in arrays.items()}
    return Outcome({name: slot[name][row + 1].copy() for name in leaves}, **copies)


def random_slot(plan: PolicyPlan, env: EnvSpec) -> Tree:
    """Return an unroll of random rows in which all agents decide and no episode ends; [T + 1, N, ...] by field name.

    Args:
        plan: the policy, with the fields of its rows.
        env: spec of the columns.
    """
    random, axes = stream(0, "measure"), (plan.memory_shape.length + 1, env.columns)
    slot = {
        field.name: np.zeros((*(axes if field.per == "step" else axes[1:]), *field.shape), field.dtype)
        for field in plan.fields
    }
    for name in ("reward", *(leaf.name for leaf in env.observation)):
        slot[name][:] = random.random(slot[name].shape, np.float32)
    slot["valid"][:] = True
    if ENV_STEP in slot:
        slot[ENV_STEP][:, :: len(env.agents)] = True
    return slot
