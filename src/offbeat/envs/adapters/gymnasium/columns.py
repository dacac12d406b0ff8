"""The columns of one group of Gymnasium envs: single envs in a loop, or a vector env.

Gymnasium's SyncVectorEnv is not used: it merges infos, copies observations three times and checks every step, which
costs more than many envs do. Here each row is written once, into arrays that are allocated once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import EnvFailed
from offbeat.core.types import INFO_MASK, NO_DECISION, Array, EnvSpec, Tree
from offbeat.envs.actions import ActionEncoder, split_columns
from offbeat.envs.adapters.gymnasium.snapshots import AnyEnv
from offbeat.envs.adapters.gymnasium.sources import AnyVectorEnv, SingleEnv
from offbeat.envs.check_parts import fault_of_ends, kind_of
from offbeat.envs.contract import Outcome
from offbeat.envs.infos import no_decision_of, number_reader, numbers_reader
from offbeat.envs.rows import (
    FAILURES,
    FiniteCheck,
    MaskCheck,
    Writer,
    column_failed,
    copy_exactly,
    info_mask_writer,
    mark_reset_rows,
    observation_writer,
    only_numbers,
    prefer_termination,
    require_choices,
    require_finite,
    rows_of,
)
from offbeat.envs.space_generators import seed_spaces


class Columns(Protocol):
    """Envs of adjacent columns, which write their rows into given arrays."""

    @property
    def envs(self) -> Sequence[AnyEnv]: ...

    no_decision: NoDecision

    @property
    def span(self) -> slice:
        """These columns, as a slice of those of the actor."""
        ...

    @property
    def offers_mask(self) -> bool:
        """Whether the infos of the last reset had an action_mask."""
        ...

    def reset(self, seeds: Sequence[int] | None) -> None: ...

    def encode(self, action: ActionEncoder, actions: Array) -> Any:
        """Convert recorded actions [n, *shape] to a copy that `step` takes."""
        ...

    def step(self, actions: Any) -> Outcome: ...

    def split(self) -> Sequence[Columns]:
        """Return these columns as the smallest parts that can be stepped separately."""
        ...


class NoDecision:
    """Reads from the infos which columns of a group have nothing to decide in the next row, and marks these rows."""

    def __init__(self, rows: Outcome, no_decision: NDArray[np.bool_]) -> None:
        """Mark rows without a decision in `rows`.

        Args:
            rows: Rows of the group.
            no_decision: Flags for the next rows, [n]. They are written here and cleared by `mark`.
        """
        self._rows, self.next = rows, no_decision
        self.possible = True
        """Whether the last row or the next one may have no decision."""
        self.reported = False
        """Whether any info has had the key so far."""

    def mark(self) -> None:
        """Mark rows without a decision. Call it after `mark_reset_rows`; it clears the flags for the next rows."""
        valid, no_decision = self._rows.valid, self._rows.no_decision
        assert no_decision is not None
        np.logical_and(self.next, valid, out=no_decision)
        np.greater(valid, no_decision, out=valid)
        self.next.fill(False)
        self.possible = bool(no_decision.any())

    def read(self, column: int, info: Any) -> None:
        """Read the flag of one env's next row from its info."""
        if isinstance(info, dict) and (flag := info.get(NO_DECISION)) is not None:
            self.reported = True
            if flag:
                self.next[column] = self.possible = True

    def read_all(self, infos: Any) -> None:
        """Read the flags of the next rows from the infos of a vector env."""
        no_decision = no_decision_of(infos, len(self.next))
        if no_decision is not None:
            self.reported = self.possible = True
            self.next[:] = no_decision


class ScalarColumns:
    """One env per column, stepped in a loop, in NEXT_STEP order."""

    def __init__(self, spec: EnvSpec, envs: Sequence[SingleEnv], rows: Outcome, no_decision: Array, first: int) -> None:
        self.envs = envs
        self.offers_mask = False
        self._spec = spec
        self._rows = rows
        self.span = slice(first, first + len(envs))
        self.no_decision = NoDecision(rows, no_decision)
        self._checks = _Checks(spec, rows, no_decision, first)
        self._writers, self._mask_writers = zip(*(self._writers_of(column) for column in range(len(envs))), strict=True)
        self._read_info = number_reader(spec.info, rows.info) if spec.info else None
        self._rewards = only_numbers(rows.reward)
        self._stepped = False
        """Whether the types of a reward and of its flags have been checked, in the first step."""

    def _writers_of(self, column: int) -> tuple[Writer, Writer | None]:
        # `leaf[column, ...]` is a view also for leaves without axes, where `leaf[column]` is a number.
        row = {name: leaf[column, ...] for name, leaf in self._rows.observation.items()}
        return _writers(self._spec, self.envs[0].observation_space, row)

    def reset(self, seeds: Sequence[int] | None) -> None:
        column = 0
        info: Any = {}
        try:
            for column, (env, write, write_mask) in enumerate(
                zip(self.envs, self._writers, self._mask_writers, strict=True)
            ):
                if seeds is not None:
                    seed_spaces(env, seeds[column])
                info = {}
                observation, info = env.reset(seed=None if seeds is None else seeds[column])
                write(observation)
                if info:
                    self.no_decision.read(column, info)
                if write_mask is not None:
                    write_mask(info)
            self.offers_mask = _has_mask(info)
        except FAILURES as error:
            if not isinstance(info, Mapping):  # an observation of two numbers can be unpacked too
                what = f"reset() did not return {_RETURNED['reset']}: its second value is {kind_of(info)}, not a dict"
                raise column_failed(self._spec, self.span.start + column, what, error) from error
            raise self._failed(column, "reset", error) from error
        self._checks.require()

    def step(self, actions: Iterable[Any]) -> Outcome:
        rewards, terminations, truncations = self._rewards, self._rows.terminated, self._rows.truncated
        mark_reset_rows(self._rows)
        columns = zip(self.envs, self._writers, self._mask_writers, self._rows.valid.tolist(), actions, strict=True)
        read_info, no_decision = self._read_info, self.no_decision
        if read_info is not None:
            self._rows.info.fill(nan)
        if no_decision.possible:
            no_decision.mark()
        column = 0
        reward: Any = 0.0
        terminated: Any = False
        truncated: Any = False
        continues = True
        try:
            for column, (env, write, write_mask, continues, action) in enumerate(columns):
                if continues:
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
            ends = (reward, terminated, truncated)
            raise self._failed(column, "step" if continues else "reset", error, ends) from error
        if not self._stepped:
            self._stepped = True
            self._require_types(column, reward, terminated, truncated)
        prefer_termination(self._rows)
        self._checks.require()
        return self._rows

    def _require_types(self, column: int, reward: Any, terminated: Any, truncated: Any) -> None:
        """Raise EnvFailed for a reward or flags that NumPy would convert, such as text or None, or that it cannot."""
        fault = fault_of_ends(reward, terminated, truncated)
        if fault is not None:
            raise column_failed(self._spec, self.span.start + column, fault)

    def encode(self, action: ActionEncoder, actions: Array) -> Iterable[Any]:
        return split_columns(self._spec.action, action(actions))

    def split(self) -> Sequence[Columns]:
        return [
            ScalarColumns(
                self._spec,
                [env],
                rows_of(self._rows, slice(column, column + 1)),
                self.no_decision.next[column : column + 1],
                self.span.start + column,
            )
            for column, env in enumerate(self.envs)
        ]

    def _failed(self, column: int, call: str, error: BaseException, ends: Sequence[Any] = ()) -> EnvFailed:
        """Return the error for a column; `ends`: the reward and the flags that its step has returned, if it has."""
        if ends and _is_of_types(error) and (fault := fault_of_ends(*ends)) is not None:
            return column_failed(self._spec, self.span.start + column, fault)
        what = _not_unpacked(call, error) or f"{call}() raised {type(error).__name__}: {error}"
        return column_failed(self._spec, self.span.start + column, what, error)


class VectorColumns:
    """A vector env that resets itself in NEXT_STEP order. Its columns share one random stream."""

    def __init__(self, spec: EnvSpec, env: AnyVectorEnv, rows: Outcome, no_decision: Array, first: int) -> None:
        self.envs = (env,)
        self.offers_mask = False
        self._spec = spec
        self._env = env
        self._rows = rows
        self.span = slice(first, first + len(rows.reward))
        self.no_decision = NoDecision(rows, no_decision)
        self._checks = _Checks(spec, rows, no_decision, first)
        self._write, self._write_mask = _writers(spec, env.single_observation_space, rows.observation)
        self._read_info = numbers_reader(spec.info, rows.info) if spec.info else None
        self._stepped = False
        """As in `ScalarColumns`."""

    def reset(self, seeds: Sequence[int] | None) -> None:
        try:
            if seeds is not None:
                seed_spaces(self._env, seeds[0])
            observation, info = self._env.reset(seed=None if seeds is None else seeds[0])
            self._write_row(observation, info)
            self.offers_mask = _has_mask(info)
        except FAILURES as error:
            raise self._failed("reset", error) from error
        self._checks.require()

    def step(self, actions: Any) -> Outcome:
        rows = self._rows
        mark_reset_rows(rows)
        continues = rows.valid.copy() if self.no_decision.possible else rows.valid
        if self.no_decision.possible:
            self.no_decision.mark()
        targets = rows.reward, rows.terminated, rows.truncated
        ends: Sequence[Any] = targets
        try:
            observation, *ends, info = self._env.step(actions)
            self._write_row(observation, info)
            for target, part in zip(targets, ends, strict=True):
                values = np.asarray(part)
                if values.dtype.kind not in "fiub":
                    self._require_types(ends)  # NumPy would convert None to NaN
                copy_exactly(target, values)
            if self._read_info is not None:
                self._read_info(continues, info)
        except FAILURES as error:
            self._require_types(ends)
            raise self._failed("step", error) from error
        if not self._stepped:
            self._stepped = True
            self._require_types(ends)
        prefer_termination(rows)
        self._checks.require()
        return rows

    def _require_types(self, ends: Sequence[Any]) -> None:
        """Raise EnvFailed for the faults that `ScalarColumns` reports, and for rewards or flags of a wrong shape.

        Args:
            ends: rewards, terminations and truncations, [n] each.
        """
        columns, values = len(self._rows.reward), [np.asarray(part, object) for part in ends]
        if len(values) != len(_ENDS):
            what = f"step() did not return {_RETURNED['step']}, but {len(values) + 2} values"
            raise column_failed(self._spec, self.span.start, what)
        for name, part in zip(_ENDS, values, strict=True):
            if part.shape != (columns,):
                what = (
                    f"step() returned {name} of shape {part.shape}, but a vector env of {columns} returns ({columns},)"
                )
                raise column_failed(self._spec, self.span.start, what)
        for column, of_column in enumerate(zip(*(part.tolist() for part in values), strict=True)):
            fault = fault_of_ends(*of_column)
            if fault is not None:
                raise column_failed(self._spec, self.span.start + column, fault)

    def _write_row(self, observation: Any, info: Mapping[str, Any]) -> None:
        self._write(observation)
        if info:
            self.no_decision.read_all(info)
        if self._write_mask is not None:
            self._write_mask(info)

    def encode(self, action: ActionEncoder, actions: Array) -> Any:
        return action(actions)

    def split(self) -> Sequence[Columns]:
        return [self]

    def _failed(self, call: str, error: BaseException) -> EnvFailed:
        what = f"{call}() of the vector env whose first column this is raised {type(error).__name__}: {error}"
        failure = column_failed(self._spec, self.span.start, what, error)
        failure.column = None  # it may be any of its columns, and each is at another env step of its episode
        return failure


class _Checks:
    """The checks of each row."""

    def __init__(self, spec: EnvSpec, rows: Outcome, no_decision: Array, first: int) -> None:
        self._spec, self._first = spec, first
        self._finite = FiniteCheck(rows)
        self._mask = MaskCheck(rows, spec.mask, spec.action.nvec, no_decision) if spec.mask else None

    def require(self) -> None:
        """Raise EnvFailed, with the column, for NaN, infinity, or a mask that allows nothing."""
        require_finite(self._finite, self._spec, self._first)
        require_choices(self._mask, self._spec, self._first)


def _writers(spec: EnvSpec, space: gym.Space[Any], targets: Tree) -> tuple[Writer, Writer | None]:
    """Return the writer of observations, and the writer of the infos' masks if the spec has such a leaf."""
    leaves = [leaf for leaf in spec.observation if leaf.name != INFO_MASK]
    write = observation_writer(space, leaves, [targets[leaf.name] for leaf in leaves])
    return write, info_mask_writer(targets[INFO_MASK]) if INFO_MASK in targets else None


_ENDS = ("reward", "terminated", "truncated")
_RETURNED = {"reset": "(observation, info)", "step": "(observation, reward, terminated, truncated, info)"}


def _not_unpacked(call: str, error: BaseException) -> str:
    """Return the message for a method that returned another number of values; '' if that was not the error."""
    if not _raised_here(error) or not _is_not_unpacked(error):
        return ""
    return (
        f"{call}() did not return {_RETURNED[call]} ({error}). An env with gym's old API needs a class of yours that "
        "returns this"
    )


def _is_of_types(error: BaseException) -> bool:
    """Whether a reward or flag was returned that is no number. After other errors they are those of another column."""
    return _raised_here(error) and not _is_not_unpacked(error)


def _is_not_unpacked(error: BaseException) -> bool:
    return isinstance(error, TypeError | ValueError) and "unpack" in str(error)


def _raised_here(error: BaseException) -> bool:
    """Whether an error was raised in the method that has caught it, and not in one that it called."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def _has_mask(info: Any) -> bool:
    return isinstance(info, Mapping) and INFO_MASK in info
