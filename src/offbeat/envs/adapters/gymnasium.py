"""Any Gymnasium env as `Envs`: its own vector env where it has one, else a loop over its columns.

Gymnasium's SyncVectorEnv is not used: merging infos, copying observations three times and checking every step
cost more than many an env. Rows are written once, into arrays that are allocated once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import nan
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from numpy.typing import NDArray

from offbeat.config.curriculum import Parameter, parameters
from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.core.types import INFO_MASK, NO_DECISION, Array, EnvSpec, Tree
from offbeat.envs import snapshots
from offbeat.envs.advancing import Part, walk
from offbeat.envs.contract import Advanced, Envs, Outcome, State
from offbeat.envs.encoding import ActionEncoder, action_encoder, apart
from offbeat.envs.infos import no_decision_of, number_reader, numbers_reader
from offbeat.envs.limits import Limits
from offbeat.envs.progress import progress_setters
from offbeat.envs.rows import (
    FAILURES,
    FiniteCheck,
    MaskCheck,
    Writer,
    copy_exactly,
    empty_rows,
    failed,
    info_mask_writer,
    let_termination_win,
    mark_reset_rows,
    named,
    observation_writer,
    require_choices,
    require_finite,
    rows_of,
)
from offbeat.envs.sources import AnyEnv, AnyVectorEnv, make_source, mujoco_warnings_once
from offbeat.envs.spaces import action_spec, observation_leaves

# --- the columns of one group -------------------------------------------------------------------------------


class Columns(Protocol):
    """Envs that write their rows, which are next to each other, into arrays they were given."""

    @property
    def envs(self) -> Sequence[snapshots.AnyEnv]: ...

    no_decision: NoDecision

    @property
    def place(self) -> slice:
        """Which of the actor's columns these are."""
        ...

    @property
    def offers_mask(self) -> bool:
        """Whether the infos of the last reset had an action_mask."""
        ...

    def reset(self, seeds: Sequence[int] | None) -> None: ...

    def encode(self, action: ActionEncoder, actions: Array) -> Any:
        """Turn recorded actions [n, *shape] into a copy that `step` takes."""
        ...

    def step(self, actions: Any) -> Outcome: ...

    def apart(self) -> Sequence[Columns]:
        """Return the same columns, in as many parts as can be stepped without each other."""
        ...


class NoDecision:
    """Which columns of a group have nothing to decide in the next row."""

    def __init__(self, rows: Outcome, no_decision: NDArray[np.bool_]) -> None:
        """Mark the rows of a group; `no_decision`, [n], is what infos have said of the next ones."""
        self._rows, self.next = rows, no_decision
        self.some = True
        """Whether there may be any, or may have been in the last row."""
        self.said = False
        """Whether infos have said anything of it."""

    def mark(self) -> None:
        """Mark rows without a decision, once reset rows are marked; nothing is said of the next ones yet."""
        valid, no_decision = self._rows.valid, self._rows.no_decision
        assert no_decision is not None
        np.logical_and(self.next, valid, out=no_decision)
        np.greater(valid, no_decision, out=valid)
        self.next.fill(False)
        self.some = bool(no_decision.any())

    def read(self, column: int, info: Any) -> None:
        """Take what the info of one env says of its next row."""
        if isinstance(info, dict) and (wait := info.get(NO_DECISION)) is not None:
            self.said = True
            if wait:
                self.next[column] = self.some = True

    def read_all(self, infos: Any) -> None:
        """Take what the infos of a vector env say of the next rows."""
        no_decision = no_decision_of(infos, len(self.next))
        if no_decision is not None:
            self.said = self.some = True
            self.next[:] = no_decision


class ScalarColumns:
    """One env a column, stepped in a loop, in NEXT_STEP order."""

    def __init__(self, spec: EnvSpec, envs: Sequence[AnyEnv], rows: Outcome, no_decision: Array, first: int) -> None:
        self.envs = envs
        self.offers_mask = False
        self._spec = spec
        self._rows = rows
        self.place = slice(first, first + len(envs))
        self.no_decision = NoDecision(rows, no_decision)
        self._checks = _Checks(spec, rows, no_decision, first)
        self._writers, self._mask_writers = zip(*(self._writers_of(column) for column in range(len(envs))), strict=True)
        self._read_info = number_reader(spec.info, rows.info) if spec.info else None

    def _writers_of(self, column: int) -> tuple[Writer, Writer | None]:
        # A view even of a leaf without axes: `leaf[column]` would be a number that cannot be written to.
        row = {name: leaf[column, ...] for name, leaf in self._rows.observation.items()}
        return _writers(self._spec, self.envs[0].observation_space, row)

    def reset(self, seeds: Sequence[int] | None) -> None:
        column = 0
        try:
            for column, (env, write, write_mask) in enumerate(
                zip(self.envs, self._writers, self._mask_writers, strict=True)
            ):
                observation, info = env.reset(seed=None if seeds is None else seeds[column])
                write(observation)
                if info:
                    self.no_decision.read(column, info)
                if write_mask is not None:
                    write_mask(info)
            self.offers_mask = _has_mask(info)
        except FAILURES as error:
            raise self._failed(column, "reset", error) from error
        self._checks.require()

    def step(self, actions: Iterable[Any]) -> Outcome:
        rewards, terminations, truncations = self._rows.reward, self._rows.terminated, self._rows.truncated
        mark_reset_rows(self._rows)
        columns = zip(self.envs, self._writers, self._mask_writers, self._rows.valid.tolist(), actions, strict=True)
        read_info, no_decision = self._read_info, self.no_decision
        if read_info is not None:
            self._rows.info.fill(nan)
        if no_decision.some:
            no_decision.mark()
        column = 0
        try:
            for column, (env, write, write_mask, goes_on, action) in enumerate(columns):
                if goes_on:
                    observation, reward, terminated, truncated, info = env.step(action)
                    if read_info is not None:
                        read_info(column, info)
                else:
                    observation, info = env.reset()
                    reward, terminated, truncated = 0.0, False, False
                write(observation)
                if info:
                    no_decision.read(column, info)
                if write_mask is not None:
                    write_mask(info)
                rewards[column] = reward
                terminations[column] = terminated
                truncations[column] = truncated
        except FAILURES as error:
            raise self._failed(column, "step", error) from error
        let_termination_win(self._rows)
        self._checks.require()
        return self._rows

    def encode(self, action: ActionEncoder, actions: Array) -> Iterable[Any]:
        return apart(self._spec.action, action(actions))

    def apart(self) -> Sequence[Columns]:
        return [
            ScalarColumns(
                self._spec,
                [env],
                rows_of(self._rows, slice(column, column + 1)),
                self.no_decision.next[column : column + 1],
                self.place.start + column,
            )
            for column, env in enumerate(self.envs)
        ]

    def _failed(self, column: int, call: str, error: BaseException) -> EnvFailed:
        what = f"{call}() gave {type(error).__name__}: {error}"
        return failed(self._spec.id, self.place.start + column, what, error)


class VectorColumns:
    """A vector env that resets itself in NEXT_STEP order. Its columns draw from one random stream."""

    def __init__(self, spec: EnvSpec, env: AnyVectorEnv, rows: Outcome, no_decision: Array, first: int) -> None:
        self.envs = (env,)
        self.offers_mask = False
        self._spec = spec
        self._env = env
        self._rows = rows
        self.place = slice(first, first + len(rows.reward))
        self.no_decision = NoDecision(rows, no_decision)
        self._checks = _Checks(spec, rows, no_decision, first)
        self._write, self._write_mask = _writers(spec, env.single_observation_space, rows.observation)
        self._read_info = numbers_reader(spec.info, rows.info) if spec.info else None

    def reset(self, seeds: Sequence[int] | None) -> None:
        try:
            observation, info = self._env.reset(seed=None if seeds is None else seeds[0])
            self._write_row(observation, info)
            self.offers_mask = _has_mask(info)
        except FAILURES as error:
            raise self._failed("reset", error) from error
        self._checks.require()

    def step(self, actions: Any) -> Outcome:
        rows = self._rows
        mark_reset_rows(rows)
        goes_on = rows.valid.copy() if self.no_decision.some else rows.valid
        if self.no_decision.some:
            self.no_decision.mark()
        try:
            observation, *parts, info = self._env.step(actions)
            self._write_row(observation, info)
            for target, part in zip((rows.reward, rows.terminated, rows.truncated), parts, strict=True):
                copy_exactly(target, part)
            if self._read_info is not None:
                self._read_info(goes_on, info)
        except FAILURES as error:
            raise self._failed("step", error) from error
        let_termination_win(rows)
        self._checks.require()
        return rows

    def _write_row(self, observation: Any, info: Mapping[str, Any]) -> None:
        self._write(observation)
        if info:
            self.no_decision.read_all(info)
        if self._write_mask is not None:
            self._write_mask(info)

    def encode(self, action: ActionEncoder, actions: Array) -> Any:
        return action(actions)

    def apart(self) -> Sequence[Columns]:
        return [self]

    def _failed(self, call: str, error: BaseException) -> EnvFailed:
        what = f"{call}() of the vector env that begins here gave {type(error).__name__}: {error}"
        return failed(self._spec.id, self.place.start, what, error)


class _Checks:
    """What is looked for in each row."""

    def __init__(self, spec: EnvSpec, rows: Outcome, no_decision: Array, first: int) -> None:
        self._id, self._first = spec.id, first
        self._finite = FiniteCheck(rows)
        self._mask = MaskCheck(rows, spec.mask, spec.action.nvec, no_decision) if spec.mask else None

    def require(self) -> None:
        """Refuse rows with NaN or infinity, or in which nothing may be done.

        Raises:
            EnvFailed: with the column.
        """
        require_finite(self._finite, self._id, self._first)
        require_choices(self._mask, self._id, self._first)


def _writers(spec: EnvSpec, space: gym.Space[Any], targets: Tree) -> tuple[Writer, Writer | None]:
    """Return what writes an observation, and what writes the mask in an info, where the spec says that there is one."""
    leaves = [leaf for leaf in spec.observation if leaf.name != INFO_MASK]
    write = observation_writer(space, leaves, [targets[leaf.name] for leaf in leaves])
    return write, info_mask_writer(targets[INFO_MASK]) if INFO_MASK in targets else None


def _has_mask(info: Any) -> bool:
    return isinstance(info, Mapping) and INFO_MASK in info


# --- the adapter --------------------------------------------------------------------------------------------


class GymnasiumEnvs:
    """The columns of one actor; `recv` does the stepping, as Python envs have nobody else to do it."""

    def __init__(
        self,
        spec: EnvSpec,
        groups: Sequence[slice],
        sources: Sequence[AnyVectorEnv | list[AnyEnv]],
        seeds: Sequence[int],
        curriculum: Sequence[Parameter] = (),
    ) -> None:
        self.spec = spec
        self.groups = tuple(groups)
        self._seeds: Sequence[int] | None = seeds
        self._no_decision = np.zeros(spec.columns, np.bool_)
        rows = empty_rows(spec.observation, spec.columns, spec.info)
        self._rows = rows._replace(no_decision=np.zeros_like(self._no_decision))
        self._columns = [
            _columns(spec, source, rows_of(self._rows, group), self._no_decision[group], group.start)
            for source, group in zip(sources, groups, strict=True)
        ]
        self._encode = action_encoder(spec.action)
        self._progress_setters = progress_setters(self._all_envs(), curriculum, spec.id)
        self._sent: list[Any] = [None] * len(groups)

    @property
    def observation(self) -> Tree:
        """The observations that the next actions answer, [N, *shape]."""
        return self._rows.observation

    @property
    def offers_mask(self) -> bool:
        """Whether the infos say which choices are allowed, and nobody asks them yet."""
        return self.spec.mask is None and bool(self.spec.action.nvec) and self._columns[0].offers_mask

    def set_progress(self, progress: float) -> None:
        """Tell those envs that listen; a curriculum sets their parameters."""
        try:
            for set_progress in self._progress_setters:
                set_progress(progress)
        except FAILURES as error:
            what = f"being told of progress, an env gave {type(error).__name__}: {error}"
            raise failed(self.spec.id, 0, what, error) from error

    @property
    def no_decision(self) -> bool:
        """Whether an info has said so far whether there is something to decide."""
        return any(columns.no_decision.said for columns in self._columns)

    def reset(self) -> Tree:
        """Begin a new episode in every column: the first time from the seeds, then on from there."""
        self._no_decision[:] = False
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
        return Advanced(self.observation, *walk(self.spec, self.observation, parts, steps, random, before_step))

    def send(self, actions: Array, group: int = 0) -> None:
        """Keep a copy of the group's actions, [n, *shape]."""
        self._sent[group] = self._columns[group].encode(self._encode, actions)

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
        return Part(columns.place, lambda actions: columns.step(columns.encode(self._encode, actions)))


class SnapshotEnvs(GymnasiumEnvs):
    """Gymnasium envs whose whole state is known."""

    def snapshot(self) -> State:
        """Return the state between two steps: of every env, and the rows, which say who begins an episode."""
        return {
            "id": self.spec.id,
            "columns": self.spec.columns,
            "envs": {str(index): snapshots.save(env) for index, env in enumerate(self._all_envs())},
            "rows": {name: part.copy() for name, part in named(self._rows).items()},
            "no_decision": self._no_decision.copy(),
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
        self._no_decision[:] = state["no_decision"]
        for columns in self._columns:
            columns.no_decision.some = True
        self._seeds = None


# --- making them --------------------------------------------------------------------------------------------


def make_gymnasium(
    env_id: str,
    registered: RegisteredEnv,
    groups: Sequence[slice],
    seeds: Sequence[int],
    settings: EnvConfig,
    limits: Limits,
    kwargs: Mapping[str, Any],
    *,
    info_mask: bool = False,
) -> Envs:
    """Make the envs of one actor; they are `Snapshots` where the state of every one is known.

    Args:
        env_id: what the user typed, for messages.
        registered: its entry in Gymnasium's registry.
        groups: the columns of each group.
        seeds: one a column; a vector env takes that of its first.
        settings: which numbers in infos are read, and which parameters follow the training's progress.
        limits: after how many env steps episodes are truncated, where the env's own limit is longer.
        kwargs: for the env's constructor.
        info_mask: whether the infos say which choices are allowed.
    """
    with mujoco_warnings_once(registered):
        made = [make_source(registered, group.stop - group.start, kwargs, limits) for group in groups]
    sources = [source.envs for source in made]
    first = sources[0][0] if isinstance(sources[0], list) else sources[0]
    observation, actions = _spaces(sources[0])
    action = action_spec(actions, env_id)
    spec = EnvSpec(
        id=env_id,
        observation=observation_leaves(observation, env_id, action, info_mask=info_mask),
        action=action,
        columns=len(seeds),
        frame_skip=int(getattr(first.unwrapped, "frame_skip", 1)),
        info=settings.info_metrics,
    )
    spec = made[0].limits.recorded(spec, made[0].own)
    savable = all(
        snapshots.can_save(env) for source in sources for env in (source if isinstance(source, list) else [source])
    )
    return (SnapshotEnvs if savable else GymnasiumEnvs)(spec, groups, sources, seeds, parameters(settings.curriculum))


def _columns(
    spec: EnvSpec, source: AnyVectorEnv | list[AnyEnv], rows: Outcome, no_decision: Array, first: int
) -> Columns:
    if isinstance(source, list):
        return ScalarColumns(spec, source, rows, no_decision, first)
    return VectorColumns(spec, source, rows, no_decision, first)


def _spaces(source: AnyVectorEnv | list[AnyEnv]) -> tuple[gym.Space[Any], gym.Space[Any]]:
    if isinstance(source, list):
        return source[0].observation_space, source[0].action_space
    return source.single_observation_space, source.single_action_space
