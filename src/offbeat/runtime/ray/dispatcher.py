"""The dispatcher: a thread of the learner's process that hands out tickets to the actors and takes their rows.

An actor gets its next tickets before it has answered the last ones, if the pace allows, so it does not wait for
messages. Small tickets are sent several at a time. The dispatcher sleeps until an answer arrives or a learning step is
finished.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic, thread_time

import numpy as np

from offbeat.core.errors import Closed, RunFailed
from offbeat.core.process.threads import start_thread
from offbeat.metrics.timings import ACTOR_WAIT, MESSAGE_WAIT, OTHER_WORK
from offbeat.runtime.board import POLL_INTERVAL_S, Bell
from offbeat.runtime.deadline import ROW, Deadline, Span, StallWatch
from offbeat.runtime.gate import PaceBoard, TicketGate
from offbeat.runtime.message_traffic import MessageTraffic
from offbeat.runtime.plan import Plan
from offbeat.runtime.ray.messages import ActedTickets, Assignment, RowMessage, TicketRows
from offbeat.runtime.ray.proxy import ActorProxy, Answer
from offbeat.runtime.ray.published import PublishedVersions
from offbeat.workers.feed import env_steps_in
from offbeat.workers.link import Memory

IN_FLIGHT = 2
"""Maximum number of messages to an actor that are not answered: it acts one while the other is on its way."""
CLOSE_S = 10.0
"""Seconds that the thread gets to end. A thread that hangs in a call of Ray is left running."""
MESSAGE_S = 0.1
"""Seconds of acting that a message should have at least: smaller tickets are sent together."""


@dataclass
class Waits:
    """Seconds in which an actor had nothing to do, and since when."""

    learner: float
    other_work: float
    """The part of `learner` in which the learner did other work."""
    messages: float
    idle_since: float = 0.0
    other_work_before: float = 0.0
    """The learner's seconds of other work at that time."""


class Dispatcher:
    """See the module's docstring."""

    def __init__(
        self,
        plan: Plan,
        memory: Memory,
        board: PaceBoard,
        bell: Bell,
        learner_bell: Bell,
        require_store: Callable[[], None],
        logs: str,
    ) -> None:
        """Make a dispatcher without actors.

        Args:
            plan: the plan of the run.
            memory: slots and weights of all policies, in this process.
            board: counters of the run, in this process.
            bell: wakes the dispatcher; the learner rings it too.
            learner_bell: wakes the learner.
            require_store: is called before something is put into the object store, and may raise.
            logs: `Cluster.logs`.
        """
        self._plan, self._board, self._bell, self._logs = plan, board, bell, logs
        self._gates = [
            TicketGate(board, plan.pace, plan.runtime, index, learner_bell) for index in range(board.workers)
        ]
        pairs = zip(plan.policies, memory.policies, strict=True)
        self._rows = [(RowMessage(policy), slots) for policy, (slots, _) in pairs if policy.trained]
        weights = [weights for _, weights in memory.policies]
        self._published = PublishedVersions(weights, plan.pace.versions, require_store)
        self._proxies: dict[int, ActorProxy] = {}
        """The newest incarnation of each actor, by index; none while it is replaced."""
        self._spent: dict[int, Mapping[str, float]] = {}
        """Seconds of earlier incarnations, by index."""
        self._waits: dict[int, Waits] = {}
        self._lock = threading.Lock()
        """Protects the proxies and the slots: a commit and the replacement of its actor never happen together."""
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._is_ending, self._end_lock = False, threading.Lock()
        """The lock protects `_is_ending`: once that is set, no thread of Ray rings the bell."""
        self.failure: BaseException | None = None
        """The error that has ended the thread."""
        self.refused = 0
        """Tickets of superseded incarnations that came too late and were refused."""
        self._row_bytes = self._weight_bytes = self._env_steps = 0
        self._reported = (0, 0, 0)
        """These numbers at the last call of `metrics`."""
        self._thread_s = 0.0
        self._deadline, self._stall_s = Deadline(np.zeros(ROW)), plan.runtime.stall_timeout_s
        self._stalls = StallWatch([self._deadline])
        self._thread = threading.Thread(target=self._run, name="offbeat dispatcher", daemon=True)

    # --- called by the learner's thread -----------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._deadline.set(Span.WORK, self._stall_s)
        start_thread(self._thread)

    def add(self, proxy: ActorProxy) -> None:
        """Hand out tickets to an actor from its open ticket on, as soon as it is ready."""
        index, spent = proxy.index, self._board.spent(proxy.index)
        with self._lock:
            proxy.next_ticket = self._gates[index].open_ticket
            self._spent[index] = spent
            self._waits[index] = Waits(spent[ACTOR_WAIT], spent[OTHER_WORK], spent[MESSAGE_WAIT])
            self._proxies[index] = proxy

    def remove(self, proxy: ActorProxy) -> None:
        """Refuse all commits of an actor from now on: its next incarnation acts its open ticket again."""
        with self._lock:
            self._proxies.pop(proxy.index, None)

    def on_answer(self, answer: Answer) -> None:
        """Take an answer of an actor; called by threads of Ray."""
        with self._end_lock:
            if not self._is_ending:
                self._answers.put(answer)
                self._bell.ring()

    def metrics(self) -> dict[str, float]:
        """Return the bytes of messages per env step since the last call; none before a ticket is committed."""
        with self._lock:
            totals = (self._row_bytes, self._weight_bytes, self._env_steps)
        rows, weights, env_steps = (now - before for now, before in zip(totals, self._reported, strict=True))
        if not env_steps:
            return {}
        self._reported = totals
        return {"row_bytes_per_env_step": rows / env_steps, "weight_bytes_per_env_step": weights / env_steps}

    def traffic(self) -> MessageTraffic:
        """Return what the messages have taken so far, without the waits of actors."""
        with self._lock:
            return MessageTraffic(self._env_steps, self._row_bytes, self._weight_bytes, self._thread_s)

    def watch(self) -> None:
        """Check that the thread handles messages.

        Raises:
            RunFailed: it has failed, or hangs.
        """
        if self.failure is not None:
            raise RunFailed("the messages of the actors could not be handled") from self.failure
        if self._stalls.has_stalled(0):
            raise RunFailed(
                f"the messages of the actors were not handled within {self._stall_s:g} s (stall_timeout_s): a call of "
                f"Ray does not return{self._logs}"
            )

    def end(self) -> None:
        """End the thread."""
        with self._end_lock:
            self._is_ending = True
            self._bell.ring()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    @property
    def has_ended(self) -> bool:
        """Whether the thread does not run, so that nobody rings its bells any more."""
        return not self._thread.is_alive()

    # --- in the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_ending:
                self._deadline.set(Span.WORK, self._stall_s)
                self._bell.sleep(POLL_INTERVAL_S)
                self._handle_answers()
                with self._lock:
                    proxies = list(self._proxies.values())
                for proxy in proxies:
                    proxy.ask()
                    with suppress(Closed):
                        self._hand_out(proxy)
                self._thread_s = thread_time()
        except BaseException as error:  # noqa: BLE001 - `watch` raises it
            self.failure = error

    def _handle_answers(self) -> None:
        with suppress(Empty):
            while True:
                self._answers.get_nowait()()

    # --- assignments --------------------------------------------------------------------------------------------

    def _hand_out(self, proxy: ActorProxy) -> None:
        """Send an actor the tickets that the pace allows, as far as it has not enough to do."""
        while proxy.ready and len(proxy.sent) < IN_FLIGHT and (assignments := self._assignments(proxy)):
            versions = list(dict.fromkeys(assignment.version for assignment in assignments))
            references = [] if versions == [proxy.last_version] else [self._reference(version) for version in versions]
            if not proxy.sent:
                self._end_wait(proxy)
            proxy.act(assignments, references, partial(self._commit, proxy))

    def _assignments(self, proxy: ActorProxy) -> list[Assignment]:
        """Return the next tickets of an actor, for one message."""
        gate, assignments = self._gates[proxy.index], list[Assignment]()
        while len(assignments) < self._tickets_per_message(proxy):
            if (version := gate.version(proxy.next_ticket)) is None:
                break
            assignments.append(Assignment(proxy.next_ticket, version, self._published.progress(version)))
            proxy.next_ticket += self._board.workers
        return assignments

    def _tickets_per_message(self, proxy: ActorProxy) -> int:
        """Return how many tickets to send together: at most half of those that the actor may have at one time.

        So an actor has work while its rows are on their way, and the learner does not wait for a whole message.
        """
        pace, learned = self._plan.pace, int(self._board.learned[0])
        ahead = (pace.pause_ticket(learned) - pace.next_ticket(learned)) // self._board.workers
        small = int(MESSAGE_S / proxy.ticket_s) if proxy.ticket_s else 1
        return max(1, min(small, ahead // 2))

    def _reference(self, version: int) -> object:
        """Return the reference of a version, and count the bytes that the nodes will fetch."""
        reference, is_new = self._published.reference(version)
        if is_new:
            with self._lock:
                nodes = {proxy.started.node for proxy in self._proxies.values() if proxy.started is not None}
                self._weight_bytes += self._published.size * len(nodes)
        return reference

    def _end_wait(self, proxy: ActorProxy) -> None:
        """Count the time in which an actor had no assignments."""
        waits = self._waits[proxy.index]
        if waits.idle_since:
            waited = monotonic() - waits.idle_since
            waits.learner += waited
            waits.other_work += min(waited, max(0.0, self._board.other_work_s - waits.other_work_before))

    # --- commits ------------------------------------------------------------------------------------------------

    def _commit(self, proxy: ActorProxy, acted: ActedTickets, message_s: float) -> None:
        """Write the rows of an actor's answer into their slots, and commit its tickets.

        Those of a superseded incarnation are refused: the actor was replaced, and its tickets are acted again.
        """
        waits = self._waits[proxy.index]
        with self._lock:
            if self._proxies.get(proxy.index) is not proxy:
                self.refused += len(acted.tickets)
                return
            waits.messages += message_s
            seconds = self._seconds(proxy.index, acted.seconds)
            for rows in acted.tickets:
                self._write(rows)
                self._row_bytes += rows.size
                self._env_steps += env_steps_in(rows.policies[0])
                self._gates[proxy.index].commit(rows.ticket, seconds, acted.longest_stall)
        waits.idle_since, waits.other_work_before = monotonic(), self._board.other_work_s

    def _write(self, rows: TicketRows) -> None:
        """Write the rows of a ticket into its slots."""
        for (message, slots), arrays in zip(self._rows, rows.policies, strict=True):
            message.write(arrays, slots.open(rows.ticket), rows.first)

    def _seconds(self, index: int, seconds: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds of an actor, those of its earlier incarnations included."""
        before, waits = self._spent[index], self._waits[index]
        own = {name: before.get(name, 0.0) + spent for name, spent in seconds.items()}
        return {**own, ACTOR_WAIT: waits.learner, OTHER_WORK: waits.other_work, MESSAGE_WAIT: waits.messages}
