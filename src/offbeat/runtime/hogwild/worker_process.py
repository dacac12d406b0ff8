"""What a worker process of a lock-free run does: it acts and learns by turns, on envs and a memory of its own.

With one worker, its turns are those of the serial runtime. It ends when the board says that all is closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import perf_counter as clock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.config.config import Config
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import Closed
from offbeat.core.threads import core_of, limit
from offbeat.core.types import Tree
from offbeat.memory.arena import attach
from offbeat.metrics.timings import Timings
from offbeat.runtime.assembly import device_of, learner_of
from offbeat.runtime.board import POLL_INTERVAL_S, Bell
from offbeat.runtime.child import Report
from offbeat.runtime.deadline import WorkerDeadline
from offbeat.runtime.hogwild.device_buffer import open_buffer
from offbeat.runtime.hogwild.shared_state import (
    Arrays,
    SharedStateShape,
    SharedStorage,
    WorkersBoard,
    WorkerUpdateCounter,
)
from offbeat.runtime.launch import LaunchSpec, prepare_process
from offbeat.runtime.links import TurnsLink
from offbeat.runtime.plan import Plan, Snapshot
from offbeat.workers.actor import Actor
from offbeat.workers.learner import Learned

REPORT_EVERY_S = 0.2
"""Seconds between reports of what was learned, at least."""


class State(NamedTuple):
    """What a worker goes on from."""

    learner: Mapping[str, Any]
    actor: Snapshot
    priorities: Tree
    """Of its replay, as far as it has some; the rows are in its memory."""


class WorkerReport(NamedTuple):
    """What a worker reports of the learning steps since its last report."""

    metrics: list[dict[str, float]]
    """Of each step; first the size of a replay that was found or restored."""
    returns: list[NDArray[np.float64]]
    """Of the episodes that ended."""
    lengths: list[NDArray[np.int32]]
    info: NDArray[np.float64]
    """[2, K]: sums and counts of what infos reported."""
    seconds: dict[str, float]
    """What the time went into."""
    stall: float
    """Seconds of the longest call of an env so far."""


@dataclass(frozen=True, kw_only=True)
class WorkerLaunch(LaunchSpec):
    """What a worker process is given at its start."""

    config: Config
    """Its own: see `Config.of_worker`."""
    runtime: RuntimeConfig
    """That of the whole run."""
    steps: int
    """Env steps of the whole run: what schedules run over."""
    plan: Plan
    shared_state: SharedStateShape
    state: State | None
    """What it goes on from; None where it begins, or follows one that died."""
    algorithm: type[Any]
    """Its class."""
    arenas: tuple[int, int]
    """File descriptors, which it has inherited under the same numbers: of the shared state, and of its own memory."""
    buffer: bytes | None
    """What it opens the buffer with that holds what is learned; None where the shared state holds that too."""


def main(launch: WorkerLaunch, connection: Connection[Report, WorkerLaunch]) -> None:
    """Be a worker until everything is closed."""
    prepare_process(launch, core_of(launch.runtime.actor_cores, launch.index), launch.runtime.actor_nice)
    limit(launch.threads)
    worker = Worker(launch, connection)
    try:
        worker.start(launch.state)
        worker.work()
    finally:
        worker.close()


class Worker:
    """One worker: an actor, a learner, and the loop that lets them take turns."""

    def __init__(self, launch: WorkerLaunch, connection: Connection[Report, WorkerLaunch]) -> None:
        plan, index = launch.plan, launch.index
        shared_state = _attached(launch)
        arrays = attach(launch.arenas[1], plan.slabs())
        self._launch, self._connection = launch, connection
        self._board = WorkersBoard(shared_state, launch.shared_state.workers)
        self._bell = Bell(launch.own_bell, -1)
        self._deadline = WorkerDeadline(self._board.closed, self._board.deadlines[index], launch.runtime)
        storage = SharedStorage(launch.shared_state, shared_state, index)
        self._algorithm = launch.algorithm.for_run(launch.config, plan.policy.policy, device_of(launch.config), storage)
        counter = WorkerUpdateCounter(self._board, index, separate=storage.separate, renew=self._deadline.renew)
        memory, self._timings = plan.memory(arrays), Timings()
        self._learner = learner_of(launch.config, self._algorithm, *memory.policies[0], self._timings, counter)
        self._done = self._board.progress_of(index)
        self._link = TurnsLink(plan.pace, memory, self._done.learning_steps)
        self._actor = self._make_actor(lives=not storage.separate)
        self._pending, self._reported_at = _PendingReport(len(plan.policy.env.info)), clock()

    def _make_actor(self, *, lives: bool) -> Actor:
        """Make the actor; where it acts with what all learners change, it takes the newest for each decision."""
        plan = self._launch.plan
        renew = self._algorithm.write_published if lives else None
        self._deadline.enter(resets=True)  # making envs may take as long as beginning episodes
        actor = plan.actor(0, self._link.origin, self._deadline, self._launch.attempt, renew)
        self._deadline.leave()
        return actor

    # --- beginning ------------------------------------------------------------------------------------------

    def start(self, state: State | None) -> None:
        """Begin, go on from a state, or follow a worker that died: its replay and its counts are still there."""
        step, feed = self._done.learning_steps, self._learner.feed
        if state is None:
            feed.recover(step, self._done.ratio, self._made)
        else:
            self._learner.restore_own(state.learner)  # what is shared, and the statistics, are there already
            feed.reattach(state.learner, state.priorities, self._done.ratio, self._made, step)
            self._count_from_here()
        self._pending.metrics.append(feed.sizes())  # it may pause before it learns
        progress = self._learner.progress if state else min(1.0, self._board.env_steps / self._launch.steps)
        self._learner.publish(step, progress)
        self._launch.plan.start(self._actor, self._link.origin, state.actor if state else None, progress)
        self._report("ready", None)

    @property
    def _made(self) -> int:
        """Updates that this worker has made, with those of the processes that died in its place."""
        return int(self._board.updates[self._launch.index, 0])

    # --- the loop -------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Act and learn by turns, as long as all workers together are below the limit.

        Raises:
            Closed: everything has been closed.
        """
        while True:
            begun, boundary = self._board.env_steps, int(self._board.limit[0])
            if begun >= boundary:
                self._pause(boundary)
                continue
            step = self._done.learning_steps
            while self._link.may_act:
                work = self._link.next()
                self._actor.act(work)
                self._link.commit(work, self._actor.timings, self._actor.longest_stall)
            learned = self._learner.learn(step, min(1.0, begun / self._launch.steps))
            self._count(learned)
            self._link.learned = step + 1
            if clock() > self._reported_at + REPORT_EVERY_S:
                self._report_progress()

    def _count(self, learned: Learned) -> None:
        done = self._done
        self._done = done._replace(learning_steps=done.learning_steps + 1, env_steps=done.env_steps + learned.env_steps)
        self._count_from_here()
        self._pending.add(learned)

    def _count_from_here(self) -> None:
        """Let the board know what is done, the replay's counts with it."""
        self._done = self._done.with_ratio(self._learner.feed.ratio(self._made))
        self._board.finish(self._launch.index, self._done)

    def _pause(self, boundary: int) -> None:
        """Report all that there is to save, and do nothing until the limit is another one than `boundary`.

        Raises:
            Closed: everything has been closed.
        """
        self._report_progress()
        self._deadline.renew()
        self._report("paused", (boundary, self._state()))
        while self._board.limit[0] == boundary:
            if self._board.closed[0]:
                raise Closed
            self._deadline.renew()
            self._bell.sleep(POLL_INTERVAL_S)
        self._deadline.renew()

    def _state(self) -> State:
        learner, arrays = self._learner.state(), self._learner.feed.checkpoint_arrays() or {}
        if self._launch.shared_state.share_moments:
            learner["adam"] = {}  # they are saved once, with all that is shared
        priorities = {name: array.copy() for name, array in arrays.items() if name.startswith("priorities/")}
        return State(learner, self._actor.snapshot(), priorities)

    # --- reports --------------------------------------------------------------------------------------------

    def _report_progress(self) -> None:
        """Report what was learned since the last time."""
        self._reported_at = clock()
        timings = Timings()
        timings.merge(self._timings.seconds)
        timings.merge(self._actor.timings.seconds)
        self._timings.seconds.clear()
        self._actor.timings.seconds.clear()
        pending, self._pending = self._pending, _PendingReport(len(self._launch.plan.policy.env.info))
        self._connection.send(
            Report(
                "progress",
                WorkerReport(
                    pending.metrics,
                    pending.returns,
                    pending.lengths,
                    pending.info,
                    timings.seconds,
                    self._actor.longest_stall,
                ),
            )
        )

    def _report(self, kind: str, content: Any) -> None:
        self._connection.send(Report(kind, content))

    def close(self) -> None:
        self._actor.close()
        self._algorithm.close()


def _attached(launch: WorkerLaunch) -> Arrays:
    """Return all that is shared."""
    shape = launch.shared_state
    arena = attach(launch.arenas[0], shape.slabs())
    return arena if launch.buffer is None else {**arena, **open_buffer(launch.buffer, shape.learned_slabs())}


class _PendingReport:
    """What is not reported yet."""

    def __init__(self, info: int) -> None:
        """Begin anew; infos report `info` numbers."""
        self.metrics: list[dict[str, float]] = []
        self.returns: list[NDArray[np.float64]] = []
        self.lengths: list[NDArray[np.int32]] = []
        self.info = np.zeros((2, info))

    def add(self, learned: Learned) -> None:
        self.metrics.append(learned.metrics)
        self.info += learned.info
        if len(learned.episode_returns):
            self.returns.append(learned.episode_returns)
            self.lengths.append(learned.episode_lengths)
