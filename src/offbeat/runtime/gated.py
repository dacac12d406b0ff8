"""Base of the runtimes threads, processes and ray, whose actors start tickets at a gate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from offbeat.runtime.gate import LearnerGate, PaceBoard
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.plan import ActorSnapshot
from offbeat.workers.feed import WaitForCommits


class GatedActing(ABC):
    """The part of `Acting` that is the same in these runtimes: everything that only needs the gate."""

    def __init__(self, parts: PacedParts, learned: int, acting_bells: int | None = None) -> None:
        """Make the gate of a run.

        Args:
            parts: the parts of the run.
            learned: number of finished learning steps.
            acting_bells: number of bells on which something waits to act; None: one per actor.
        """
        self.plan, self.memory = parts.plan, parts.memory
        self.origin = parts.plan.pace.next_ticket(learned)
        self.board = PaceBoard(parts.arrays, parts.plan.runtime.actors)
        self.board.reset(self.origin, learned)
        self.gate = LearnerGate(self.board, parts.plan.pace, parts.timings, acting_bells)
        self._first_snapshots: dict[int, ActorSnapshot] = {}
        """By actor: the snapshot of its first start, which is still to come."""

    def _episodes(self, actor: int, attempt: int) -> tuple[int, ActorSnapshot]:
        """Return the ticket at which an actor's episodes start, and its snapshot; after a death they are new."""
        if attempt:
            return int(self.board.next[actor][0]), None
        return self.origin, self._first_snapshots.pop(actor)

    @abstractmethod
    def watch(self) -> None: ...

    def wait(self, tickets: int, while_waiting: Callable[[], None] | None = None) -> None:
        def watch_all() -> None:
            self.watch()
            if while_waiting is not None:
                while_waiting()

        self.gate.wait(tickets, watch_all)

    @property
    def wait_for_commits(self) -> WaitForCommits:
        return self.gate.wait_in_thread

    def pause_at(self, ticket: int | None) -> None:
        self.gate.pause_at(ticket)

    def finish(self, learned: int) -> None:
        self.gate.finish(learned)

    @property
    def acted(self) -> int:
        return self.board.acted

    def slots_filled(self, step: int) -> float:
        return self.gate.slots_filled(step)

    @property
    def waits_for_place(self) -> bool:
        return False

    def spent(self) -> list[Mapping[str, float]]:
        return [self.board.spent(actor) for actor in range(self.board.workers)]

    def metrics(self) -> Mapping[str, float]:
        return {}

    @property
    def longest_stall(self) -> float:
        return self.board.longest_stall
