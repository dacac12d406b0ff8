"""A run as the pace sees it: actors and a learner that may each move at any time that the pace permits."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Literal, NamedTuple


class Event(NamedTuple):
    """Something that happened, with both counters as they were just before."""

    kind: Literal["begin", "commit", "learn", "finish"]
    number: int
    """The ticket that began or was committed; the learning step that began or finished."""
    acted: int
    learned: int


class Simulation:
    """Chooses at random among all permitted moves; some movers may be a thousand times slower.

    Actor a owns the tickets a, a + actors, a + 2 actors, ... and takes them in order. ``acted`` is the
    committed prefix, so a straggler holds it back however much the others have done. No ticket begins at
    `stop` or beyond.
    """

    def __init__(
        self,
        may_act: Callable[[int, int, int], bool],
        may_learn: Callable[[int, int], bool],
        actors: int,
        stop: int,
        random: Random,
    ) -> None:
        """`may_act` is asked with (ticket, acted, learned), `may_learn` with (acted, learned)."""
        self.may_act, self.may_learn, self.actors, self.stop, self.random = (
            may_act,
            may_learn,
            actors,
            stop,
            random,
        )
        self.tickets = list(range(actors))
        self.acting = [False] * actors
        self.committed: set[int] = set()
        self.acted = self.learned = 0
        self.learning = False
        self.events: list[Event] = []
        self.speeds = [10 ** random.uniform(-1.5, 1.5) for _ in range(actors + 1)]

    def run(self) -> list[Event]:
        """Move until nobody can."""
        while self.move():
            pass
        return self.events

    def move(self) -> bool:
        """Let one of those move who can; return whether there was one."""
        movers = [actor for actor in range(self.actors) if self._actor_can_move(actor)]
        if self.learning or self.may_learn(self.acted, self.learned):
            movers.append(self.actors)
        if not movers:
            return False
        [mover] = self.random.choices(movers, [self.speeds[mover] for mover in movers])
        self._move_learner() if mover == self.actors else self._move_actor(mover)
        return True

    def _actor_can_move(self, actor: int) -> bool:
        ticket = self.tickets[actor]
        may_begin = ticket < self.stop and self.may_act(ticket, self.acted, self.learned)
        return self.acting[actor] or may_begin

    def _move_actor(self, actor: int) -> None:
        ticket = self.tickets[actor]
        self._note("commit" if self.acting[actor] else "begin", ticket)
        if self.acting[actor]:
            self.committed.add(ticket)
            self.tickets[actor] += self.actors
            while self.acted in self.committed:
                self.acted += 1
        self.acting[actor] = not self.acting[actor]

    def _move_learner(self) -> None:
        self._note("finish" if self.learning else "learn", self.learned)
        self.learned += self.learning
        self.learning = not self.learning

    def _note(self, kind: Literal["begin", "commit", "learn", "finish"], number: int) -> None:
        self.events.append(Event(kind, number, self.acted, self.learned))
