"""Columns that one vector env steps together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from offbeat.core.errors import FAILURES, EnvFailed
from offbeat.core.types import INFO_MASK, Array, EnvSpec
from offbeat.envs.actions import ActionEncoder
from offbeat.envs.adapters.gymnasium.columns import RETURNED, Columns, DecisionMarks, has_mask
from offbeat.envs.adapters.gymnasium.groups import AnyVectorEnv
from offbeat.envs.adapters.gymnasium.mask_method import MASK_METHOD
from offbeat.envs.adapters.gymnasium.tasks import has_method
from offbeat.envs.contract import Outcome
from offbeat.envs.failures import column_failed, fault_of_call
from offbeat.envs.findings import fault_of_ends
from offbeat.envs.infos import vector_info_reader
from offbeat.envs.rows import RowChecks, copy_exactly, mark_reset_rows, prefer_termination
from offbeat.envs.space_generators import seed_spaces
from offbeat.envs.writers import writers_of

_ENDS = ("reward", "terminated", "truncated")


class VectorColumns:
    """A vector env that resets itself in NEXT_STEP order. Its columns share one random stream."""

    def __init__(self, spec: EnvSpec, env: AnyVectorEnv, rows: Outcome, next_no_decision: Array, first: int) -> None:
        self.envs = (env,)
        self.offers_mask = False
        self._spec = spec
        self._env = env
        self._rows = rows
        self.span = slice(first, first + len(rows.reward))
        self.decision_marks = DecisionMarks(rows, next_no_decision)
        self._checks = RowChecks(spec, rows, first, next_no_decision)
        self._write, self._write_mask = writers_of(spec, env.single_observation_space, rows.observation)
        self._read_info = vector_info_reader(spec.info, rows.info)
        self._stepped = False
        """Whether the types of rewards and flags have been checked, in the first step."""

    def reset(self, seeds: Sequence[int] | None) -> None:
        try:
            if seeds is not None:
                seed_spaces(self._env, seeds[0])
            observation, info = self._env.reset(seed=None if seeds is None else seeds[0])
            self._write_row(observation, info)
        except FAILURES as error:
            raise self._failed("reset", error) from error
        self._checks.require()
        self._refuse_mask_method()

    def _refuse_mask_method(self) -> None:
        """Raise EnvFailed for masks in a method of the vector env, and none in the infos: they would not be read.

        Before the first decision the infos may lack them, so such an env is refused in its next reset.
        """
        undecided = not self._stepped and self.decision_marks.next.any()
        ignored = self._spec.mask is None and bool(self._spec.action.nvec) and not self.offers_mask
        if ignored and not undecided and has_method(self._env, MASK_METHOD):
            what = (
                f"the method {MASK_METHOD}() of its vector env is not called: put the masks of all envs, [n, choices], "
                f"as {INFO_MASK!r} into the infos of reset and of each step"
            )
            raise column_failed(self._spec, self.span.start, what)

    def step(self, actions: Any) -> Outcome:
        rows = self._rows
        mark_reset_rows(rows)
        continues = rows.valid.copy() if self.decision_marks.possible else rows.valid
        if self.decision_marks.possible:
            self.decision_marks.mark()
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
            self._read_info(continues, info)
        except FAILURES as error:
            self._require_types(ends)
            raise self._failed("step", error) from error
        if not self._stepped:
            self._stepped = True
            self._require_types(ends)
        if not continues.all():
            rows.reward[~continues] = 0  # a reset pays nothing: Gymnasium's own wrappers ignore such a reward too
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
            what = f"step() did not return {RETURNED['step']}, but {len(values) + 2} values"
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
            self.decision_marks.read_all(info)
            self.offers_mask = self.offers_mask or has_mask(info)
        if self._write_mask is not None:
            self._write_mask(info)

    def encode(self, action: ActionEncoder, actions: Array) -> Any:
        return action(actions)

    def split(self) -> Sequence[Columns]:
        return [self]

    def _failed(self, call: str, error: BaseException) -> EnvFailed:
        what = fault_of_call(f"{call}() of the vector env of which this is the first env", error)
        failure = column_failed(self._spec, self.span.start, what, error)
        failure.column = None  # it may be any of its columns, and each is at another env step of its episode
        return failure
