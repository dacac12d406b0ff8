"""The columns of one group of Gymnasium envs, and what single envs and vector envs have in common.

Gymnasium's SyncVectorEnv is not used: it merges infos, copies observations three times and checks every step, which
costs more than many envs do. Here each row is written once, into arrays that are allocated once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import INFO_MASK, NO_DECISION, Array
from offbeat.envs.actions import ActionEncoder
from offbeat.envs.adapters.gymnasium.groups import AnyEnv
from offbeat.envs.contract import Outcome
from offbeat.envs.infos import no_decision_in

RETURNED = {"reset": "(observation, info)", "step": "(observation, reward, terminated, truncated, info)"}
"""Method -> what it returns, for messages."""


class Columns(Protocol):
    """Envs of adjacent columns, which write their rows into given arrays."""

    @property
    def envs(self) -> Sequence[AnyEnv]: ...

    decision_marks: DecisionMarks

    @property
    def span(self) -> slice:
        """These columns, as a slice of those of the actor."""
        ...

    @property
    def offers_mask(self) -> bool:
        """Whether an info has had an action_mask so far."""
        ...

    def reset(self, seeds: Sequence[int] | None) -> None: ...

    def encode(self, action: ActionEncoder, actions: Array) -> Any:
        """Convert recorded actions [n, *shape] to a copy that `step` takes."""
        ...

    def step(self, actions: Any) -> Outcome: ...

    def split(self) -> Sequence[Columns]:
        """Return these columns as the smallest parts that can be stepped separately."""
        ...


class DecisionMarks:
    """Reads from the infos which columns of a group have nothing to decide in the next row, and marks these rows."""

    def __init__(self, rows: Outcome, next_no_decision: NDArray[np.bool_]) -> None:
        """Mark rows without a decision in `rows`.

        Args:
            rows: Rows of the group.
            next_no_decision: Flags for the next rows, [n]. They are written here and cleared by `mark`.
        """
        self._rows, self.next = rows, next_no_decision
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
        if isinstance(info, Mapping) and (flag := info.get(NO_DECISION)) is not None:
            self.reported = True
            if flag:
                self.next[column] = self.possible = True

    def read_all(self, infos: Any) -> None:
        """Read the flags of the next rows from the infos of a vector env."""
        flags = no_decision_in(infos, len(self.next))
        if flags is not None:
            self.reported = self.possible = True
            self.next[:] = flags


def has_mask(info: Any) -> bool:
    """Whether an info has the mask of the actions that are allowed."""
    return isinstance(info, Mapping) and INFO_MASK in info
