"""Envs whose observations also have the previous action and the previous reward of each column.

    envs = with_previous_inputs(envs, settings)     # the same envs if neither is asked for

The leaves (`offbeat.core.previous_inputs`) are added here, behind the env contract, and not by actors. So everything
that steps envs has them: training, evaluations, matches and measurements.

    row                             previous action           previous reward
    the first one of an episode     0                         0
    after a decision                that action               its reward
    after a row without a decision  that of the row before    that of the row before + the reward of the row

So at a decision the reward is all that was earned since the last decision. The final observation of an episode, in its
reset row, has the last action and its reward: in a replay, the next state of the last transition has them.

After `Envs.advance` they are 0 too: the random steps are not the policy's own, and its recurrent state is 0 as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError
from offbeat.core.previous_inputs import previous_leaves
from offbeat.core.types import PREVIOUS_ACTION, PREVIOUS_REWARD, ActionSpec, Array, EnvSpec, Leaf, Tree
from offbeat.envs.actions import recorded_parts
from offbeat.envs.contract import Advanced, Envs, Outcome, Snapshots, State, TaskEnvs

ALL = slice(None)


def spec_with_previous_inputs(spec: EnvSpec, settings: EnvConfig) -> EnvSpec:
    """Return the spec with the leaves that the settings ask for.

    Raises:
        ConfigError: two parts of the previous action would have the same name.
    """
    leaves = previous_leaves(spec.action, action=settings.previous_action, reward=settings.previous_reward)
    names = [leaf.name for leaf in leaves]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"{spec.id} has two parts of its actions with the same name among {', '.join(names)}: rename a key, or "
            "leave previous_action out"
        )
    return replace(spec, observation=(*spec.observation, *leaves)) if leaves else spec


def with_previous_inputs(envs: Envs, settings: EnvConfig) -> Envs:
    """Return envs whose observations have the leaves that the settings ask for; `envs` themselves if they ask for none.

    They are `Snapshots` or `TaskEnvs` if `envs` are.

    Raises:
        ConfigError: two parts of the previous action would have the same name.
    """
    spec = spec_with_previous_inputs(envs.spec, settings)
    if spec is envs.spec:
        return envs
    return _Envs(envs, spec)


class PreviousInputs:
    """The previous action and the previous reward of some columns, as leaves of their next observations."""

    def __init__(self, leaves: Sequence[Leaf], action: ActionSpec, columns: int) -> None:
        """Make the leaves of `columns` columns before their first rows.

        Args:
            leaves: the leaves of an observation. Those of the previous action and reward are kept; there may be none.
            action: the actions.
            columns: number of columns, N.
        """
        self.leaves: Tree = {
            leaf.name: np.zeros((columns, *leaf.shape), leaf.dtype) for leaf in leaves if leaf.is_previous
        }
        """Name of a leaf -> [N, *shape]."""
        self._reward = self.leaves.get(PREVIOUS_REWARD)
        self._parts = [
            (self.leaves[name], taken, int(bool(part.nvec)))
            for name, part, taken in recorded_parts(action, PREVIOUS_ACTION)
            if name in self.leaves
        ]
        """Of each part of an action: its leaf, its slice of a flat recorded action, and what is added to it, 1 to
        choices: 0 is no previous action."""

    def reset(self) -> None:
        """Make the next rows of all columns the first ones of their episodes."""
        for leaf in self.leaves.values():
            leaf[...] = 0

    def push(
        self, actions: Array, rewards: Array, decided: Array, resets: NDArray[np.bool_], columns: slice = ALL
    ) -> None:
        """Take the last row of some columns; `leaves` are then those of the next row.

        Args:
            actions: recorded actions in the env's range, [n, *shape]; ignored where `decided` is False.
            rewards: [n].
            decided: where the row had a decision, [n].
            resets: where it was a reset row, [n]. All other rows without a decision are part of an episode.
            columns: the n columns.
        """
        flat = actions.reshape(len(actions), -1)
        for leaf, taken, added in self._parts:
            target = leaf[columns]
            target[decided] = (flat[:, taken].reshape(target.shape) + added)[decided]
            target[resets] = 0
        if self._reward is not None:
            reward = self._reward[columns]
            reward[:] = np.where(decided, rewards, reward + rewards)
            reward[resets] = 0

    def state(self) -> State:
        """Return the state for `restore`, as copies."""
        return {name: leaf.copy() for name, leaf in self.leaves.items()}

    def restore(self, state: State) -> None:
        """Restore the result of `state()`."""
        for name, leaf in self.leaves.items():
            leaf[...] = state[name]


class _Envs:
    """See the module's docstring. They are `Snapshots` or `TaskEnvs` if `envs` are."""

    def __init__(self, envs: Envs, spec: EnvSpec) -> None:
        """Add the leaves of `spec` that `envs` do not have."""
        self.spec, self.groups = spec, envs.groups
        self._envs = envs
        self._previous = PreviousInputs(spec.observation, spec.action, spec.columns)
        self._sent = np.zeros((spec.columns, *spec.action.shape), spec.action.dtype)
        """The last actions of all columns."""
        if isinstance(envs, Snapshots):
            self.snapshot, self.restore = partial(self._snapshot, envs), partial(self._restore, envs)
        if isinstance(envs, TaskEnvs):
            self.start_tasks = partial(self._start_tasks, envs)

    @property
    def offers_mask(self) -> bool:
        return self._envs.offers_mask

    @property
    def reports_no_decision(self) -> bool:
        return self._envs.reports_no_decision

    @property
    def next_no_decision(self) -> NDArray[np.bool_]:
        return self._envs.next_no_decision

    def set_progress(self, progress: float) -> None:
        self._envs.set_progress(progress)

    def reset(self) -> Tree:
        self._previous.reset()
        return {**self._envs.reset(), **self._previous.leaves}

    def advance(
        self, steps: NDArray[np.int64], random: np.random.Generator, before_step: Callable[[], None] = lambda: None
    ) -> Advanced:
        advanced = self._envs.advance(steps, random, before_step)
        return advanced._replace(observation={**advanced.observation, **self._previous.leaves})

    def send(self, actions: Array, group: int = 0) -> None:
        self._sent[self.groups[group]] = actions
        self._envs.send(actions, group)

    def recv(self, group: int = 0) -> Outcome:
        outcome, columns = self._envs.recv(group), self.groups[group]
        self._previous.push(self._sent[columns], outcome.reward, outcome.valid, outcome.resets, columns)
        leaves = {name: leaf[columns] for name, leaf in self._previous.leaves.items()}
        return outcome._replace(observation={**outcome.observation, **leaves})

    def close(self) -> None:
        self._envs.close()

    def _snapshot(self, envs: Snapshots) -> State:
        return {"envs": envs.snapshot(), "previous": self._previous.state()}

    def _restore(self, envs: Snapshots, state: State) -> None:
        envs.restore(state["envs"])
        self._previous.restore(state["previous"])

    def _start_tasks(self, envs: TaskEnvs, tasks: NDArray[np.int64]) -> Tree:
        self._previous.reset()
        return {**envs.start_tasks(tasks), **self._previous.leaves}
