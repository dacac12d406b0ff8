"""An actor on the cluster, as the learner's process sees it: sends it messages, and knows what it has answered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from math import inf
from threading import Event, Lock
from time import monotonic
from typing import Any

from offbeat.runtime.children.child_main import Failed
from offbeat.runtime.deadline import Deadline, Span
from offbeat.runtime.ray.cluster import Cluster, cause_of, version_differences
from offbeat.runtime.ray.messages import ActedTickets, Alive, Assignment, Started

ASK_ACTOR_EVERY_S = 1.0
"""Seconds between two questions whether an actor makes progress."""
ACTOR_ANSWER_S = 10.0
"""Seconds that an answer may take, in addition to the time limit of what the actor does."""
PLACE_S = 600.0
"""Seconds to wait for a node with room for an actor, and for its process."""
PLACE_AGAIN_S = 1.0
"""Seconds after which an actor is placed again, if its node was lost before its process ran."""

CONCURRENCY_GROUP = "questions"
"""The thread of an actor that answers while it acts."""
QUESTIONS = ("alive", "stop")
"""The methods that run in this thread."""

Answer = Callable[[], None]
"""An answer of an actor that has arrived. To call it handles the answer."""


@dataclass(eq=False)
class Sent:
    """Assignments whose rows are not written."""

    tickets: int
    time: float
    then: Callable[[ActedTickets, float], None]
    acted: ActedTickets | None = None
    """The answer, if it has come before the answers to earlier assignments."""


class ActorProxy:
    """An actor on the cluster, which a `Supervisor` supervises.

    Answers arrive in a thread of Ray, which passes them on to `on_answer`. The dispatcher's thread calls them.

    Its life: `placed` when its process runs; `started`, and so `ready`, when its envs are made; `_closed` when it has
    closed them. `_end_reason` is set if it fails, is lost, or is not placed in time. `has_ended` is set by `kill`,
    which comes last in each case.
    """

    def __init__(
        self,
        index: int,
        place: Callable[[], Any],
        cluster: Cluster,
        deadline: Deadline,
        stall_s: float,
        on_answer: Callable[[Answer], None],
        on_kill: Callable[[ActorProxy], None],
    ) -> None:
        """Start an actor.

        Args:
            index: index of the actor.
            place: lets Ray place the actor, and returns its handle. Is called again if the actor's node is lost before
                its process runs: Ray also chooses nodes of which it does not know yet that they are lost.
            cluster: the cluster.
            deadline: the deadline that the supervisor reads. It repeats what the actor answers.
            stall_s: seconds of its first deadline after the start, until it has answered a question.
            on_answer: is called in another thread with each answer.
            on_kill: is called before the actor is killed: its tickets are refused from then on.
        """
        self.index, self._place, self._cluster = index, place, cluster
        self._deadline, self._stall_s = deadline, stall_s
        self._on_answer, self._on_kill = on_answer, on_kill
        self.has_ended = False
        self._end_lock = Lock()
        """Protects `has_ended`, which the learner's thread sets: after that, no deadline of this actor is set, and it
        is not placed."""
        self.placed = False
        """Whether its process runs."""
        self.failure = self.explained = self.no_restart_reason = ""
        self.paused: tuple[int, Any] = (-1, None)
        self.started: Started | None = None
        """Where it runs; None until it is ready."""
        self.sent: deque[Sent] = deque()
        """Assignments that are not answered, oldest first."""
        self.next_ticket = 0
        """The first ticket that it was not sent."""
        self.last_version = -1
        """The version of the last ticket that it was sent."""
        self.started_at = monotonic()
        self._answered_at = 0.0
        """Time at which its process was ready, and then of its last answer to assignments."""
        self.ticket_s = 0.0
        """Seconds that a ticket takes; 0 before the first."""
        self._end_reason = ""
        """How it ended; empty while it runs."""
        self._reported, self._closed = Event(), Event()
        self._asked_snapshot = -1
        deadline.set(Span.START, PLACE_S + ACTOR_ANSWER_S)
        self._start(place())

    # --- messages -------------------------------------------------------------------------------------------

    def _start(self, actor: Any) -> None:
        """Let an actor start; `actor`: Ray's handle."""
        self._actor, self._place_lost_at = actor, inf
        self._asked_at, self._is_asked = 0.0, False
        self._call("start", then=self._take_start)
        self.ask()

    def act(
        self, assignments: Sequence[Assignment], references: Sequence[Any], then: Callable[[ActedTickets, float], None]
    ) -> None:
        """Send assignments, and references to the weights of their versions.

        Args:
            assignments: the tickets.
            references: of the weights of each version in them; none if all have the version of the last assignments.
            then: is called with the rows, and the seconds in which the actor had nothing to do while assignments and
                rows were on their way.
        """
        sent = Sent(len(assignments), monotonic(), then)
        self.sent.append(sent)
        self.last_version = assignments[-1].version
        self._call("act", list(assignments), *references, then=partial(self._take_rows, sent))

    def ask(self) -> None:
        """Ask whether the actor makes progress, unless this was asked a moment ago; place it again if that is due."""
        if monotonic() - self._place_lost_at >= PLACE_AGAIN_S:
            with self._end_lock:
                if not self.has_ended:
                    self._start(self._place())
        if not self._is_asked and monotonic() - self._asked_at >= ASK_ACTOR_EVERY_S:
            self._asked_at, self._is_asked = monotonic(), True
            self._call("alive", then=self._take_alive)

    def ask_snapshot(self, pause: int) -> None:
        """Ask for the state of its envs, once at each pause."""
        if self.ready and self._asked_snapshot != pause:
            self._asked_snapshot = pause
            self._call("snapshot", then=partial(self._take_snapshot, pause))

    def close(self) -> None:
        """Ask it to stop its work, and to close its envs."""
        self._call("stop", then=lambda _none: None)
        self._call("close", then=lambda _none: self._closed.set())

    def _call(self, method: str, *arguments: Any, then: Callable[[Any], None]) -> None:
        remote = getattr(self._actor, method)
        if method in QUESTIONS:
            remote = remote.options(concurrency_group=CONCURRENCY_GROUP)
        future = remote.remote(*arguments).future()
        handle = partial(self._handle, self._actor, then)
        future.add_done_callback(lambda answer: self._on_answer(partial(handle, answer)))

    # --- answers --------------------------------------------------------------------------------------------

    def _handle(self, actor: Any, then: Callable[[Any], None], future: Future[Any]) -> None:
        """Handle an answer, or the loss of the actor; nothing of one that was placed again."""
        if actor is not self._actor:
            return
        if (error := future.exception()) is not None:
            self._lose(error)
        elif isinstance(answer := future.result(), Failed):
            self._fail(answer)
        else:
            then(answer)
        self._reported.set()

    def _take_start(self, started: Started) -> None:
        self.no_restart_reason = version_differences(started.versions, started.address)
        if self.no_restart_reason:
            self._end_reason = "has other versions"
            return
        self.started, self.placed, self._answered_at = started, True, monotonic()
        self._set_deadline(Span.WORK, self._stall_s + ACTOR_ANSWER_S)  # that of the start is much longer

    def _take_rows(self, sent: Sent, acted: ActedTickets) -> None:
        """Pass on rows in the order of the tickets: Ray may bring a small message before an earlier, large one."""
        sent.acted = acted
        while self.sent and (rows := self.sent[0].acted) is not None:
            first, now = self.sent.popleft(), monotonic()
            message_s = max(0.0, now - max(first.time, self._answered_at) - rows.busy_s)
            self.ticket_s, self._answered_at = rows.busy_s / first.tickets, now
            first.then(rows, message_s)

    def _take_alive(self, alive: Alive) -> None:
        """Repeat its deadline on the board. One that has passed is not changed any more, so the supervisor sees it."""
        self._is_asked, self.placed = False, True
        if alive.has_stalled:
            if not self._deadline.has_passed:
                self._set_deadline(alive.span, -1.0)
        elif not (alive.waits and self._owes_answer):  # else a message was lost: the deadline stays
            self._set_deadline(alive.span, max(0.0, alive.left_s) + ACTOR_ANSWER_S)

    def _set_deadline(self, span: Span, seconds: float) -> None:
        """Set the deadline, unless it was killed: it is then that of the next actor with its index.

        Args:
            span: what the actor is doing.
            seconds: the seconds that are left.
        """
        with self._end_lock:
            if not self.has_ended:
                self._deadline.set(span, seconds)

    @property
    def _owes_answer(self) -> bool:
        """Whether rows or the state of its envs have not arrived."""
        return bool(self.sent) or self.paused[0] < self._asked_snapshot

    def _take_snapshot(self, pause: int, snapshot: Any) -> None:
        self.paused = (pause, snapshot)

    def _fail(self, failed: Failed) -> None:
        """Note an error of the actor: it does no more work."""
        self.explained, self.failure, self.no_restart_reason = failed
        self._end_reason = self._end_reason or "ended with an error"

    def _lose(self, error: BaseException) -> None:
        """Note that the actor does not answer any more, because of an error of Ray; nothing if `kill` was the cause."""
        if self.has_ended:
            return
        text = str(error)
        is_node_lost = "node has died" in text
        if not self.placed and (is_node_lost or "Actor creation cancelled" in text):
            self._place_lost_at = min(self._place_lost_at, monotonic())
            return
        self.failure, self.explained = self.failure or text, self.explained or ("" if is_node_lost else cause_of(error))
        self._end_reason = self._end_reason or ("was lost with its node" if is_node_lost else "died")

    # --- supervision ----------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether it can act."""
        return self.started is not None

    @property
    def name(self) -> str:
        """The process, for messages."""
        if self.started is None:
            return "not started yet"
        return f"process {self.started.pid} on {self.started.address}"

    @property
    def pid(self) -> int | None:
        """Its process id; None if it is on another node."""
        return self.started.pid if self.started is not None and self.started.node == self._cluster.own_node else None

    def is_alive(self) -> bool:
        """Whether it has not failed, and its process has started in time."""
        if not self._end_reason and not self.placed and monotonic() - self.started_at > PLACE_S:
            self.no_restart_reason = (
                f"its process did not start within {PLACE_S / 60:g} minutes, perhaps because no node had room for it"
            )
            self._end_reason = "did not start"
        return not self._end_reason

    def take_reports(self, seconds: float = 0.0) -> None:
        """Wait up to `seconds` for the next answer: the dispatcher handles it."""
        if seconds:
            self._reported.wait(seconds)
            self._reported.clear()

    def exits_within(self, seconds: float) -> bool:
        """Wait until it has closed its envs, up to `seconds`; return whether it has, or has not made any yet."""
        return bool(self._end_reason) or not self.placed or self._closed.wait(seconds)

    def exit_reason(self) -> str:
        """Return how it ended."""
        return self._end_reason

    def kill(self) -> None:
        """Kill its process."""
        import ray

        with self._end_lock:
            if self.has_ended:
                return
            self.has_ended = True
        self._on_kill(self)
        ray.kill(self._actor)
        if self.started is not None and not self._closed.is_set():
            self._cluster.kill(self.started.node, self.started.pid)  # a stopped process does not obey Ray
