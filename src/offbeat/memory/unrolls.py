"""On-policy memory: unrolls of [T + 1, N, ...], addressed by ticket.

The slots of one batch lie side by side, [batches, T + 1, S, N, ...], so that a whole batch is one contiguous
view [T + 1, S * N, ...] to the learner, and a slot is a strided view [T + 1, N, ...] to its actor. Row T holds
only the observation that follows the unroll: what the last row bootstraps from. Frames that are seen in stacks have
rows before the first, `history` of them, so that each frame lies there once: [history + T + 1, ...].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offbeat.core.memory_shape import Slab
from offbeat.core.pace import OnPolicyPace
from offbeat.core.types import HISTORY, Array, Field, Tree

PREFIX = "unrolls/"


class Unrolls:
    """Slots for all tickets that the pace lets be in flight."""

    def __init__(self, fields: Sequence[Field], pace: OnPolicyPace, arrays: Tree) -> None:
        """Address the arrays of an arena that holds `UnrollShape.slabs` of the same fields and pace."""
        self._pace = pace
        self._fields = {field.name: field for field in fields}
        self._arrays = {field.name: arrays[PREFIX + field.name] for field in fields}

    def open(self, ticket: int) -> Tree:
        """Return the arrays that `ticket` writes: [T + 1, N, ...] (per step) or [N, ...] (per unroll).

        The rows before the first are there as 'history/' and the name, [history, N, ...].
        """
        batch, place = divmod(self._pace.slot(ticket), self._pace.unrolls_per_batch)
        slot: Tree = {}
        for name, array in self._arrays.items():
            field = self._fields[name]
            slot[name] = array[batch, field.history :, place] if field.per == "step" else array[batch, place]
            if field.history:
                slot[HISTORY + name] = array[batch, : field.history, place]
        return slot

    def batch(self, step: int) -> Tree:
        """Return the arrays of a learning step's batch: views [history + T + 1, B, ...] or [B, ...], columns in ticket
        order.
        """
        place = self._pace.slot(self._pace.tickets_of(step).start) // self._pace.unrolls_per_batch
        return {name: self._joined(name, array[place]) for name, array in self._arrays.items()}

    def _joined(self, name: str, array: Array) -> Array:
        field = self._fields[name]
        time = array.shape[:1] if field.per == "step" else ()
        unrolls, columns = array.shape[len(time) : len(time) + 2]
        return array.reshape(*time, unrolls * columns, *field.shape)


@dataclass(frozen=True)
class UnrollShape:
    """How many unrolls of which size a run holds: plain data, from which every process lays out the same arrays."""

    pace: OnPolicyPace
    length: int
    """T, env steps in an unroll."""
    columns: int
    """N, envs of an actor."""

    def slabs(self, fields: Sequence[Field]) -> list[Slab]:
        """Return what the unrolls' arena consists of."""
        unrolls = self.pace.unrolls_per_batch
        batches = self.pace.in_flight // unrolls
        slabs = []
        for field in fields:
            time = (field.history + self.length + 1,) if field.per == "step" else ()
            slabs.append((PREFIX + field.name, (batches, *time, unrolls, self.columns, *field.shape), field.dtype))
        return slabs

    def slots(self, fields: Sequence[Field], arrays: Tree) -> Unrolls:
        """Return the unrolls on the arrays of an arena that holds the slabs of the same fields."""
        return Unrolls(fields, self.pace, arrays)

    def is_cut(self, ticket: int) -> bool:  # noqa: ARG002
        """Whether episodes that begin at `ticket` follow rows of others: never, an unroll is complete in itself."""
        return False

    @property
    def purpose(self) -> str:
        """What needs the memory, with the arithmetic."""
        pace = self.pace
        return (
            f"(max_lag + 1) x unrolls_per_batch = ({pace.max_lag} + 1) x {pace.unrolls_per_batch} slots of "
            f"(unroll_length + 1) x envs_per_actor = {self.length + 1} x {self.columns} rows need"
        )

    @property
    def remedy(self) -> str:
        """What to pass to need less."""
        return "pass a smaller unroll_length, envs_per_actor, unrolls_per_batch or max_lag"

    def describe(self, fields: Sequence[Field]) -> str:  # noqa: ARG002
        """Say how much memory it takes, if that is worth a word: it is not, as a few batches are kept at most."""
        return ""
