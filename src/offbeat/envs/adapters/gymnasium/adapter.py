"""The adapter of Gymnasium: any registered env, single or vectorized, and Atari's games by `ale`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from numpy.typing import NDArray

from offbeat.config.curriculum import Parameter, parameters
from offbeat.config.env import EnvConfig
from offbeat.core.closing import all_or_closed, close_all_or_warn, closed_on_error
from offbeat.core.errors import FAILURES, ConfigError
from offbeat.core.frozen_table import thawed
from offbeat.core.types import Array, EnvSpec, Tree
from offbeat.envs.actions import StepUnit, action_encoder, take_random_steps
from offbeat.envs.adapters.gymnasium import ale, snapshots
from offbeat.envs.adapters.gymnasium.columns import Columns
from offbeat.envs.adapters.gymnasium.groups import (
    AnyEnv,
    AnyVectorEnv,
    Group,
    SingleEnv,
    make_group,
    make_in_mode,
    make_single,
    mujoco_warnings_once,
)
from offbeat.envs.adapters.gymnasium.mujoco_columns import MujocoColumns, stepped_together
from offbeat.envs.adapters.gymnasium.scalar_columns import ScalarColumns
from offbeat.envs.adapters.gymnasium.tasks import TaskSetter
from offbeat.envs.adapters.gymnasium.vector_columns import VectorColumns
from offbeat.envs.contract import Advanced, EnvRequest, Envs, Outcome, State, frame_skip_of
from offbeat.envs.failures import column_failed, fault_of_call
from offbeat.envs.normalizers import normalizers_of
from offbeat.envs.observations import observation_leaves
from offbeat.envs.progress import progress_setters
from offbeat.envs.registration import registered_ids, registry_entry
from offbeat.envs.rows import empty_rows, named, rows_of
from offbeat.envs.spaces import action_spec


class GymnasiumEnvs:
    """The columns of one actor. `recv` steps the envs: Python envs do not step in the background."""

    def __init__(
        self,
        spec: EnvSpec,
        groups: Sequence[slice],
        envs_of_groups: Sequence[AnyVectorEnv | list[SingleEnv]],
        seeds: Sequence[int],
        curriculum: Sequence[Parameter],
        tasks: TaskSetter | None,
    ) -> None:
        """Make the columns. They are `Snapshots` if the state of all envs can be saved, and `TaskEnvs` with `tasks`.

        Args:
            spec: the spec of the envs.
            groups: the columns of each group.
            envs_of_groups: the envs of each group.
            seeds: the seed of each column.
            curriculum: the parameters of the envs that change with the training progress.
            tasks: sets the tasks of these envs, which are single envs; None: they have one task.
        """
        self.spec = spec
        self.groups = tuple(groups)
        self._seeds: Sequence[int] | None = seeds
        self._next_no_decision = np.zeros(spec.columns, np.bool_)
        rows = empty_rows(spec.observation, spec.columns, spec.info)
        self._rows = rows._replace(no_decision=np.zeros_like(self._next_no_decision))
        self._columns = [
            _columns_of(spec, envs, curriculum, rows_of(self._rows, group), self._next_no_decision[group], group.start)
            for envs, group in zip(envs_of_groups, groups, strict=True)
        ]
        self._encode = action_encoder(spec.action)
        self._progress_setters = [
            (columns.span.start + index, progress_setters(env, curriculum, spec.id))
            for columns in self._columns
            for index, env in enumerate(columns.envs)
        ]
        """The first column of each env, and the functions that pass the progress to it."""
        self._sent: list[Any] = [None] * len(groups)
        self._tasks = tasks
        if tasks is not None:
            self.start_tasks = self._start_tasks
        if all(map(snapshots.can_save, self._all_envs())):
            self.snapshot, self.restore = self._snapshot, self._restore

    @property
    def offers_mask(self) -> bool:
        """Whether an info has had an action mask so far, and the spec has none."""
        return (
            self.spec.mask is None
            and bool(self.spec.action.nvec)
            and any(columns.offers_mask for columns in self._columns)
        )

    def set_progress(self, progress: float) -> None:
        """Pass the progress to the envs that use it, and set the parameters of the curriculum."""
        for column, setters in self._progress_setters:
            try:
                for set_progress in setters:
                    set_progress(progress)
            except FAILURES as error:
                what = fault_of_call(f"set_progress({progress})", error)
                raise column_failed(self.spec, column, what, error) from error

    @property
    def reports_no_decision(self) -> bool:
        """Whether an info has had the key 'no_decision' so far."""
        return any(columns.decision_marks.reported for columns in self._columns)

    @property
    def next_no_decision(self) -> NDArray[np.bool_]:
        """[N]: whether the next row of each column is without a decision."""
        ended = self._rows.terminated | self._rows.truncated  # a reset row follows
        return self._next_no_decision & ~ended

    def reset(self) -> Tree:
        """Start a new episode in every column. The first call seeds the envs; later calls continue their streams."""
        self._next_no_decision[:] = False
        self._rows.terminated[:] = self._rows.truncated[:] = False
        for columns in self._columns:
            columns.decision_marks.possible = True  # `advance` steps parts of the columns, which mark their own rows
            columns.reset(None if self._seeds is None else self._seeds[columns.span])
        self._seeds = None
        return self._rows.observation

    def advance(
        self, steps: NDArray[np.int64], random: np.random.Generator, before_step: Callable[[], None] = lambda: None
    ) -> Advanced:
        """Take `steps[c]` random steps in column c; the columns of a vector env all take the largest of theirs."""
        units = [self._unit(part) for columns in self._columns for part in columns.split()]
        return take_random_steps(self.spec, self._rows.observation, units, steps, random, before_step)

    def send(self, actions: Array, group: int = 0) -> None:
        """Store a copy of the group's actions, [n, *shape]."""
        self._sent[group] = self._columns[group].encode(self._encode, actions)

    def recv(self, group: int = 0) -> Outcome:
        """Step the group with the actions of the last `send`. The arrays are the same in every call.

        Raises:
            EnvFailed: an env raised an exception, or returned NaN or a wrong shape.
        """
        actions = self._sent[group]
        if actions is None:
            raise RuntimeError(f"recv({group}) without a send({group}) before it")
        self._sent[group] = None
        return self._columns[group].step(actions)

    def close(self) -> None:
        close_all_or_warn(self._all_envs(), self.spec.id)

    def _all_envs(self) -> list[AnyEnv]:
        return [env for columns in self._columns for env in columns.envs]

    def _unit(self, columns: Columns) -> StepUnit:
        return StepUnit(columns.span, lambda actions: columns.step(columns.encode(self._encode, actions)))

    # --- envs with tasks, and envs whose whole state can be saved ---------------------------------------------

    def _start_tasks(self, tasks: NDArray[np.int64]) -> Tree:
        """Set the task of each column, [N], and start a new episode in every column."""
        assert self._tasks is not None
        self._tasks.set(tasks)
        return self.reset()

    def _snapshot(self) -> State:
        """Return the state between two steps: every env's state, and the rows, which say where an episode starts."""
        return {
            "id": self.spec.id,
            "columns": self.spec.columns,
            "envs": {str(index): snapshots.save(env) for index, env in enumerate(self._all_envs())},
            "rows": {name: part.copy() for name, part in named(self._rows).items()},
            "no_decision": self._next_no_decision.copy(),
            **({} if self._tasks is None else {"tasks": self._tasks.current}),
        }

    def _restore(self, state: State) -> None:
        """Restore the state of a snapshot, also into newly made envs.

        Raises:
            ConfigError: the snapshot is of another env or of other numbers of columns and groups.
        """
        saved = (state["id"], state["columns"], len(state["envs"]))
        current = (self.spec.id, self.spec.columns, len(self._all_envs()))
        if saved != current:
            raise ConfigError(
                f"the snapshot is of {_named(saved)}, but these envs are {_named(current)}: use the env id, "
                "the envs per actor and the groups of the snapshot"
            )
        if self._tasks is not None:
            self._start_tasks(state["tasks"])  # a task is only in effect after a reset
        for index, env in enumerate(self._all_envs()):
            snapshots.load(env, state["envs"][str(index)])
        for name, part in named(self._rows).items():
            part[...] = state["rows"][name]
        self._next_no_decision[:] = state["no_decision"]
        for columns in self._columns:
            columns.decision_marks.possible = True
        self._seeds = None


# --- making envs --------------------------------------------------------------------------------------------


class GymnasiumAdapter:
    """Ids of Gymnasium's registry, and 'module:Class'."""

    def make(self, request: EnvRequest) -> Envs:
        """Make the envs of one actor. They are `Snapshots` if the state of every env can be saved."""
        entry = registry_entry(request.env_id)
        if ale.is_atari(entry, request.env_id):
            return ale.make_atari(request, entry)
        return _make_gymnasium(request, entry)

    def make_single(self, env_id: str, settings: EnvConfig) -> SingleEnv | None:
        """Return one env with the wrappers and frame skip of the settings, without a time limit.

        None for vector envs and Atari.
        """
        entry = registry_entry(env_id)
        if entry.entry_point is None or ale.is_atari(entry, env_id):
            return None
        with mujoco_warnings_once(entry):
            unlimited = replace(entry, max_episode_steps=None)
            return make_single(
                unlimited,
                thawed(settings.kwargs),
                wrappers=settings.wrappers,
                frame_skip=settings.action_repeats,
            )

    def make_renderable(self, env_id: str, settings: EnvConfig, render_mode: str) -> Any:
        """Return one env with the final parameters of the curriculum; for Atari's games, an `ale.RenderedGame`."""
        entry = registry_entry(env_id)
        if ale.is_atari(entry, env_id):
            return ale.RenderedGame(env_id, settings, render_mode)
        with mujoco_warnings_once(entry):
            env = make_in_mode(entry, settings, render_mode)
        with closed_on_error([env]):
            for set_progress in progress_setters(env, parameters(settings.curriculum), env_id):
                set_progress(1.0)
        return env

    def ids(self) -> list[str]:
        """Return the registered ids whose requirements are installed."""
        return registered_ids()


ADAPTER = GymnasiumAdapter()


def _make_gymnasium(request: EnvRequest, registered: RegisteredEnv) -> Envs:
    with mujoco_warnings_once(registered):
        groups = all_or_closed(make_group(registered, group.stop - group.start, request) for group in request.groups)
    with closed_on_error(groups):
        return _envs_of(request, groups)


def _envs_of(request: EnvRequest, groups: Sequence[Group]) -> Envs:
    """Return the envs of one actor."""
    envs_of_groups = [group.envs for group in groups]
    spec = groups[0].limits.spec_with_limits(_spec_of(request, groups[0]), groups[0].own_limit)
    envs = [env for group in groups for env in group.objects]
    tasks = None if request.tasks is None else TaskSetter(envs, request.tasks, request.env_id, spec.check_command)
    curriculum = parameters(request.settings.curriculum)
    return GymnasiumEnvs(spec, request.groups, envs_of_groups, request.seeds, curriculum, tasks)


def _spec_of(request: EnvRequest, group: Group) -> EnvSpec:
    observation, actions = group.spaces
    action, first = action_spec(actions, request.env_id), group.objects[0]
    leaves = observation_leaves(observation, request.env_id, action, request.settings, info_mask=request.info_mask)
    frame_skip = frame_skip_of(first.unwrapped) * request.settings.action_repeats
    return replace(request.spec_of(leaves, action, frame_skip), normalizers=normalizers_of(first))


def _named(found: tuple[str, int, int]) -> str:
    env_id, columns, objects = found
    return f"{env_id} with {columns} envs in {objects} env objects"


def _columns_of(
    spec: EnvSpec,
    envs: AnyVectorEnv | list[SingleEnv],
    curriculum: Sequence[Parameter],
    rows: Outcome,
    next_no_decision: Array,
    first: int,
) -> Columns:
    if not isinstance(envs, list):
        return VectorColumns(spec, envs, rows, next_no_decision, first)
    locomotion = stepped_together(envs, curriculum, spec.info)
    if locomotion is not None:
        return MujocoColumns(spec, envs, rows, next_no_decision, first, locomotion)
    return ScalarColumns(spec, envs, rows, next_no_decision, first)
