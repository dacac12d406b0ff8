"""The serial runtime: one thread walks the pace's order. It simulates any lag, and is the reference.

Every other runtime must give the same bits when `lag` is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offbeat.core.types import Tree
from offbeat.runtime.acting import Plan, Snapshot
from offbeat.runtime.gate import NO_PAUSE


class SerialActing:
    """Acts each ticket as soon as the pace allows it, whenever the learner waits."""

    def __init__(self, plan: Plan, arrays: Tree, learned: int) -> None:
        self.restarts = 0
        self._plan, self._pace, self._learned = plan, plan.pace, learned
        self.acted = self._origin = plan.pace.tickets_of(learned).start
        self._slots, self._weights = plan.slots(arrays), plan.weights(arrays)
        self._actors = [plan.actor(index, self._origin) for index in range(plan.runtime.actors)]
        self._pause = NO_PAUSE

    def start(self, snapshots: Sequence[Snapshot]) -> None:
        progress = self._weights.progress(self._weights.newest)
        for actor, snapshot in zip(self._actors, snapshots, strict=True):
            self._plan.start(actor, self._origin, snapshot, progress)

    def wait(self, tickets: int) -> None:
        while self.acted < self._pause and self._pace.may_act(self.acted, self._learned):
            self._act(self.acted)
            self.acted += 1
        if self.acted < tickets:
            raise AssertionError(f"the pace lets {self.acted} tickets be acted, and {tickets} are waited for")

    def _act(self, ticket: int) -> None:
        """Act one ticket with the weights that the pace names for it."""
        version = self._pace.learned_before_act(ticket)
        actor = self._actors[ticket % len(self._actors)]
        weights, progress = self._weights.read(version), self._weights.progress(version)
        actor.act(ticket, version, weights, self._slots.open(ticket), progress)

    def pause_at(self, ticket: int | None) -> None:
        self._pause = NO_PAUSE if ticket is None else ticket

    def finish(self, learned: int) -> None:
        self._learned = learned

    def slots_filled(self, step: int) -> float:
        return (self.acted - self._pace.tickets_of(step).start) / self._pace.in_flight

    def snapshots(self) -> list[Snapshot]:
        return [actor.snapshot() for actor in self._actors]

    def spent(self) -> list[Mapping[str, float]]:
        return [actor.timings.seconds for actor in self._actors]

    @property
    def longest_stall(self) -> float:
        return max((actor.longest_stall for actor in self._actors), default=0.0)

    def close(self) -> None:
        for actor in self._actors:
            actor.close()
