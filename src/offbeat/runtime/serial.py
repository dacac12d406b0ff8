"""The serial runtime: one thread acts and learns in the order of the pace, with any lag.

It is the reference: with `lag=exact` every other runtime must give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from offbeat.core.closing import all_or_closed, close_all
from offbeat.runtime.gate import NO_PAUSE, share_of
from offbeat.runtime.links import TurnsLink
from offbeat.runtime.loop.paced import PacedRuntime
from offbeat.runtime.make_actor import make_actor, start_actor
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.plan import ActorSnapshot
from offbeat.runtime.reporting import Reporting

REMEDY = ". With --runtime processes an actor that hangs is restarted"


class SerialActing:
    """Acts in the learner's thread: `wait` acts all tickets that the pace allows."""

    def __init__(self, parts: PacedParts, learned: int, reporting: Reporting) -> None:
        self.restarts, self.wait_for_commits = 0, None
        self._plan, self._pace, self._memory = parts.plan, parts.plan.pace, parts.memory
        self._link = TurnsLink(self._pace, parts.memory, learned)
        actors = range(self._plan.runtime.actors)
        self._watch = parts.main_thread.env_calls(reporting.notify, REMEDY)
        self._watch_closing = partial(parts.main_thread.closing, reporting.notify)
        self._actors = all_or_closed(make_actor(self._plan, index, self._link.origin, self._watch) for index in actors)

    def start(self, snapshots: Sequence[ActorSnapshot]) -> None:
        for actor, snapshot in zip(self._actors, snapshots, strict=True):
            start_actor(self._plan, actor, self._link.origin, snapshot, self._memory.progress)

    def wait(self, tickets: int, while_waiting: Callable[[], None] | None = None) -> None:
        link = self._link
        while link.may_act:
            work = link.next()
            actor = self._actors[work.ticket % len(self._actors)]
            try:
                actor.act(work)
            finally:
                self._watch.leave()  # also after an exception: the main thread goes on
            link.commit(work, actor.timings, actor.longest_stall)
            if while_waiting is not None and link.may_act:
                while_waiting()
        if link.acted < tickets:
            raise AssertionError(f"the pace allows {link.acted} tickets, but the learner waits for {tickets}")

    def watch(self) -> None:
        """Do nothing: the actors act in this thread."""

    def pause_at(self, ticket: int | None) -> None:
        self._link.pause = NO_PAUSE if ticket is None else ticket

    def finish(self, learned: int) -> None:
        self._link.learned = learned

    @property
    def acted(self) -> int:
        return self._link.acted

    def slots_filled(self, step: int) -> float:
        return share_of(self.acted - self._pace.next_ticket(step), self._pace, step)

    def snapshots(self) -> list[ActorSnapshot]:
        return [actor.snapshot() for actor in self._actors]

    @property
    def waits_for_place(self) -> bool:
        return False

    def spent(self) -> list[Mapping[str, float]]:
        return [actor.timings.seconds for actor in self._actors]

    def metrics(self) -> Mapping[str, float]:
        return {}

    @property
    def longest_stall(self) -> float:
        return max((actor.longest_stall for actor in self._actors), default=0.0)

    def close(self) -> None:
        with self._watch_closing():
            close_all(self._actors)


RUNTIME = PacedRuntime(SerialActing)
