"""The gate: enforces the pace between actors and the learner, in threads and in processes.

    actor:    version = gate.start(ticket); act; gate.commit(ticket)
    learner:  gate.wait(tickets); learn; gate.finish(step)

Both sides read the counters of a board. While the pace does not allow a ticket or a learning step, the actor or the
learner sleeps on its own bell (board.py). Each actor checks the pace itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from types import MappingProxyType

import numpy as np

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import Closed
from offbeat.core.memory_shape import Slab
from offbeat.core.pace import Pace
from offbeat.core.types import Tree
from offbeat.metrics.timings import ACTOR_WAIT, INFERENCE_WAIT, LEARNER_WAIT, MESSAGE_WAIT, OTHER_WORK, Timings
from offbeat.runtime.board import LINE, POLL_INTERVAL_S, Bell, Board, SharedBell, board_slabs

NO_PAUSE = np.iinfo(np.int64).max
"""The pause ticket while there is no pause."""
ACTIVITIES = ("act", "env", ACTOR_WAIT, OTHER_WORK, INFERENCE_WAIT, MESSAGE_WAIT)
"""The activities of an actor whose seconds are on the board."""


def pace_board_slabs(actors: int) -> list[Slab]:
    """Return the arrays of the board."""
    return [
        *board_slabs(actors),
        *((f"board/{name}", (LINE,), "int64") for name in ("learned", "pause")),
        ("board/other_work", (LINE,), "float64"),
        ("board/seconds", (actors, LINE), "float64"),
    ]


class PaceBoard(Board):
    """The board of a run with one learner."""

    def __init__(self, arrays: Tree, actors: int) -> None:
        """Make a board on the arrays of an arena with `pace_board_slabs`."""
        super().__init__(arrays, actors)
        self.learned = arrays["board/learned"]
        """Number of finished learning steps. Written by the learner, like `pause` and `closed`."""
        self.pause = arrays["board/pause"]
        """This ticket and later ones may not start."""
        self._other_work = arrays["board/other_work"]
        """First the learner's seconds of other work so far; then the start time of its present other work, or 0."""
        self.seconds = arrays["board/seconds"][:, : len(ACTIVITIES) + 1]
        """By actor: its seconds in the order of `ACTIVITIES`, then its longest env call. Written at each commit."""

    def reset(self, origin: int, learned: int) -> None:
        """Set the counters before actors start: tickets below `origin` are committed, `learned` steps are finished."""
        self.pause[0], self.learned[0] = NO_PAUSE, learned
        for actor in range(self.workers):
            self.next[actor][0] = first_ticket(actor, self.workers, origin)

    def start_other_work(self) -> None:
        """Note that a learning step is finished: the learner now does other work."""
        self._other_work[1] = monotonic()

    def end_other_work(self) -> None:
        """Note that the learner starts or waits for the next learning step."""
        seconds, since = self._other_work[:2].tolist()
        if since:
            self._other_work[1] = 0.0  # before the sum: an actor that reads now must not count the seconds twice
            self._other_work[0] = seconds + monotonic() - since

    @property
    def other_work_s(self) -> float:
        """Seconds of other work of the learner so far."""
        seconds, since = self._other_work[:2].tolist()
        return float(seconds + (monotonic() - since if since else 0.0))

    @property
    def acted(self) -> int:
        """Number of committed tickets without a gap: tickets 0 .. acted-1 are committed."""
        return min(int(ticket[0]) for ticket in self.next)

    def committed(self, first: int) -> int:
        """Return the number of committed tickets from `first` on, including those after a gap."""
        ahead = (int(self.next[actor][0]) - first_ticket(actor, self.workers, first) for actor in range(self.workers))
        return sum(max(0, tickets) // self.workers for tickets in ahead)

    def spent(self, actor: int) -> dict[str, float]:
        """Return the seconds of an actor, by activity."""
        return dict(zip(ACTIVITIES, self.seconds[actor].tolist(), strict=False))

    @property
    def longest_stall(self) -> float:
        """Duration of the longest env call of all actors, in seconds."""
        return max(float(row[-1]) for row in self.seconds)


def first_ticket(actor: int, actors: int, origin: int) -> int:
    """Return the first ticket of an actor that is not before `origin`."""
    return origin + (actor - origin) % actors


def share_of(committed: int, pace: Pace, step: int) -> float:
    """Return the fraction of the tickets that may be ahead of a learning step and are committed; 1 if none may be."""
    allowed = pace.pause_ticket(step) - pace.next_ticket(step)
    return committed / allowed if allowed else 1.0


class TicketGate:
    """The tickets of one actor: which version the next one acts with, and its commit."""

    def __init__(self, board: PaceBoard, pace: Pace, runtime: RuntimeConfig, actor: int, learner_bell: Bell) -> None:
        self._board, self._pace, self._actor, self._learner_bell = board, pace, actor, learner_bell
        self._exact = runtime.lag == "exact"

    @property
    def open_ticket(self) -> int:
        """This actor's first ticket that is not committed: the next one to act, after a restart also again."""
        return int(self._board.next[self._actor][0])

    def version(self, ticket: int) -> int | None:
        """Return the version of the weights to act a ticket of this actor with; None if it may not start yet.

        Raises:
            Closed: the gate is closed.
        """
        board = self._board
        learned = int(board.learned[0])  # read before `pause`: the learner writes `pause` first, then `learned`
        if board.closed[0]:
            raise Closed
        if ticket >= board.pause[0] or not self._pace.may_act(ticket, learned):
            return None
        return self._pace.learned_before_act(ticket) if self._exact else learned

    def commit(self, ticket: int, seconds: Mapping[str, float], longest_stall: float) -> None:
        """Commit the open ticket, whose rows are all written; write the actor's seconds to the board.

        Args:
            ticket: the ticket.
            seconds: the actor's seconds so far, by the names of `ACTIVITIES`.
            longest_stall: duration of its longest env call, in seconds.
        """
        board, row = self._board, self._board.seconds[self._actor]
        for index, name in enumerate(ACTIVITIES):
            row[index] = seconds.get(name, 0.0)
        row[-1] = longest_stall
        board.next[self._actor][0] = ticket + board.workers
        self._learner_bell.ring()


class ActorGate(TicketGate):
    """The gate of one actor thread or process. It has the actor's deadline."""

    def __init__(
        self, board: PaceBoard, pace: Pace, runtime: RuntimeConfig, actor: int, own_bell: Bell, learner_bell: Bell
    ) -> None:
        super().__init__(board, pace, runtime, actor, learner_bell)
        self.deadline, self._own_bell = board.worker_deadline(actor, runtime), own_bell
        self._other_work_s = board.spent(actor)[OTHER_WORK]
        """This actor's seconds of `OTHER_WORK`, including those of its processes that died."""

    def start(self, ticket: int, on_pause: Callable[[], None] = lambda: None) -> int:
        """Wait until `ticket` may start, and return the version of the weights to act with.

        Args:
            ticket: the next ticket of this actor.
            on_pause: is called once, when the actor waits at a pause. It does not act before this returns, so the envs
                may be saved. Their state is also that at every later pause at which this ticket waits.

        Raises:
            Closed: the gate is closed.
        """
        reported, started, other_work = False, monotonic(), self._board.other_work_s
        while (version := self.version(ticket)) is None:
            self.deadline.renew()
            if not reported and ticket >= self._board.pause[0]:
                on_pause()
                reported = True
            self._own_bell.sleep(POLL_INTERVAL_S)
        self.deadline.renew()
        self._other_work_s += min(monotonic() - started, max(0.0, self._board.other_work_s - other_work))
        return version

    def commit(
        self, ticket: int, seconds: Mapping[str, float] = MappingProxyType({}), longest_stall: float = 0.0
    ) -> None:
        """Commit the open ticket: see `TicketGate.commit`. The seconds of other work are added."""
        super().commit(ticket, {**seconds, OTHER_WORK: self._other_work_s}, longest_stall)


class LearnerGate:
    """The gate of the learner. Only the learner writes `learned`, `pause` and `closed`."""

    def __init__(
        self, board: PaceBoard, pace: Pace, timings: Timings | None = None, acting_bells: int | None = None
    ) -> None:
        """Make a gate that rings `acting_bells` bells when actors may act further tickets; None: one per actor.

        The seconds that it waits are added to `timings`.
        """
        self._board, self._pace, self._timings = board, pace, timings or Timings()
        self.bells = Bell.make_several(1 + (acting_bells or board.workers))
        self.own_bell, *self.acting_bells = self.bells
        self._shared = SharedBell(self.own_bell)

    def wait(self, tickets: int, while_waiting: Callable[[], None]) -> None:
        """Wait until tickets 0 .. tickets-1 are committed.

        `while_waiting` is called at the start and often while this waits, and may raise.
        """
        self._board.end_other_work()
        while_waiting()
        started = monotonic()
        while self._board.acted < tickets:
            self._shared.sleep(POLL_INTERVAL_S, lambda: self._board.acted >= tickets)
            while_waiting()
        self._timings.add(LEARNER_WAIT, monotonic() - started)

    def wait_in_thread(self, tickets: int, closed: Callable[[], bool]) -> None:
        """Wait until tickets 0 .. tickets-1 are committed, in another thread of the learner's process.

        Raises:
            Closed: `closed()` has become true.
        """
        while self._board.acted < tickets:
            if closed():
                raise Closed
            self._shared.sleep(POLL_INTERVAL_S, lambda: self._board.acted >= tickets)

    def slots_filled(self, step: int) -> float:
        """Return the fraction of the tickets that may be ahead of learning step `step` and are committed."""
        return share_of(self._board.committed(self._pace.next_ticket(step)), self._pace, step)

    def pause_at(self, ticket: int | None) -> None:
        """Pause acting: ticket `ticket` and later ones may not start. None: end the pause."""
        before, after = int(self._board.pause[0]), NO_PAUSE if ticket is None else ticket
        self._board.pause[0] = after
        if after > before:
            self._ring()

    def finish(self, learned: int) -> None:
        """Set the number of finished learning steps."""
        self._board.start_other_work()
        self._board.learned[0] = learned
        self._ring()

    def close(self) -> None:
        """Let no further ticket start: actors that wait, or would wait, get `Closed`."""
        self._board.close(self.acting_bells)

    def discard(self) -> None:
        """Close the bells, when no actor uses them any more."""
        for bell in self.bells:
            bell.close()

    def _ring(self) -> None:
        for bell in self.acting_bells:
            bell.ring()
