"""The window of a replay: which tickets are in the rings, and which of them can be sampled."""

from __future__ import annotations

import numpy as np

from offbeat.core.types import I64
from offbeat.memory.replay.rings import RingShape, ring_ranges


class TicketWindow:
    """The tickets that have been taken in and are still in the replay, and their places in the rings."""

    def __init__(self, shape: RingShape, skipped: int) -> None:
        """Start empty, at ticket 0.

        Args:
            shape: Shape of the rings.
            skipped: Number of tickets at the start of the window that samples may read but that are not sampled.
        """
        self._shape, self._skipped = shape, skipped
        places = shape.actors * shape.slots_per_ring
        self.tickets, self.behavior_updates = np.zeros(places, np.int64), np.zeros(places, np.int64)
        """[places]: the last ticket that was taken in from each place, and the number of updates of its policy."""
        self.origin = self.next_ticket = 0
        """Tickets origin .. next_ticket - 1 have been taken in."""

    def reset(self, origin: int, next_ticket: int, behavior_updates: I64 | int = 0) -> None:
        """Set the tickets that have been taken in, and the `behavior_updates` of those in the window."""
        self.origin, self.next_ticket = origin, next_ticket
        places = self.places
        self.tickets[places], self.behavior_updates[places] = self.readable, behavior_updates

    def append(self, ticket: int, behavior_updates: int) -> int | None:
        """Take in the next ticket; return the ticket that can no longer be sampled, None if there is none.

        Raises:
            ValueError: `ticket` is not the next one.
        """
        if ticket != self.next_ticket:
            raise ValueError(f"got ticket {ticket}, but the next ticket to take in is {self.next_ticket}")
        oldest = self.sampled.start
        self.next_ticket += 1
        place = self.place(ticket)
        self.tickets[place], self.behavior_updates[place] = ticket, behavior_updates
        return oldest if self.sampled.start > oldest else None

    @property
    def readable(self) -> range:
        """The tickets in the window: samples may read their rows."""
        return self._shape.window(self.next_ticket, self.origin)

    @property
    def sampled(self) -> range:
        """The tickets that can be sampled: the window without its first `skipped` tickets."""
        readable = self.readable
        return range(readable.start + self._skipped, readable.stop)

    @property
    def places(self) -> I64:
        """The places of the readable tickets, oldest first."""
        readable = self.readable
        return np.arange(readable.start, readable.stop) % len(self.tickets)

    def place(self, ticket: int) -> int:
        """Return the place of a ticket."""
        return ticket % len(self.tickets)

    def place_ranges(self, tickets: range) -> list[range]:
        """Return the places of successive tickets as at most two ranges, oldest first."""
        size = len(self.tickets)
        return ring_ranges(tickets.start % size, len(tickets), size)
