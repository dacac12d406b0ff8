"""The links of actors in the same process tree: by turns with the learner, or behind a gate.

Each makes the work of a ticket from the slots and weights that actors and learner share.
"""

from __future__ import annotations

from collections.abc import Callable

from offbeat.core.pace import Pace
from offbeat.metrics.timings import Timings
from offbeat.runtime.gate import NO_PAUSE, ActorGate
from offbeat.workers.link import Memory, Work


class TurnsLink:
    """The link where acting and learning take turns in one thread: tickets in their order, as the pace allows them.

    All actors of a serial run share one; each lock-free worker has its own.
    """

    def __init__(self, pace: Pace, memory: Memory, learned: int) -> None:
        """Begin with the tickets of learning step `learned`."""
        self._pace, self._memory, self.learned = pace, memory, learned
        self.origin = self.acted = pace.tickets_of(learned).start
        """Tickets from origin on are acted here; those below `acted` are committed."""
        self.pause = NO_PAUSE
        """No ticket from here on may begin."""

    @property
    def may_act(self) -> bool:
        """Whether the next ticket may begin."""
        return self.acted < self.pause and self._pace.may_act(self.acted, self.learned)

    def next(self) -> Work:
        """Return the next ticket, with the weights that the pace names for it."""
        return self._memory.work(self.acted, self._pace.learned_before_act(self.acted))

    def commit(self, work: Work, timings: Timings, longest_stall: float) -> None:  # noqa: ARG002
        """Let the ticket count as acted."""
        self.acted = work.ticket + 1


class GateLink:
    """The link of an actor thread or actor process: waits at its gate."""

    def __init__(self, gate: ActorGate, memory: Memory, on_pause: Callable[[], None] = lambda: None) -> None:
        """Link an actor to the learner.

        Args:
            gate: of this actor.
            memory: slots and weights.
            on_pause: is called at each pause; nothing is acted meanwhile, so the envs may be saved.
        """
        self._gate, self._memory, self._on_pause = gate, memory, on_pause

    def next(self) -> Work:
        ticket = self._gate.open_ticket
        return self._memory.work(ticket, self._gate.start(ticket, self._on_pause))

    def commit(self, work: Work, timings: Timings, longest_stall: float) -> None:
        self._gate.commit(work.ticket, timings, longest_stall)
