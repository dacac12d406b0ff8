"""What threads and processes have in common: a board, a gate, and actors behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from offbeat.runtime.gate import LearnerGate, PaceBoard
from offbeat.runtime.parts import PacedParts


class GatedActing(ABC):
    """The part of `Acting` that only asks the gate."""

    def __init__(self, parts: PacedParts, learned: int) -> None:
        self.plan, self.memory = parts.plan, parts.memory
        self.origin = parts.plan.pace.tickets_of(learned).start
        self.board = PaceBoard(parts.arrays, parts.plan.runtime.actors)
        self.board.reset(self.origin, learned)
        self.gate = LearnerGate(self.board, parts.plan.pace, parts.timings)

    @abstractmethod
    def watch(self) -> None:
        """See whether all actors live: called often while the learner waits, and before each learning step.

        Raises:
            RunFailed: one failed for good.
        """

    def wait(self, tickets: int) -> None:
        self.gate.wait(tickets, self.watch)

    def pause_at(self, ticket: int | None) -> None:
        self.gate.pause_at(ticket)

    def finish(self, learned: int) -> None:
        self.gate.finish(learned)

    @property
    def acted(self) -> int:
        return self.board.acted

    def slots_filled(self, step: int) -> float:
        return self.gate.slots_filled(step)

    def spent(self) -> list[Mapping[str, float]]:
        return [self.board.spent(actor) for actor in range(self.board.workers)]

    @property
    def longest_stall(self) -> float:
        return self.board.longest_stall
