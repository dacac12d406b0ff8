"""What threads and processes have in common: a board, a gate, and actors behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from offbeat.core.types import Tree
from offbeat.metrics.timings import Timings
from offbeat.runtime.acting import Plan
from offbeat.runtime.gate import Board, LearnerGate


class GatedActing(ABC):
    """The part of `Acting` that only asks the gate."""

    def __init__(self, plan: Plan, arrays: Tree, learned: int, timings: Timings) -> None:
        self.plan, self.origin = plan, plan.pace.tickets_of(learned).start
        self.board = Board(arrays, plan.runtime.actors)
        self.board.reset(self.origin, learned)
        self.gate = LearnerGate(self.board, plan.pace, timings)

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
        return [self.board.spent(actor) for actor in range(self.board.actors)]

    @property
    def longest_stall(self) -> float:
        return self.board.longest_stall
