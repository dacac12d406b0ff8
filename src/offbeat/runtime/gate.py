"""The gate: the pace, enforced. It is all that stands between actors and learner, in threads and in processes.

Both sides read a board of counters, and sleep on a bell of their own when the pace says no (board.py).

    actor:    version = gate.start(ticket); act; gate.commit(ticket)
    learner:  gate.wait(tickets); learn; gate.finish(step)

An actor checks the pace itself. It never runs ahead of what the learner allows, and the learner never waits for it
longer than the pace says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import Closed
from offbeat.core.memory_shape import Slab
from offbeat.core.pace import Pace
from offbeat.core.types import Tree
from offbeat.metrics.timings import Timings
from offbeat.runtime import board
from offbeat.runtime.board import LINE, POLL_INTERVAL_S, Bell
from offbeat.runtime.deadline import WorkerDeadline

NO_PAUSE = np.iinfo(np.int64).max
OTHER_WORK = "wait/actor/other_work"
"""The part of 'wait/actor' in which the learner was between two learning steps: evaluations, checkpoints, metrics."""
SECONDS = ("act", "env", "wait/actor", OTHER_WORK)
"""What an actor's time goes into, as the board keeps it."""


def board_slabs(actors: int) -> list[Slab]:
    """Return what the board's arena consists of."""
    return [
        *board.board_slabs(actors),
        *((f"board/{name}", (LINE,), "int64") for name in ("learned", "pause")),
        ("board/next", (actors, LINE), "int64"),
        ("board/other_work", (LINE,), "float64"),
        ("board/seconds", (actors, LINE), "float64"),
    ]


class PaceBoard(board.Board):
    """Counters of actors and one learner."""

    def __init__(self, arrays: Tree, actors: int) -> None:
        """Address the arrays of an arena that holds `board_slabs`."""
        super().__init__(arrays, actors)
        self.learned = arrays["board/learned"]
        """Learning steps finished. Written by the learner, like pause and closed."""
        self.pause = arrays["board/pause"]
        """No ticket from here on may begin."""
        self._next = list(arrays["board/next"])
        self._other_work = arrays["board/other_work"]
        """Seconds between learning steps so far; then since when the learner is between two, or 0."""
        self.seconds = arrays["board/seconds"][:, : len(SECONDS) + 1]
        """Seconds by `SECONDS`, then the longest call of an env; written by each actor at each commit."""

    @property
    def next(self) -> Sequence[NDArray[np.int64]]:
        """Each actor's first ticket that is not committed. Written by that actor."""
        return self._next

    def reset(self, origin: int, learned: int) -> None:
        """Before anybody has started: let tickets below `origin` count as committed, and `learned` steps as done."""
        self.pause[0], self.learned[0] = NO_PAUSE, learned
        for actor in range(self.workers):
            self.next[actor][0] = first_ticket(actor, self.workers, origin)

    def begin_other_work(self) -> None:
        """A learning step is finished: what follows is not learning."""
        self._other_work[1] = monotonic()

    def end_other_work(self) -> None:
        """The learner turns to the next learning step."""
        seconds, since = self._other_work[:2].tolist()
        if since:
            self._other_work[1] = 0.0  # first: an actor that reads in between must not count the seconds twice
            self._other_work[0] = seconds + monotonic() - since

    @property
    def other_work_s(self) -> float:
        """Seconds that the learner has spent between learning steps, up to this moment."""
        seconds, since = self._other_work[:2].tolist()
        return float(seconds + (monotonic() - since if since else 0.0))

    @property
    def acted(self) -> int:
        """Tickets 0 .. acted-1 are all committed."""
        return min(int(ticket[0]) for ticket in self.next)

    def committed(self, first: int) -> int:
        """Return how many tickets from `first` on are committed, those behind a gap included."""
        begun = (int(self.next[actor][0]) - first_ticket(actor, self.workers, first) for actor in range(self.workers))
        return sum(max(0, tickets) // self.workers for tickets in begun)

    def spent(self, actor: int) -> dict[str, float]:
        """Return an actor's seconds by name."""
        return dict(zip(SECONDS, self.seconds[actor].tolist(), strict=False))

    @property
    def longest_stall(self) -> float:
        """Seconds of the longest call of an env, of all actors."""
        return max(float(row[-1]) for row in self.seconds)


def first_ticket(actor: int, actors: int, origin: int) -> int:
    """Return an actor's first ticket from `origin` on."""
    return origin + (actor - origin) % actors


class ActorGate(WorkerDeadline):
    """One actor's side; it is also the actor's deadline."""

    def __init__(
        self, board: PaceBoard, pace: Pace, runtime: RuntimeConfig, actor: int, own: Bell, learners: Bell
    ) -> None:
        super().__init__(board.closed, board.deadlines[actor], runtime)
        self._board, self._pace, self._actor = board, pace, actor
        self._own, self._learners = own, learners
        self._exact = runtime.lag == "exact"
        self._other_work_s = 0.0
        """Seconds of `OTHER_WORK`."""

    @property
    def open_ticket(self) -> int:
        """This actor's first ticket that is not committed: one to begin, or to take again."""
        return int(self._board.next[self._actor][0])

    def start(self, ticket: int, on_pause: Callable[[], None]) -> int:
        """Wait until `ticket` may begin, and return the version of the weights to act it with.

        Args:
            ticket: the next one of this actor.
            on_pause: is called once for each pause that stands before the ticket: nothing is acted until it is
                lifted, so the envs may be saved.

        Raises:
            Closed: the gate has been closed.
        """
        paused_at, begun, other_work = NO_PAUSE, monotonic(), self._board.other_work_s
        while (version := self._version(ticket)) is None:
            pause = int(self._board.pause[0])
            self.renew()
            if ticket >= pause != paused_at:
                on_pause()
                paused_at = pause
            self._own.sleep(POLL_INTERVAL_S)
        self.renew()
        self._other_work_s += min(monotonic() - begun, max(0.0, self._board.other_work_s - other_work))
        return version

    def _version(self, ticket: int) -> int | None:
        board = self._board
        learned = int(board.learned[0])  # before the pause, which is set before the step that allows tickets beyond it
        if board.closed[0]:
            raise Closed
        if ticket >= board.pause[0] or not self._pace.may_act(ticket, learned):
            return None
        return self._pace.learned_before_act(ticket) if self._exact else learned

    def commit(self, ticket: int, timings: Timings, longest_stall: float) -> None:
        """Let `ticket`, which has been written whole, count as acted; show what the actor's time went into."""
        board, row = self._board, self._board.seconds[self._actor]
        for place, name in enumerate(SECONDS):
            row[place] = self._other_work_s if name == OTHER_WORK else timings.seconds[name]
        row[-1] = longest_stall
        board.next[self._actor][0] = ticket + board.workers
        self._learners.ring()


class LearnerGate:
    """The learner's side. It alone moves `learned`, sets the pause, and closes."""

    def __init__(self, board: PaceBoard, pace: Pace, timings: Timings) -> None:
        self._board, self._pace, self._timings = board, pace, timings
        self.own = Bell.make()
        self.actors = [Bell.make() for _ in range(board.workers)]

    def wait(self, tickets: int, watch: Callable[[], None]) -> None:
        """Wait until tickets 0 .. tickets-1 are committed; `watch` is called meanwhile, and may raise."""
        self._board.end_other_work()
        watch()
        begun = monotonic()
        while self._board.acted < tickets:
            self.own.sleep(POLL_INTERVAL_S)
            watch()
        self._timings.add("wait/learner", monotonic() - begun)

    def slots_filled(self, step: int) -> float:
        """Return the share of the slots that hold a committed ticket which `step`, or one after it, learns from."""
        return self._board.committed(self._pace.tickets_of(step).start) / self._pace.in_flight

    def pause_at(self, ticket: int | None) -> None:
        """Let no ticket from `ticket` on begin, or (None) end the pause."""
        self._board.pause[0] = NO_PAUSE if ticket is None else ticket
        if ticket is None:
            self._ring()

    def finish(self, learned: int) -> None:
        """Let `learned` learning steps count as finished."""
        self._board.begin_other_work()
        self._board.learned[0] = learned
        self._ring()

    def close(self) -> None:
        """Let no ticket begin any more: whoever waits, or would, gets `Closed`."""
        self._board.closed[0] = 1
        self._ring()

    def discard(self) -> None:
        """Give back the bells, once no actor is left."""
        for bell in (self.own, *self.actors):
            bell.close()

    def _ring(self) -> None:
        for bell in self.actors:
            bell.ring()
