"""The links of actors on the learner's machine: in the learner's thread, or at a gate.

Both make the work of a ticket from the slots and weights that actors and learner share.
"""

from __future__ import annotations

from collections.abc import Callable

from offbeat.core.pace import Pace
from offbeat.metrics.timings import Timings
from offbeat.runtime.gate import NO_PAUSE, ActorGate
from offbeat.workers.link import Memory, Work


class TurnsLink:
    """The link for acting and learning in turns, in one thread. It gives all tickets in order.

    All actors of a serial run share one link; each lock-free worker has its own.
    """

    def __init__(self, pace: Pace, memory: Memory, learned: int) -> None:
        """Start after `learned` learning steps, with the first ticket that none of them has used."""
        self._pace, self._memory, self.learned = pace, memory, learned
        self.origin = self.acted = pace.next_ticket(learned)
        """`origin` is the first ticket of this link. Tickets below `acted` are committed."""
        self.pause = NO_PAUSE
        """This ticket and later ones may not start."""

    @property
    def may_act(self) -> bool:
        """Whether the next ticket may start."""
        return self.acted < self.pause and self._pace.may_act(self.acted, self.learned)

    def next(self) -> Work:
        """Return the work of the next ticket, with the version of the weights that an exact run uses for it."""
        return self._memory.work(self.acted, self._pace.learned_before_act(self.acted))

    def commit(self, work: Work, timings: Timings, longest_stall: float) -> None:  # noqa: ARG002
        """Commit the ticket."""
        self.acted = work.ticket + 1


class GateLink:
    """The link of an actor thread or actor process. `next` waits at the actor's gate."""

    def __init__(self, gate: ActorGate, memory: Memory, on_pause: Callable[[], None]) -> None:
        """Make the link of one actor.

        Args:
            gate: gate of this actor.
            memory: slots and weights of all policies.
            on_pause: is called once for each ticket that waits at a pause: see `ActorGate.start`.
        """
        self._gate, self._memory, self._on_pause = gate, memory, on_pause

    def next(self) -> Work:
        ticket = self._gate.open_ticket
        return self._memory.work(ticket, self._gate.start(ticket, self._on_pause))

    def commit(self, work: Work, timings: Timings, longest_stall: float) -> None:
        self._gate.commit(work.ticket, timings.seconds, longest_stall)
