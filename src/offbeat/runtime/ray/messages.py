"""What the learner's process and an actor on the cluster send to each other, as plain data; and the rows of a ticket.

An actor on another machine cannot write into the learner's slots. It writes into arrays of its own, and sends them. In
the learner's process, they are copied into the slot of the ticket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from offbeat.core.types import FRAME_AGE, HISTORY, Tree, is_leaf
from offbeat.memory.arena import private_arena
from offbeat.memory.unrolls import UnrollShape
from offbeat.runtime.deadline import Span
from offbeat.runtime.plan import ActorSnapshot, Plan, PolicyPlan


@dataclass(frozen=True, kw_only=True)
class RemoteLaunch:
    """What an actor on the cluster is made from."""

    index: int
    """Index of the actor."""
    attempt: int
    """Number of recent deaths of the actor with this index."""
    folder: str | None
    """The folder to work in, if the node has it; None: that of Ray's runtime environment."""
    path: tuple[str, ...]
    """Folders in which modules are searched, in addition to those of the node."""
    code: bytes
    """The env and the encoders, as returned by `sent_code`."""
    plan: Plan
    origin: int
    """The ticket at which its episodes start."""
    snapshot: ActorSnapshot
    progress: float
    """Training progress, from 0 to 1."""


class Assignment(NamedTuple):
    """A ticket to act."""

    ticket: int
    version: int
    """Version of the weights to act with."""
    progress: float
    """Training progress at this version, from 0 to 1."""


class TicketRows(NamedTuple):
    """The rows of a ticket."""

    ticket: int
    first: int
    """The first row with an observation: 1 after a cut, where row 0 has the last observation of earlier episodes."""
    policies: tuple[Tree, ...]
    """The arrays of each policy that learns, by field: see `RowMessage`."""

    @property
    def size(self) -> int:
        """Number of bytes."""
        return sum(array.nbytes for arrays in self.policies for array in arrays.values())


class ActedTickets(NamedTuple):
    """The answer of an actor to its assignments."""

    tickets: tuple[TicketRows, ...]
    busy_s: float
    """Seconds that it worked on these tickets."""
    seconds: Mapping[str, float]
    """Its seconds so far, by activity."""
    longest_stall: float
    """Duration of its longest env call so far, in seconds."""


class Started(NamedTuple):
    """The answer of an actor that can act."""

    pid: int
    node: str
    """Ray's id of its node."""
    address: str
    """IP address of its node."""
    versions: Mapping[str, str | None]
    """Versions of Python and packages on its node."""


class Alive(NamedTuple):
    """The answer to the question whether an actor makes progress."""

    span: Span
    """What it is doing."""
    left_s: float
    """Seconds until its deadline."""
    has_stalled: bool
    """Whether its deadline has passed."""
    waits: bool
    """Whether it has nothing to do."""


class RowMessage:
    """Makes the message with the rows of one policy, and writes it into a slot."""

    def __init__(self, plan: PolicyPlan) -> None:
        """Send the rows of this policy."""
        records_history = plan.memory_shape.records_history
        self._fields = [field if records_history else replace(field, history=0) for field in plan.fields]
        self._shape = UnrollShape.of_one_ticket(plan.memory_shape.length, plan.env_spec.columns)

    def new_slot(self) -> Tree:
        """Return zeroed arrays for a ticket, with the names and shapes of a slot."""
        return self._shape.slots(self._fields, private_arena(self._shape.slabs(self._fields))).open(0)

    def arrays(self, slot: Tree, first: int) -> Tree:
        """Return the part of a slot that an actor has written, as views; `first`: see `TicketRows`."""
        return {name: slot[name][rows] for name, rows in self._parts(first)}

    def write(self, arrays: Tree, slot: Tree, first: int) -> None:
        """Write the result of `arrays` into a slot."""
        for name, rows in self._parts(first):
            slot[name][rows] = arrays[name]

    def _parts(self, first: int) -> Iterator[tuple[str, slice]]:
        """Yield the names of the arrays, with the rows that an actor writes.

        In the last row it writes only the observation. In a replay, the other fields of that row belong to an older
        ticket.
        """
        for field in self._fields:
            if field.per == "unroll":
                yield field.name, slice(None)
            else:
                yield field.name, slice(first, None) if _is_observed(field.name) else slice(-1)
            if field.history:
                yield HISTORY + field.name, slice(None)


def _is_observed(name: str) -> bool:
    """Whether a field belongs to the observation, which a ticket has before its first and after its last row."""
    return is_leaf(name) or name == FRAME_AGE
