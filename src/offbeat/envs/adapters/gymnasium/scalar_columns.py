"""Columns with one env each, which are stepped in a loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan
from typing import Any

from offbeat.core.errors import FAILURES, EnvFailed
from offbeat.core.types import Array, EnvSpec
from offbeat.envs.actions import ActionEncoder, split_columns
from offbeat.envs.adapters.gymnasium.action_repeat import ActionRepeat
from offbeat.envs.adapters.gymnasium.columns import RETURNED, Columns, DecisionMarks, has_mask
from offbeat.envs.adapters.gymnasium.groups import SingleEnv
from offbeat.envs.contract import Outcome
from offbeat.envs.failures import column_failed, fault_of_call
from offbeat.envs.findings import fault_of_ends, kind_of
from offbeat.envs.infos import info_reader
from offbeat.envs.rows import RowChecks, mark_reset_rows, only_numbers, prefer_termination, rows_of
from offbeat.envs.space_generators import seed_spaces
from offbeat.envs.writers import Writer, writers_of


class ScalarColumns:
    """One env per column, stepped in a loop, in NEXT_STEP order."""

    def __init__(
        self, spec: EnvSpec, envs: Sequence[SingleEnv], rows: Outcome, next_no_decision: Array, first: int
    ) -> None:
        self.envs = envs
        self.offers_mask = False
        self._spec = spec
        self._rows = rows
        self.span = slice(first, first + len(envs))
        self.decision_marks = DecisionMarks(rows, next_no_decision)
        self._checks = RowChecks(spec, rows, first, next_no_decision)
        self._writers, self._mask_writers = zip(*(self._writers_of(column) for column in range(len(envs))), strict=True)
        self._read_info = info_reader(spec.info, rows.info) if spec.info else None
        self._rewards = only_numbers(rows.reward)
        self._stepped = False
        """Whether the types of a reward and of its flags have been checked, in the first step."""

    def _writers_of(self, column: int) -> tuple[Writer, Writer | None]:
        # `leaf[column, ...]` is a view also for leaves without axes, where `leaf[column]` is a number.
        row = {name: leaf[column, ...] for name, leaf in self._rows.observation.items()}
        return writers_of(self._spec, self.envs[0].observation_space, row)

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
                    self._read(column, info)
                if write_mask is not None:
                    write_mask(info)
        except FAILURES as error:
            if not isinstance(info, Mapping):  # an observation of two numbers can be unpacked too
                what = f"reset() did not return {RETURNED['reset']}: its second value is {kind_of(info)}, not a dict"
                raise column_failed(self._spec, self.span.start + column, what, error) from error
            raise self._failed(column, "reset", error) from error
        self._checks.require()

    def step(self, actions: Iterable[Any]) -> Outcome:
        rewards, terminations, truncations = self._rewards, self._rows.terminated, self._rows.truncated
        mark_reset_rows(self._rows)
        columns = zip(self.envs, self._writers, self._mask_writers, self._rows.valid.tolist(), actions, strict=True)
        read_info, marks = self._read_info, self.decision_marks
        if read_info is not None:
            self._rows.info.fill(nan)
        if marks.possible:
            marks.mark()
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
                    self._read(column, info)
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

    def _read(self, column: int, info: Any) -> None:
        """Read from the info of one env whether its next row has no decision, and whether there are masks."""
        self.decision_marks.read(column, info)
        if not self.offers_mask:
            self.offers_mask = has_mask(info)

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
                self.decision_marks.next[column : column + 1],
                self.span.start + column,
            )
            for column, env in enumerate(self.envs)
        ]

    def _failed(self, column: int, call: str, error: BaseException, ends: Sequence[Any] = ()) -> EnvFailed:
        """Return the error for a column; `ends`: the reward and the flags that its step has returned, if it has."""
        if ends and _is_of_types(error) and (fault := fault_of_ends(*ends)) is not None:
            return column_failed(self._spec, self.span.start + column, fault)
        what = _not_unpacked(call, error) or fault_of_call(f"{call}()", error)
        return column_failed(self._spec, self.span.start + column, what, error)


def _not_unpacked(call: str, error: BaseException) -> str:
    """Return the message for a method that returned another number of values; '' if that was not the error."""
    if not (_raised_here(error) or _raised_in_repeat(error)) or not _is_not_unpacked(error):
        return ""
    return (
        f"{call}() did not return {RETURNED[call]} ({error}). An env with gym's old API needs a class of yours that "
        "returns this"
    )


def _is_of_types(error: BaseException) -> bool:
    """Whether a reward or flag was returned that is no number. After other errors they are those of another column."""
    return _raised_here(error) and not _is_not_unpacked(error)


def _is_not_unpacked(error: BaseException) -> bool:
    return isinstance(error, TypeError | ValueError) and "unpack" in str(error)


def _raised_here(error: BaseException) -> bool:
    """Whether an error was raised in the method that has caught it, and not in one that it called: by the line with the
    call itself, such as by the assignment of what it returned.
    """
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def _raised_in_repeat(error: BaseException) -> bool:
    """Whether an error was raised in the method of `ActionRepeat`, and not in one of the env."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_code is ActionRepeat.step.__code__
