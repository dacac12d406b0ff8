"""Actors and a learner that do nothing but pass the gate, and write into slots and weights what shows any mishap.

Weights of version v hold v x SIZE, v x SIZE + 1, ...; row t of ticket k is marked with k and with what its actor read
in place t of the weights. So a batch that the learner reads tells of each row which ticket wrote it, with which
version, and whether that was whole.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from typing import Any, Literal, Protocol

import numpy as np
from tests.support import warm

import offbeat.runtime.gate
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import Closed
from offbeat.core.memory_shape import Slab
from offbeat.core.pace import OnPolicyPace
from offbeat.core.process.process_exit import exit_process
from offbeat.core.types import Field, Tree
from offbeat.memory.arena import SharedArena, attach, private_arena
from offbeat.memory.unrolls import Unrolls, UnrollShape
from offbeat.memory.weights import Weights, weight_slabs
from offbeat.metrics.timings import Timings
from offbeat.runtime.board import Bell, SharedBell
from offbeat.runtime.gate import ActorGate, LearnerGate, PaceBoard, pace_board_slabs

FIELDS = [Field("mark", (), "int64"), Field("behavior_version", (), "int64", per="unroll")]
SIZE = 5
COLUMNS = 2
PATIENCE_S = 20.0
"""Whoever waits longer has missed a bell."""

Pause = Callable[[], None]


@dataclass(frozen=True)
class Layout:
    """What is played."""

    unrolls_per_batch: int = 2
    max_lag: int = 1
    actors: int = 2
    length: int = 3
    lag: Literal["bounded", "exact"] = "bounded"

    @property
    def pace(self) -> OnPolicyPace:
        return OnPolicyPace(self.unrolls_per_batch, self.max_lag)

    @property
    def runtime(self) -> RuntimeConfig:
        return RuntimeConfig(
            runtime="processes",
            actors=self.actors,
            unrolls_per_batch=self.unrolls_per_batch,
            max_lag=self.max_lag,
            lag=self.lag,
        )

    def slabs(self) -> list[Slab]:
        return [
            *UnrollShape(self.pace, self.length, COLUMNS).slabs(FIELDS),
            *weight_slabs(SIZE, self.pace.versions),
            *pace_board_slabs(self.actors),
            *((f"seen/{name}", (self.actors,), "int64") for name in ("begun", "pauses", "closed")),
        ]


def mark(ticket: int, vector: Any, row: int) -> int:
    return ticket * 100_000 + int(vector[row % SIZE])


def vector_of(version: int) -> Any:
    return np.arange(version * SIZE, (version + 1) * SIZE, dtype=np.float32)


class SimulatedActor:
    """An actor. It shows in the arrays `seen/...` what it last began, how often it paused, and that it saw the end."""

    def __init__(self, layout: Layout, arrays: Tree, index: int, pause: Pause) -> None:
        self._arrays, self._index, self._pause = arrays, index, pause
        self._unrolls, self._weights = Unrolls(FIELDS, layout.pace, arrays), Weights(arrays)

    def play(self, gate: ActorGate) -> None:
        """Act ticket after ticket until the gate closes."""
        try:
            while True:
                ticket = gate.open_ticket
                version = gate.start(ticket, self._count_pause)
                self._arrays["seen/begun"][self._index] = ticket
                self._act(ticket, version)
                gate.commit(ticket)
        except Closed:
            self._arrays["seen/closed"][self._index] += 1

    def _act(self, ticket: int, version: int) -> None:
        slot, vector = self._unrolls.open(ticket), self._weights.read(version)
        slot["behavior_version"][:] = version
        for row in range(len(slot["mark"])):
            self._pause()
            slot["mark"][row] = mark(ticket, vector, row)
        self._pause()

    def _count_pause(self) -> None:
        self._arrays["seen/pauses"][self._index] += 1


class SimulatedLearner:
    """The learner; it has published version 0. It raises AssertionError at whatever should not be."""

    def __init__(self, layout: Layout, arrays: Tree, board: PaceBoard, gate: LearnerGate, pause: Pause) -> None:
        self._layout, self._pace, self._arrays, self._board, self._gate = layout, layout.pace, arrays, board, gate
        self._unrolls, self._weights, self._pause = Unrolls(FIELDS, layout.pace, arrays), Weights(arrays), pause
        self.learned = 0
        self._weights.open(0)[:] = vector_of(0)
        self._weights.commit(0)

    def _publish(self, version: int) -> None:
        vector = self._weights.open(version)
        for place, value in enumerate(vector_of(version)):
            vector[place] = value
            self._pause()
        self._weights.commit(version)

    def learn(self, watch: Pause, pause_ticket: int | None = None) -> None:
        """Take one learning step, and look at its batch before and after publishing.

        A pause is set at the last moment.
        """
        step = self.learned
        self._gate.wait(self._pace.acted_before_learn(step), watch)
        self._check_batch(step)
        self._publish(step + 1)
        self._check_batch(step)
        if pause_ticket is not None:
            self._gate.pause_at(pause_ticket)
        self._gate.finish(step + 1)
        self.learned += 1

    def _check_batch(self, step: int) -> None:
        batch, rows = self._unrolls.arrays_of(step), self._layout.length + 1
        for place, ticket in enumerate(self._pace.tickets_of(step)):
            for column in range(place * COLUMNS, (place + 1) * COLUMNS):
                version = int(batch["behavior_version"][column])
                self._check_version(ticket, version)
                wanted = [mark(ticket, vector_of(version), row) for row in range(rows)]
                assert batch["mark"][:, column].tolist() == wanted, (ticket, version)

    def _check_version(self, ticket: int, version: int) -> None:
        batch = ticket // self._layout.unrolls_per_batch
        assert max(0, batch - self._layout.max_lag) <= version <= batch, (ticket, version)
        if self._layout.lag == "exact":
            assert version == self._pace.learned_before_act(ticket), (ticket, version)

    def learn_up_to_a_pause(self, watch: Pause) -> None:
        """Set a pause before the next step is finished, learn from all that may still be acted, and see who pauses."""
        pauses = self._arrays["seen/pauses"].copy()
        pause_ticket = self._pace.pause_ticket(self.learned)
        self.learn(watch, pause_ticket)
        while self.learned * self._layout.unrolls_per_batch < pause_ticket:
            self.learn(watch)
        self.check_paused(pause_ticket)
        while (self._arrays["seen/pauses"] == pauses).any():
            watch()
            self._pause()
        self.check_paused(pause_ticket)
        self._gate.pause_at(None)

    def check_paused(self, pause_ticket: int) -> None:
        """No ticket from the pause on has begun, and all below are committed."""
        assert self._board.acted == pause_ticket
        assert (self._arrays["seen/begun"] < pause_ticket).all()


# --- a schedule that decides who moves, without any clock ---------------------------------------------------


class Killed(BaseException):
    """What ends an actor of a schedule at any of its pauses, as a signal that cannot be caught."""


class Schedule:
    """Threads of which one runs at a time. At each pause, and at each look at a counter, the next one is drawn.

    A sleeper runs only once its bell has been rung: so a ring that is lost leaves nobody who can move.
    """

    def __init__(self, random: Random, deaths: float = 0.0) -> None:
        """`deaths` is the chance that a pause of an actor is its last."""
        self.random, self.deaths = random, deaths
        self.failures: list[BaseException] = []
        self._turns: list[threading.Semaphore] = []
        self._threads: list[threading.Thread] = []
        self._speeds: list[float] = []
        self._mortal: list[bool] = []
        self._living: set[int] = set()
        self._asleep: dict[int, SimulatedBell] = {}
        self._me = 0

    def add(self, life: Pause, *, mortal: bool) -> None:
        """Add somebody; before `run`."""
        party = len(self._threads)
        self._turns.append(threading.Semaphore(0))
        self._threads.append(threading.Thread(target=self._live, args=(party, life), daemon=True))
        self._speeds.append(10 ** self.random.uniform(-1.5, 1.5))
        self._mortal.append(mortal)
        self._living.add(party)

    def _live(self, party: int, life: Pause) -> None:
        self._turns[party].acquire()
        self._me = party
        try:
            life()
        except BaseException as error:  # noqa: BLE001 - told by `run`
            self.failures.append(error)
        self._living.remove(party)
        self._hand_over()

    def run(self) -> None:
        """Let all live to their end."""
        for thread in self._threads:
            thread.start()
        self._hand_over()
        for thread in self._threads:
            thread.join(60)
        if self.failures:
            raise self.failures[0]
        assert not self._living

    def pause(self) -> None:
        """Let anybody go on who can, oneself included; an actor may also die here."""
        party = self._me
        self._hand_over()
        self._turns[party].acquire()
        self._me = party
        if self.failures or (self._mortal[party] and self.random.random() < self.deaths):
            raise Killed

    def sleep(self, bell: SimulatedBell) -> None:
        self._asleep[self._me] = bell
        self.pause()

    def _hand_over(self) -> None:
        able = [p for p in sorted(self._living) if p not in self._asleep or self._asleep[p].rung or self.failures]
        if not able and self._living:
            self.failures.append(AssertionError("all sleep, and nobody will ring"))
            able = sorted(self._living)
        if able:
            [party] = self.random.choices(able, [self._speeds[party] for party in able])
            self._asleep.pop(party, None)
            self._turns[party].release()


class SimulatedBell:
    """A `Bell` for one schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.rung = schedule, False

    def ring(self) -> None:
        self.schedule.pause()
        self.rung = True

    def sleep(self, _seconds: float) -> None:
        self.schedule.sleep(self)
        self.rung = False

    def close(self) -> None: ...


class Watched:
    """An array of counters before each look at which, and each change, anybody may go on."""

    def __init__(self, array: Any, schedule: Schedule) -> None:
        self._array, self._schedule = array, schedule

    def __getitem__(self, place: int) -> Any:
        self._schedule.pause()
        return self._array[place]

    def __setitem__(self, place: int, value: Any) -> None:
        self._schedule.pause()
        self._array[place] = value


class Simulation:
    """A board, a gate, actors and a learner in one schedule."""

    def __init__(self, layout: Layout, random: Random, deaths: float = 0.0) -> None:
        self.layout, self.deaths = layout, 0
        """Actors that have died."""
        self.arrays = private_arena(layout.slabs())
        self.schedule = Schedule(random, deaths)
        board = PaceBoard(self.arrays, layout.actors)
        board.reset(0, 0)
        for name in ("learned", "pause", "closed"):
            setattr(board, name, Watched(getattr(board, name), self.schedule))
        watched: list[Any] = [Watched(array, self.schedule) for array in board.next]
        board.next = watched
        self.board = board
        self.gate = LearnerGate(board, layout.pace, Timings())
        self.gate.discard()
        self._own = SimulatedBell(self.schedule)
        self._bells = [SimulatedBell(self.schedule) for _ in range(layout.actors)]
        self.gate.own_bell, self.gate.acting_bells = self._own, self._bells  # type: ignore[assignment]
        self.gate._shared = SharedBell(self._own)  # type: ignore[arg-type]
        self.learner = SimulatedLearner(layout, self.arrays, board, self.gate, self.schedule.pause)

    def run(self, lesson: Callable[[Simulation], None]) -> None:
        """Let the actors act while the learner does `lesson`; then close the gate and let all end."""

        def learner() -> None:
            lesson(self)
            self.gate.close()

        self.schedule.add(learner, mortal=False)
        for index in range(self.layout.actors):
            self.schedule.add(partial(self._act, index), mortal=True)
        self.schedule.run()

    def _act(self, index: int) -> None:
        """Live as an actor, again and again: whoever takes the place of a dead one finds its ticket open."""
        while not self.schedule.failures:
            gate = ActorGate(self.board, self.layout.pace, self.layout.runtime, index, self._bells[index], self._own)  # type: ignore[arg-type]
            try:
                SimulatedActor(self.layout, self.arrays, index, self.schedule.pause).play(gate)
            except Killed:
                self.deaths += 1
                self._own.rung = True  # the learner finds out about a death after a nap at the latest
            else:
                return


# --- actors that really run side by side --------------------------------------------------------------------


class ActorPool(Protocol):
    """Actors of one kind, who can be started one by one, and ended."""

    def __init__(self, layout: Layout, arena: SharedArena, gate: LearnerGate, seconds: float) -> None:
        """`seconds` is how long each of their pauses lasts, on average."""

    def start(self, index: int) -> None: ...

    def watch(self) -> None:
        """Raise if one has failed."""

    def join(self) -> None:
        """Wait until all have ended by themselves."""


class Threads:
    """An `ActorPool` of threads."""

    def __init__(self, layout: Layout, arena: SharedArena, gate: LearnerGate, seconds: float) -> None:
        self._layout, self._arena, self._gate, self._seconds = layout, arena, gate, seconds
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def start(self, index: int) -> None:
        board = PaceBoard(self._arena.arrays, self._layout.actors)
        own_bell, learner_bell = self._gate.acting_bells[index], self._gate.own_bell
        gate = ActorGate(board, self._layout.pace, self._layout.runtime, index, own_bell, learner_bell)
        player = SimulatedActor(self._layout, self._arena.arrays, index, pauses(self._seconds, index))
        self._threads.append(threading.Thread(target=self._play, args=(player, gate), daemon=True))
        self._threads[-1].start()

    def _play(self, player: SimulatedActor, gate: ActorGate) -> None:
        try:
            player.play(gate)
        except BaseException as error:  # noqa: BLE001 - raised by `watch`
            self._failures.append(error)

    def watch(self) -> None:
        for error in self._failures:
            raise error

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


class Processes:
    """An `ActorPool` of processes, which are handed the arena and their bells as descriptors."""

    def __init__(self, layout: Layout, arena: SharedArena, gate: LearnerGate, seconds: float) -> None:
        self._layout, self._arena, self._gate, self._seconds = layout, arena, gate, seconds
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, index: int) -> None:
        inherited = (self._arena.fd, self._gate.acting_bells[index].reader, self._gate.own_bell.writer)
        what = {"layout": asdict(self._layout), "index": index, "fds": inherited, "seconds": self._seconds}
        start = warm.popen if warm.children_are_forked() else subprocess.Popen
        self.processes[index] = start(
            [sys.executable, "-c", "from tests.support.gates import main; main()", json.dumps(what)],
            pass_fds=inherited,
            cwd=warm.REPOSITORY,
        )

    def kill(self, index: int) -> None:
        """Kill -9, and reap: only then may another take the place."""
        self.processes[index].kill()
        self.processes[index].wait()

    def watch(self) -> None:
        assert not any(process.poll() for process in self.processes.values())

    def join(self) -> None:
        try:
            assert [process.wait(PATIENCE_S) for process in self.processes.values()] == [0] * self._layout.actors
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()


def pauses(seconds: float, seed: int) -> Pause:
    """Return a pause of random length; most are none at all, some are ten times the mean."""
    random = Random(seed)

    def pause() -> None:
        if seconds and random.random() < 0.1:
            time.sleep(random.expovariate(0.1 / seconds))

    return pause


def main() -> None:
    """Be an actor in a process of its own."""
    what = json.loads(sys.argv[1])
    layout, index = Layout(**what["layout"]), what["index"]
    arena, own_bell, learner_bell = what["fds"]
    offbeat.runtime.gate.POLL_INTERVAL_S = PATIENCE_S  # type: ignore[attr-defined]
    arrays = attach(arena, layout.slabs())
    gate = ActorGate(
        PaceBoard(arrays, layout.actors), layout.pace, layout.runtime, index, Bell(own_bell, -1), Bell(-1, learner_bell)
    )
    SimulatedActor(layout, arrays, index, pauses(what["seconds"], index)).play(gate)
    exit_process(0)
