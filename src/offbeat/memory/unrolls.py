"""On-policy memory: unrolls of [T + 1, N, ...], addressed by ticket.

The slots of one batch lie side by side, [batches, T + 1, S, N, ...], so that a whole batch is one contiguous
view [T + 1, S * N, ...] to the learner, and a slot is a strided view [T + 1, N, ...] to its actor. Row T holds
only the observation that follows the unroll: what the last row bootstraps from.
"""

from __future__ import annotations

from collections.abc import Sequence

from offbeat.memory.arena import Slab
from offbeat.pace import OnPolicyPace
from offbeat.types import Array, Field, Tree

PREFIX = "unrolls/"


class Unrolls:
    """Slots for all tickets that the pace lets be in flight."""

    def __init__(self, fields: Sequence[Field], pace: OnPolicyPace, arrays: Tree) -> None:
        """Address the arrays of an arena that holds `unroll_slabs` of the same fields and pace."""
        self._pace = pace
        self._fields = {field.name: field for field in fields}
        self._arrays = {field.name: arrays[PREFIX + field.name] for field in fields}

    def open(self, ticket: int) -> Tree:
        """Return the arrays that `ticket` writes: [T + 1, N, ...] (per step) or [N, ...] (per unroll)."""
        batch, place = divmod(self._pace.slot(ticket), self._pace.unrolls_per_batch)
        return {
            name: array[batch, :, place] if self._fields[name].per == "step" else array[batch, place]
            for name, array in self._arrays.items()
        }

    def batch(self, step: int) -> Tree:
        """Return the arrays of a learning step's batch: views [T + 1, B, ...] or [B, ...], columns in ticket order."""
        place = self._pace.slot(self._pace.tickets_of(step).start) // self._pace.unrolls_per_batch
        return {name: self._joined(name, array[place]) for name, array in self._arrays.items()}

    def _joined(self, name: str, array: Array) -> Array:
        field = self._fields[name]
        time = array.shape[:1] if field.per == "step" else ()
        unrolls, columns = array.shape[len(time) : len(time) + 2]
        return array.reshape(*time, unrolls * columns, *field.shape)


def unroll_slabs(fields: Sequence[Field], pace: OnPolicyPace, unroll_length: int, columns: int) -> list[Slab]:
    """Return what the unrolls' arena consists of."""
    batches, unrolls = pace.capacity // pace.unrolls_per_batch, pace.unrolls_per_batch
    return [
        (
            PREFIX + field.name,
            (batches, *((unroll_length + 1,) if field.per == "step" else ()), unrolls, columns, *field.shape),
            field.dtype,
        )
        for field in fields
    ]
