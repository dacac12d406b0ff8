"""Any Gymnasium env as `Envs`: its own vector env where it has one, else a loop over its columns.

Gymnasium's SyncVectorEnv is not used: merging infos, copying observations three times and checking every step
cost more than many an env. Rows are written once, into arrays that are allocated once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from offbeat.envs import snapshots
from offbeat.envs.advancing import Part, walk
from offbeat.envs.contract import Advanced, Envs, Outcome, State
from offbeat.envs.rows import (
    FAILURES,
    FiniteCheck,
    copy_exactly,
    empty_rows,
    failed,
    let_termination_win,
    mark_reset_rows,
    named,
    observation_writer,
    require_finite,
    rows_of,
)
from offbeat.envs.spaces import action_encoder, action_spec, observation_leaves
from offbeat.errors import ConfigError, EnvFailed
from offbeat.types import Array, EnvSpec, Tree

AnyVectorEnv = VectorEnv[Any, Any, Any]
AnyEnv = gym.Env[Any, Any]


# --- the columns of one group -------------------------------------------------------------------------------


class Columns(Protocol):
    """Envs that write their rows, which are next to each other, into arrays they were given."""

    @property
    def envs(self) -> Sequence[snapshots.AnyEnv]: ...

    @property
    def place(self) -> slice:
        """Which of the actor's columns these are."""
        ...

    def reset(self, seeds: Sequence[int] | None) -> None: ...

    def step(self, actions: Array) -> Outcome: ...

    def apart(self) -> Sequence[Columns]:
        """Return the same columns, in as many parts as can be stepped without each other."""
        ...


class ScalarColumns:
    """One env a column, stepped in a loop, in NEXT_STEP order."""

    def __init__(self, env_id: str, envs: Sequence[AnyEnv], rows: Outcome, first: int) -> None:
        self.envs = envs
        self._id = env_id
        self._rows = rows
        self.place = slice(first, first + len(envs))
        self._check = FiniteCheck(rows)
        space = envs[0].observation_space
        self._writers = [
            # A view even of a leaf without axes: `leaf[column]` would be a number that cannot be written to.
            observation_writer(space, [leaf[column, ...] for leaf in rows.observation.values()])
            for column in range(len(envs))
        ]

    def reset(self, seeds: Sequence[int] | None) -> None:
        column = 0
        try:
            for column, (env, write) in enumerate(zip(self.envs, self._writers, strict=True)):
                observation, _ = env.reset(seed=None if seeds is None else seeds[column])
                write(observation)
        except FAILURES as error:
            raise self._failed(column, "reset", error) from error
        require_finite(self._check, self._id, self.place.start)

    def step(self, actions: Array) -> Outcome:
        _, rewards, terminations, truncations, valid = self._rows
        mark_reset_rows(self._rows)
        columns = zip(self.envs, self._writers, valid.tolist(), actions, strict=True)
        column = 0
        try:
            for column, (env, write, goes_on, action) in enumerate(columns):
                if goes_on:
                    observation, reward, terminated, truncated, _ = env.step(action)
                else:
                    observation, _ = env.reset()
                    reward, terminated, truncated = 0.0, False, False
                write(observation)
                rewards[column] = reward
                terminations[column] = terminated
                truncations[column] = truncated
        except FAILURES as error:
            raise self._failed(column, "step", error) from error
        let_termination_win(self._rows)
        require_finite(self._check, self._id, self.place.start)
        return self._rows

    def apart(self) -> Sequence[Columns]:
        return [
            ScalarColumns(self._id, [env], rows_of(self._rows, slice(column, column + 1)), self.place.start + column)
            for column, env in enumerate(self.envs)
        ]

    def _failed(self, column: int, call: str, error: BaseException) -> EnvFailed:
        return failed(self._id, self.place.start + column, f"{call}() gave {type(error).__name__}: {error}")


class VectorColumns:
    """A vector env that resets itself in NEXT_STEP order. Its columns draw from one random stream."""

    def __init__(self, env_id: str, env: AnyVectorEnv, rows: Outcome, first: int) -> None:
        self.envs = (env,)
        self._id = env_id
        self._env = env
        self._rows = rows
        self.place = slice(first, first + len(rows.reward))
        self._check = FiniteCheck(rows)
        self._write = observation_writer(env.single_observation_space, list(rows.observation.values()))

    def reset(self, seeds: Sequence[int] | None) -> None:
        try:
            observation, _ = self._env.reset(seed=None if seeds is None else seeds[0])
            self._write(observation)
        except FAILURES as error:
            raise self._failed("reset", error) from error
        require_finite(self._check, self._id, self.place.start)

    def step(self, actions: Array) -> Outcome:
        rows = self._rows
        mark_reset_rows(rows)
        try:
            observation, *parts, _ = self._env.step(actions)
            self._write(observation)
            for target, part in zip((rows.reward, rows.terminated, rows.truncated), parts, strict=True):
                copy_exactly(target, part)
        except FAILURES as error:
            raise self._failed("step", error) from error
        let_termination_win(rows)
        require_finite(self._check, self._id, self.place.start)
        return rows

    def apart(self) -> Sequence[Columns]:
        return [self]

    def _failed(self, call: str, error: BaseException) -> EnvFailed:
        what = f"{call}() of the vector env that begins here gave {type(error).__name__}: {error}"
        return failed(self._id, self.place.start, what)


# --- the adapter --------------------------------------------------------------------------------------------


class GymnasiumEnvs:
    """The columns of one actor; `recv` does the stepping, as Python envs have nobody else to do it."""

    def __init__(
        self,
        spec: EnvSpec,
        groups: Sequence[slice],
        sources: Sequence[AnyVectorEnv | list[AnyEnv]],
        seeds: Sequence[int],
    ) -> None:
        self.spec = spec
        self.groups = tuple(groups)
        self._seeds: Sequence[int] | None = seeds
        self._rows = empty_rows(spec.observation, spec.columns)
        self._columns = [
            _columns(spec.id, source, rows_of(self._rows, group), group.start)
            for source, group in zip(sources, groups, strict=True)
        ]
        self._encode = action_encoder(_spaces(sources[0])[1])
        self._sent: list[Array | None] = [None] * len(groups)

    @property
    def observation(self) -> Tree:
        """The observations that the next actions answer, [N, *shape]."""
        return self._rows.observation

    def reset(self) -> Tree:
        """Begin a new episode in every column: the first time from the seeds, then on from there."""
        self._rows.terminated[:] = self._rows.truncated[:] = False
        for columns in self._columns:
            columns.reset(None if self._seeds is None else self._seeds[columns.place])
        self._seeds = None
        return self.observation

    def advance(
        self, steps: NDArray[np.int64], random: np.random.Generator, before_step: Callable[[], None] = lambda: None
    ) -> Advanced:
        """Step each column by itself `steps[c]` times; those of a vector env together, by the largest of theirs."""
        parts = [self._part(alone) for columns in self._columns for alone in columns.apart()]
        return Advanced(self.observation, *walk(self.spec, parts, steps, random, before_step))

    def send(self, actions: Array, group: int = 0) -> None:
        """Keep a copy of the group's actions, [n, *shape]."""
        self._sent[group] = self._encode(actions)

    def recv(self, group: int = 0) -> Outcome:
        """Step the group with the actions last sent; its arrays are the same ones every time.

        Raises:
            EnvFailed: an env raised, or returned NaN or a wrong shape.
        """
        actions = self._sent[group]
        if actions is None:
            raise RuntimeError(f"recv({group}) without a send({group}) before it")
        self._sent[group] = None
        return self._columns[group].step(actions)

    def close(self) -> None:
        for env in self._all_envs():
            try:
                env.close()
            except Exception as error:  # noqa: BLE001 - all that was wanted of it is done
                warnings.warn(f"{self.spec.id}: close() gave {type(error).__name__}: {error}", stacklevel=2)

    def _all_envs(self) -> list[snapshots.AnyEnv]:
        return [env for columns in self._columns for env in columns.envs]

    def _part(self, columns: Columns) -> Part:
        return Part(columns.place, lambda actions: columns.step(self._encode(actions)))


class SnapshotEnvs(GymnasiumEnvs):
    """Gymnasium envs whose whole state is known."""

    def snapshot(self) -> State:
        """Return the state between two steps: of every env, and the rows, which say who begins an episode."""
        return {
            "id": self.spec.id,
            "columns": self.spec.columns,
            "envs": {str(index): snapshots.save(env) for index, env in enumerate(self._all_envs())},
            "rows": {name: part.copy() for name, part in named(self._rows).items()},
        }

    def restore(self, state: State) -> None:
        """Go on where `snapshot` was taken, in fresh envs as well.

        Raises:
            ConfigError: the snapshot is of another env or another layout.
        """
        envs = self._all_envs()
        taken = (state["id"], state["columns"], len(state["envs"]))
        here = (self.spec.id, self.spec.columns, len(envs))
        if taken != here:
            raise ConfigError(
                f"the snapshot (env, columns, env objects) is of {taken}, but these envs are {here}: make "
                "them with the env id, the envs per actor and the groups that it was taken with"
            )
        for index, env in enumerate(envs):
            snapshots.load(env, state["envs"][str(index)])
        for name, part in named(self._rows).items():
            part[...] = state["rows"][name]
        self._seeds = None


# --- making them --------------------------------------------------------------------------------------------


def make_gymnasium(
    env_id: str,
    registered: RegisteredEnv,
    groups: Sequence[slice],
    seeds: Sequence[int],
    kwargs: Mapping[str, Any],
) -> Envs:
    """Make the envs of one actor; they are `Snapshots` where the state of every one is known.

    Args:
        env_id: what the user typed, for messages.
        registered: its entry in Gymnasium's registry.
        groups: the columns of each group.
        seeds: one a column; a vector env takes that of its first.
        kwargs: for the env's constructor.
    """
    with mujoco_warnings_once(registered):
        sources = [_source(registered, group.stop - group.start, kwargs) for group in groups]
    first = sources[0][0] if isinstance(sources[0], list) else sources[0]
    observation, action = _spaces(sources[0])
    spec = EnvSpec(
        id=env_id,
        observation=observation_leaves(observation, env_id),
        action=action_spec(action, env_id),
        columns=len(seeds),
        frame_skip=int(getattr(first.unwrapped, "frame_skip", 1)),
    )
    savable = all(
        snapshots.can_save(env) for source in sources for env in (source if isinstance(source, list) else [source])
    )
    return (SnapshotEnvs if savable else GymnasiumEnvs)(spec, groups, sources, seeds)


def make_scalar(registered: RegisteredEnv, kwargs: Mapping[str, Any]) -> AnyEnv:
    """Make one env without the wrappers that check every step: offbeat has its own checks."""
    return gym.make(replace(registered, order_enforce=False), disable_env_checker=True, **kwargs)


@contextmanager
def mujoco_warnings_once(registered: RegisteredEnv) -> Iterator[None]:
    """While envs are made: pass on what MuJoCo says of their model as a Python warning, which is shown once.

    By itself it prints the same line for every column, and writes it to a file in the working directory.
    """
    if not str(registered.entry_point).startswith("gymnasium.envs.mujoco.") or find_spec("mujoco") is None:
        yield
        return
    import mujoco

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(_pass_on)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _pass_on(text: str) -> None:
    """Leave out that Gymnasium's models use deprecated attributes: there is nothing a user could do about it."""
    if "deprecated" not in text:
        warnings.warn(text, stacklevel=2)


def _source(registered: RegisteredEnv, columns: int, kwargs: Mapping[str, Any]) -> AnyVectorEnv | list[AnyEnv]:
    if registered.vector_entry_point is not None and not registered.additional_wrappers:
        vector = gym.make_vec(registered, columns, vectorization_mode="vector_entry_point", **kwargs)
        if vector.metadata.get("autoreset_mode") is AutoresetMode.NEXT_STEP:
            return vector
        vector.close()
    if registered.entry_point is None:
        raise ConfigError(
            f"{registered.id} has only a vector env, and it does not reset in NEXT_STEP order, in which no "
            "true next observation is lost: give it metadata['autoreset_mode'] = AutoresetMode.NEXT_STEP, "
            "or register an entry_point for single envs"
        )
    return [make_scalar(registered, kwargs) for _ in range(columns)]


def _columns(env_id: str, source: AnyVectorEnv | list[AnyEnv], rows: Outcome, first: int) -> Columns:
    if isinstance(source, list):
        return ScalarColumns(env_id, source, rows, first)
    return VectorColumns(env_id, source, rows, first)


def _spaces(source: AnyVectorEnv | list[AnyEnv]) -> tuple[gym.Space[Any], gym.Space[Any]]:
    if isinstance(source, list):
        return source[0].observation_space, source[0].action_space
    return source.single_observation_space, source.single_action_space
