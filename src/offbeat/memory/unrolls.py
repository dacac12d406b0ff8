"""On-policy memory: unrolls of [T + 1, N, ...], indexed by ticket.

The slots of a batch are adjacent, [batches, T + 1, S, N, ...]. So a batch is a contiguous view [T + 1, S * N, ...] for
the learner, and a slot is a strided view [T + 1, N, ...] for its actor. Row T contains only the observation after the
unroll, for bootstrapping. Fields with stacked frames have `history` more rows before row 0, [history + T + 1, ...]: so
each frame is stored once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offbeat.core.memory_shape import Slab
from offbeat.core.pace import OnPolicyPace
from offbeat.core.types import HISTORY, Array, Field, Tree

PREFIX = "unrolls/"


class Unrolls:
    """Slots for all tickets that can be in flight."""

    def __init__(self, fields: Sequence[Field], pace: OnPolicyPace, arrays: Tree) -> None:
        """Use the arrays of an arena with the `UnrollShape.slabs` of the same fields and pace."""
        self.pace = pace
        self._fields = {field.name: field for field in fields}
        self._arrays = {field.name: arrays[PREFIX + field.name] for field in fields}

    def open(self, ticket: int) -> Tree:
        """Return the arrays that `ticket` writes: [T + 1, N, ...] (per step) or [N, ...] (per unroll).

        The history rows, before row 0, are under 'history/<name>', [history, N, ...].
        """
        batch, unroll = divmod(self.pace.slot(ticket), self.pace.unrolls_per_batch)
        slot: Tree = {}
        for name, array in self._arrays.items():
            field = self._fields[name]
            slot[name] = array[batch, field.history :, unroll] if field.per == "step" else array[batch, unroll]
            if field.history:
                slot[HISTORY + name] = array[batch, : field.history, unroll]
        return slot

    def arrays_of(self, step: int) -> Tree:
        """Return the arrays of a learning step's batch: views [history + T + 1, B, ...] or [B, ...], columns in ticket
        order.
        """
        batch = self.pace.slot(self.pace.tickets_of(step).start) // self.pace.unrolls_per_batch
        return {name: self._join_columns(name, array[batch]) for name, array in self._arrays.items()}

    def _join_columns(self, name: str, array: Array) -> Array:
        """Return a view in which the columns of all unrolls are one dimension."""
        field = self._fields[name]
        time = array.shape[:1] if field.per == "step" else ()
        unrolls, columns = array.shape[len(time) : len(time) + 2]
        return array.reshape(*time, unrolls * columns, *field.shape)


@dataclass(frozen=True)
class UnrollShape:
    """Number and size of a run's unrolls: plain data, from which every process computes the same memory layout."""

    pace: OnPolicyPace
    length: int
    """T, env steps of an unroll."""
    columns: int
    """N, envs of an actor."""

    @classmethod
    def of_one_ticket(cls, length: int, columns: int) -> UnrollShape:
        """Return the shape of the arrays of one ticket: slots that each ticket writes again."""
        return cls(OnPolicyPace(1, 0), length, columns)

    def slabs(self, fields: Sequence[Field]) -> list[Slab]:
        """Return the slabs of the unrolls' arena."""
        unrolls = self.pace.unrolls_per_batch
        batches = self.pace.in_flight // unrolls
        slabs = []
        for field in fields:
            time = (field.history + self.length + 1,) if field.per == "step" else ()
            slabs.append((PREFIX + field.name, (batches, *time, unrolls, self.columns, *field.shape), field.dtype))
        return slabs

    def slots(self, fields: Sequence[Field], arrays: Tree) -> Unrolls:
        """Return the unrolls in the arrays of an arena with the slabs of the same fields."""
        return Unrolls(fields, self.pace, arrays)

    def is_cut(self, ticket: int) -> bool:  # noqa: ARG002
        """Return False: an unroll has no earlier rows in memory, so it never follows rows of interrupted episodes."""
        return False

    @property
    def records_history(self) -> bool:
        """Whether a slot has the frames before its first row: yes."""
        return True

    @property
    def purpose(self) -> str:
        """Subject of a message about the required memory, with the arithmetic."""
        pace = self.pace
        batches = f"(max_lag + 1) x unrolls_per_batch = ({pace.max_lag} + 1)"
        if pace.passes > 1:
            batches = f"batches in memory x unrolls_per_batch = {pace.in_flight // pace.unrolls_per_batch}"
        return (
            f"{batches} x {pace.unrolls_per_batch} slots of "
            f"(unroll_length + 1) x envs_per_actor = {self.length + 1} x {self.columns} rows need"
        )

    @property
    def remedy(self) -> str:
        """What to pass to need less memory."""
        resident = ", resident_batches" if self.pace.passes > 1 else ""
        return f"pass a smaller unroll_length, envs_per_actor, unrolls_per_batch{resident} or max_lag"

    def describe(self, fields: Sequence[Field]) -> str:  # noqa: ARG002
        """Return an empty description: a few batches need little memory."""
        return ""
