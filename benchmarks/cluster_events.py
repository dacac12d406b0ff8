"""A simulator of a run on a cluster: when tickets are handed out, acted, received and learned from.

Every start follows from the same `OnPolicyPace` that a run uses. The learner has a node of its own, which all messages
pass: one thread hands out tickets, receives their rows, and asks each actor every second whether it makes progress; one
network connection sends weights and receives rows.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from offbeat.config.runtimes import runtime_entry
from offbeat.core.pace import OnPolicyPace
from offbeat.core.seeding import stream
from offbeat.metrics.speed_model import SpeedModel, Topology
from offbeat.runtime.ray.dispatcher import IN_FLIGHT
from offbeat.runtime.ray.proxy import ASK_ACTOR_EVERY_S

SENDING, RECEIVING = "sending weights", "receiving rows"
BUSY = 0.9
"""A part that is busy for more of the time than this limits the speed."""


class Curve(NamedTuple):
    """A cost that was measured for some sizes; between them it is linear."""

    sizes: Sequence[float]
    costs: Sequence[float]

    def at(self, size: float) -> float:
        """Return the cost of a size; above the largest one it grows in proportion."""
        return float(np.interp(size, self.sizes, self.costs)) * max(1.0, size / self.sizes[-1])


@dataclass(frozen=True)
class MessageCosts:
    """What messages and weights cost, in seconds by bytes, without a cable."""

    round_trip: Curve
    """From handing out a ticket that takes no time to having its rows."""
    thread: Curve
    """CPU time of the thread that hands out a ticket and receives its rows."""
    put: Curve
    fetch: Curve
    """The first fetch of weights on a node."""

    @classmethod
    def read(cls, results: Path, node: str) -> MessageCosts:
        """Return the costs in a file of `benchmarks/ray_costs.py`; `node`: where the actor was."""
        rows = json.loads(results.read_text())["costs"][node]
        sizes = [row["bytes"] for row in rows]

        def curve(name: str, unit: float) -> Curve:
            return Curve(sizes, [unit * row[name] for row in rows])

        return cls(
            curve("alone_ms", 1e-3), curve("thread_us", 1e-6), curve("put_ms", 1e-3), curve("first_fetch_ms", 1e-3)
        )


@dataclass(frozen=True)
class Cluster:
    """A run on a cluster: its pace, who acts where, and what each piece of work takes."""

    pace: OnPolicyPace
    nodes: int
    """Nodes on which actors act; the learner has another one."""
    actors_per_node: int
    env_steps: int
    """Env steps of a ticket."""
    acting_us: float
    """Time of an actor for an env step."""
    learning_us: float
    """Time of the learner, or of all learners that share an update, for an env step."""
    row_bytes: float
    """Bytes of an env step in a message."""
    weights_bytes: float
    costs: MessageCosts
    bytes_per_s: float
    """What the network connection of the learner's node transmits, in each direction."""
    spread: float = 0.1
    """Standard deviation of the time of a ticket, as a part of it: nodes and episodes differ."""

    @property
    def actors(self) -> int:
        return self.nodes * self.actors_per_node

    @property
    def ticket_s(self) -> float:
        """Seconds of acting a ticket, on average."""
        return 1e-6 * self.acting_us * self.env_steps

    @property
    def step_env_steps(self) -> int:
        """Env steps of a learning step."""
        return self.env_steps * self.pace.unrolls_per_batch

    @property
    def learn_s(self) -> float:
        """Seconds of a learning step and of putting its weights."""
        return 1e-6 * self.learning_us * self.step_env_steps + self.costs.put.at(self.weights_bytes)

    @property
    def ticket_bytes(self) -> float:
        return self.row_bytes * self.env_steps

    @property
    def messages_us(self) -> float:
        """Time of the thread for an env step of an actor that always acts: its ticket, and questions meanwhile.

        If the thread is the limit, an actor is asked less often than every second: once while all its tickets in flight
        are received.
        """
        questions = min(1 / IN_FLIGHT, self.ticket_s / ASK_ACTOR_EVERY_S) * self.costs.thread.at(0)
        return 1e6 * (self.costs.thread.at(self.ticket_bytes) + questions) / self.env_steps

    def speed_model(self) -> SpeedModel:
        """Return the library's speed model of this run: its limits, if the pace always allows enough overlap."""
        topology = Topology(
            runtime_entry("processes"), self.actors, 1, cores=self.actors + 1, max_lag=self.pace.max_lag
        )
        sending = self.weights_bytes * self.nodes / self.step_env_steps
        return SpeedModel(
            topology,
            acting=self.acting_us,
            learning=1e6 * self.learn_s / self.step_env_steps,
            acting_cpu=self.acting_us,
            learning_cpu=self.learning_us,
            messages=self.messages_us,
            network=1e6 * max(sending, self.row_bytes) / self.bytes_per_s,
        )

    def run(self, steps: int, warm_up: int) -> Result:
        """Simulate learning steps, and measure those after the first `warm_up`."""
        return _Simulation(self).run(steps, warm_up)


class Result(NamedTuple):
    """What a simulated run reached after its warm-up."""

    sps: float
    """Env steps per second."""
    busy: dict[str, float]
    """For each part, the fraction of the time in which it was busy; actors on average."""

    @property
    def bound_by(self) -> str:
        """The part that limits the speed; 'pace' if none is busy all the time, so that they wait for each other."""
        name = max(self.busy, key=self.busy.__getitem__)
        return name if self.busy[name] > BUSY else "pace"


class _Simulation:
    """The state at one time, and the events that are to come. Events are handled in the order of their times."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._pace = cluster, cluster.pace
        self._noise = stream(0, "cluster")
        self._now = 0.0
        self._events: list[tuple[float, int, Any, tuple[int, ...]]] = []
        self._pushed = 0
        self._next = list(range(cluster.actors))
        """For each actor, its next ticket."""
        self._in_hand = [0] * cluster.actors
        self._acts_until = [0.0] * cluster.actors
        self._blocked: defaultdict[int, list[int]] = defaultdict(list)
        """Learning steps -> the actors whose next ticket may start once they are finished."""
        self._waiting: set[int] = set()
        """These actors."""
        self._fetched: dict[tuple[int, int], float] = {}
        """(node, version) -> time from which the node has it."""
        self._committed: set[int] = set()
        self._acted = self._learned = 0
        self._learns = False
        self._free = dict.fromkeys(("messages", SENDING, RECEIVING), 0.0)
        """Time from which each part that works for all actors is free."""
        self._busy = dict.fromkeys(("actors", "learner", *self._free), 0.0)
        """Seconds for which each part has been busy, actors on average."""

    def run(self, steps: int, warm_up: int) -> Result:
        for actor in range(self._cluster.actors):
            self._hand_out(actor)
            self._at(ASK_ACTOR_EVERY_S * actor / self._cluster.actors, self._ask, actor)
        before: tuple[float, dict[str, float]] = 0.0, dict(self._busy)
        while self._learned < steps:
            self._now, _, handle, arguments = heappop(self._events)
            learned = self._learned
            handle(*arguments)
            if learned < self._learned == warm_up:
                before = self._now, dict(self._busy)
        seconds = self._now - before[0]
        busy = {name: min(1.0, (total - before[1][name]) / seconds) for name, total in self._busy.items()}
        return Result((steps - warm_up) * self._cluster.step_env_steps / seconds, busy)

    def _ask(self, actor: int) -> None:
        """Ask an actor whether it makes progress; the next question waits for the answer."""
        answered = self._use("messages", self._cluster.costs.thread.at(0))
        self._at(max(self._now + ASK_ACTOR_EVERY_S, answered), self._ask, actor)

    def _at(self, time: float, handle: Any, *arguments: int) -> None:
        self._pushed += 1
        heappush(self._events, (time, self._pushed, handle, arguments))

    def _use(self, part: str, seconds: float) -> float:
        """Let a part work on one thing after the other; return when it has finished this one."""
        self._busy[part] += seconds
        self._free[part] = max(self._now, self._free[part]) + seconds
        return self._free[part]

    # --- a ticket: handed out, acted, sent, received --------------------------------------------------------

    def _hand_out(self, actor: int) -> None:
        """Hand out tickets to an actor until it has enough, or the pace does not allow its next one."""
        while self._in_hand[actor] < IN_FLIGHT:
            ticket = self._next[actor]
            needed = self._pace.learned_before_act(ticket)
            if needed > self._learned:
                self._blocked[needed].append(actor)
                self._waiting.add(actor)
                return
            self._next[actor] += self._cluster.actors
            self._in_hand[actor] += 1
            self._act(ticket, actor)

    def _act(self, ticket: int, actor: int) -> None:
        """Act with the newest weights, once they and the ticket are there and the actor is free."""
        cluster = self._cluster
        there = self._now + cluster.costs.round_trip.at(0) / 2
        started = max(there, self._acts_until[actor], self._fetch(actor // cluster.actors_per_node))
        seconds = cluster.ticket_s * max(0.1, 1 + cluster.spread * self._noise.standard_normal())
        self._busy["actors"] += seconds / cluster.actors
        self._acts_until[actor] = started + seconds
        self._at(started + seconds, self._send, ticket)

    def _fetch(self, node: int) -> float:
        """Return the time from which a node has the newest weights, which its first actor fetches for all."""
        cluster, key = self._cluster, (node, self._learned)
        if not cluster.weights_bytes:
            return 0.0
        if key not in self._fetched:
            sent = self._use(SENDING, cluster.weights_bytes / cluster.bytes_per_s)
            self._fetched[key] = sent + cluster.costs.fetch.at(cluster.weights_bytes)
        return self._fetched[key]

    def _send(self, ticket: int) -> None:
        cluster, size = self._cluster, self._cluster.ticket_bytes
        received = self._use(RECEIVING, size / cluster.bytes_per_s)
        self._at(
            received + cluster.costs.round_trip.at(size) - cluster.costs.round_trip.at(0) / 2, self._receive, ticket
        )

    def _receive(self, ticket: int) -> None:
        self._at(self._use("messages", self._cluster.costs.thread.at(self._cluster.ticket_bytes)), self._commit, ticket)

    def _commit(self, ticket: int) -> None:
        self._committed.add(ticket)
        while self._acted in self._committed:
            self._committed.remove(self._acted)
            self._acted += 1
        actor = ticket % self._cluster.actors
        self._in_hand[actor] -= 1
        if actor not in self._waiting:
            self._hand_out(actor)
        self._learn()

    # --- a learning step ------------------------------------------------------------------------------------

    def _learn(self) -> None:
        """Begin the next learning step, if its tickets are committed and the learner is free."""
        if self._learns or self._acted < self._pace.acted_before_learn(self._learned):
            return
        self._learns = True
        self._busy["learner"] += self._cluster.learn_s
        self._at(self._now + self._cluster.learn_s, self._finish)

    def _finish(self) -> None:
        self._learned += 1
        self._learns = False
        for actor in self._blocked.pop(self._learned, ()):
            self._waiting.remove(actor)
            self._hand_out(actor)
        self._learn()
