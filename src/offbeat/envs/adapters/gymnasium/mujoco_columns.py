"""Columns of Gymnasium's locomotion envs of MuJoCo: MuJoCo steps one env after the other, the rest is computed at once.

Gymnasium's `step` costs up to half as much as the physics. Here the physics are the same calls of the same objects, and
observations, rewards and ends of all columns are computed together (`locomotion`), with the same bits. Episodes are
started by the env's own `reset`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from offbeat.config.curriculum import Parameter
from offbeat.core.errors import FAILURES
from offbeat.core.types import Array, EnvSpec
from offbeat.envs.adapters.gymnasium.groups import SingleEnv
from offbeat.envs.adapters.gymnasium.locomotion import Locomotion, locomotion_of
from offbeat.envs.adapters.gymnasium.scalar_columns import ScalarColumns
from offbeat.envs.contract import Outcome
from offbeat.envs.rows import mark_reset_rows, prefer_termination


def stepped_together(
    envs: Sequence[SingleEnv], curriculum: Sequence[Parameter], info: Sequence[str]
) -> Locomotion | None:
    """Return the record with which `MujocoColumns` can step these envs; None: with their own `step` only.

    Envs with arguments, wrappers, a curriculum or metrics from their infos (`info`) are stepped by their own `step`,
    and envs that a function made; so is a single env, with which nothing is won.
    """
    if len(envs) == 1 or curriculum or info or _limits_of(envs[0]) is None:
        return None
    return locomotion_of(envs[0].unwrapped)


def _limits_of(env: Any) -> list[TimeLimit[Any, Any]] | None:
    """Return the wrappers of an env; None if there are others than time limits."""
    limits = []
    while env is not env.unwrapped:
        if type(env) is not TimeLimit:
            return None
        limits.append(env)
        env = env.env
    return limits


class _Simulation:
    """The parts of one env that a step uses."""

    def __init__(self, env: SingleEnv, locomotion: Locomotion) -> None:
        import mujoco

        self.env = env
        inner: Any = env.unwrapped
        self._limits: Any = _limits_of(env)
        self._step, self._compute_contacts = mujoco.mj_step, mujoco.mj_rnePostConstraint
        self._model, self._data, self._frame_skip = inner.model, inner.data, inner.frame_skip
        self._control, self._reads_contacts = self._data.ctrl, locomotion.reads_contacts

    def array(self, name: str) -> Array:
        """Return a view of an array of MuJoCo's data."""
        view: Array = getattr(self._data, name)
        return view

    def step(self, action: Array) -> bool:
        """Step the physics; return whether the time limit is reached."""
        self._control[:] = action
        self._step(self._model, self._data, self._frame_skip)
        if self._reads_contacts:
            self._compute_contacts(self._model, self._data)
        ended = False
        for limit in self._limits:
            limit._elapsed_steps += 1  # noqa: SLF001 - as in its step
            ended |= limit._elapsed_steps >= limit._max_episode_steps  # noqa: SLF001
        return ended


class MujocoColumns(ScalarColumns):
    """One env per column, all of one class, in NEXT_STEP order."""

    def __init__(
        self,
        spec: EnvSpec,
        envs: Sequence[SingleEnv],
        rows: Outcome,
        next_no_decision: Array,
        first: int,
        locomotion: Locomotion,
    ) -> None:
        """Make the columns as `ScalarColumns`; `locomotion` is what `stepped_together` returned for the envs."""
        super().__init__(spec, envs, rows, next_no_decision, first)
        self._locomotion, self._first_env = locomotion, envs[0].unwrapped
        self._positions = [locomotion.position(env.unwrapped) for env in envs]
        self._simulations = [_Simulation(env, locomotion) for env in envs]
        self._sources = {
            name: [simulation.array(name) for simulation in self._simulations] for name in locomotion.reads
        }
        self._arrays = {name: np.zeros((len(envs), *views[0].shape)) for name, views in self._sources.items()}
        self._targets = {name: part.reshape(-1, *part.shape[2:]) for name, part in self._arrays.items()}
        """The same memory as `_arrays`, with the envs one after the other."""
        self._observation: Array = rows.observation[spec.observation[0].name]

    def step(self, actions: Iterable[Any]) -> Outcome:
        rows = self._rows
        mark_reset_rows(rows)
        continues = rows.valid.tolist()
        before = self._read_positions()
        truncations, column = rows.truncated, 0
        try:
            for column, (simulation, goes_on, action) in enumerate(
                zip(self._simulations, continues, actions, strict=True)
            ):
                if goes_on:
                    truncations[column] = simulation.step(action)
                else:
                    simulation.env.reset()
                    truncations[column] = False
        except FAILURES as error:
            raise self._failed(column, "step" if continues[column] else "reset", error) from error
        self._write(np.asarray(actions), self._read_positions() - before)
        if not all(continues):
            rows.reward[~rows.valid] = 0.0
            rows.terminated[~rows.valid] = False
        prefer_termination(rows)
        self._checks.require()
        return rows

    def _read_positions(self) -> NDArray[np.float64]:
        return np.array([read() for read in self._positions])

    def _write(self, actions: NDArray[np.float32], moved: NDArray[np.float64]) -> None:
        """Write the observation, reward and termination of each column."""
        for name, views in self._sources.items():
            np.concatenate(views, out=self._targets[name])
        first = 0
        for part in self._locomotion.observed(self._first_env, self._arrays):
            flat = part.reshape(len(part), -1)
            self._observation[:, first : first + flat.shape[1]] = flat
            first += flat.shape[1]
        rewards, terminations = self._locomotion.outcome(self._first_env, moved, actions, self._arrays)
        self._rows.reward[:], self._rows.terminated[:] = rewards, terminations
