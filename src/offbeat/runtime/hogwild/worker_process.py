"""A worker process of a lock-free run: acts and learns in turns, with its own envs and memory.

A single worker acts and learns in the same order as the serial runtime. It ends when the board is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter as clock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.config.config import Config
from offbeat.core.process.threads import core_of, set_thread_count
from offbeat.core.types import Tree
from offbeat.memory.arena import attach
from offbeat.metrics.timings import Timings
from offbeat.runtime.assembly import learner_of
from offbeat.runtime.board import POLL_INTERVAL_S, Bell
from offbeat.runtime.children.child_main import ChildContext
from offbeat.runtime.children.launch import LaunchSpec, prepare_process
from offbeat.runtime.devices import device_of, set_up_device
from offbeat.runtime.hogwild.board import WorkersBoard, WorkerUpdateCounter
from offbeat.runtime.hogwild.device_buffer import open_buffer
from offbeat.runtime.hogwild.shared_state import Arrays, SharedStateShape, SharedStorage
from offbeat.runtime.links import TurnsLink
from offbeat.runtime.make_actor import make_actor, start_actor
from offbeat.runtime.plan import ActorSnapshot, Plan
from offbeat.workers.actor import Actor
from offbeat.workers.learner import Learned

REPORT_EVERY_S = 0.2
"""Minimum seconds between two progress reports."""


class WorkerState(NamedTuple):
    """The state of a paused worker, from which a worker can continue."""

    learner: Mapping[str, Any]
    actor: ActorSnapshot
    priorities: Tree
    """Priorities of its replay; empty if the replay has none. The rows are in the worker's memory."""


@dataclass
class WorkerReport:
    """A progress report of a worker: the learning steps since its last report."""

    info: NDArray[np.float64]
    """[2, K]: sums and counts of the numbers in infos."""
    metrics: list[dict[str, float]] = field(default_factory=list)
    """Metrics of each step. The first report of a process starts with the size of its replay."""
    returns: list[NDArray[np.float64]] = field(default_factory=list)
    """Returns of the episodes that ended, one array per step with such episodes."""
    lengths: list[NDArray[np.int32]] = field(default_factory=list)
    """Lengths of the same episodes."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by activity; set when it is sent."""
    stall: float = 0.0
    """Duration of the longest env call so far, in seconds; set when it is sent."""

    def add(self, learned: Learned) -> None:
        """Add a learning step."""
        self.metrics.append(learned.metrics)
        self.info += learned.info
        if len(learned.episode_returns):
            self.returns.append(learned.episode_returns)
            self.lengths.append(learned.episode_lengths)


@dataclass(frozen=True, kw_only=True)
class WorkerLaunch(LaunchSpec):
    """The launch spec of a worker process."""

    config: Config
    """The config of the whole run."""
    plan: Plan
    shared_state: SharedStateShape
    state: WorkerState | None
    """The state to continue from; None: a new worker, or one that continues from its counters on the board (after a
    death)."""
    algorithm: type[Any]
    """The algorithm's class."""
    state_arena: int
    """File descriptor of the arena of the shared state; inherited, with the same number, like the next one."""
    own_arena: int
    """File descriptor of the arena with the worker's slots and weights."""
    buffer: bytes | None
    """Handle of the device buffer with the learned tensors; None if they are in the arena of the shared state."""


def main(launch: WorkerLaunch, child: ChildContext) -> None:
    """Run a worker until the board is closed."""
    runtime = launch.config.runtime
    prepare_process(launch, core_of(runtime.actor_cores, launch.index), runtime.actor_nice)
    set_thread_count(launch.threads)
    set_up_device(launch.config)
    worker = Worker(launch, child.report)
    child.closing.callback(worker.close)
    worker.start(launch.state)
    worker.work()


class Worker:
    """A worker: an actor and a learner that take turns."""

    def __init__(self, launch: WorkerLaunch, report: Callable[[str, Any], None]) -> None:
        plan, index = launch.plan, launch.index
        config, runtime = launch.config.of_worker(index), launch.config.runtime
        shared_state = _attached(launch)
        arrays = attach(launch.own_arena, plan.slabs())
        self._launch, self._report = launch, report
        self._board = WorkersBoard(shared_state, launch.shared_state.workers)
        self._bell = Bell(launch.own_bell, -1)
        self._deadline = self._board.worker_deadline(index, runtime)
        storage = SharedStorage(launch.shared_state, shared_state, index)
        self._algorithm = launch.algorithm.for_run(config, plan.policy.spec, device_of(config), storage)
        counter = WorkerUpdateCounter(self._board, index, self._deadline.renew)
        memory, self._timings = plan.memory(arrays), Timings()
        self._learner = learner_of(config, self._algorithm, *memory.policies[0], self._timings, counter)
        self._counters = self._board.counters_of(index)
        self._link = TurnsLink(plan.pace, memory, self._counters.learning_steps)
        self._actor = self._make_actor(newest_weights=not storage.separate)
        self._pending, self._reported_at = WorkerReport(np.zeros((2, len(plan.policy.env_spec.info)))), clock()

    def _make_actor(self, *, newest_weights: bool) -> Actor:
        """Make the actor; `newest_weights`: it acts with the newest shared weights, not with those of its ticket."""
        plan = self._launch.plan
        renew = self._algorithm.write_published if newest_weights else None
        self._deadline.enter(resets=True)  # making envs may take as long as a reset
        actor = make_actor(plan, 0, self._link.origin, self._deadline, self._launch.attempt, renew)
        self._deadline.leave()
        return actor

    # --- start ----------------------------------------------------------------------------------------------

    def start(self, state: WorkerState | None) -> None:
        """Continue from a state; without one, start new or continue for a dead worker from its replay and counters."""
        step, feed = self._counters.learning_steps, self._learner.feed
        if state is None:
            feed.recover(step, self._counters.ratio, self._updates_made)
        else:
            self._learner.restore_own(state.learner)  # shared tensors and statistics are in the shared state
            feed.attach_worker_memory(state.learner, state.priorities, step, self._counters.ratio, self._updates_made)
            self._publish_counters()
        self._pending.metrics.append(feed.sizes())  # the worker may pause before its first learning step
        progress = self._learner.progress if state else min(1.0, self._board.env_steps / self._launch.config.run.steps)
        self._learner.publish(step, progress)
        start_actor(self._launch.plan, self._actor, self._link.origin, state.actor if state else None, progress)
        self._report("ready", None)

    @property
    def _updates_made(self) -> int:
        """Number of updates of this worker, including those of its processes that died."""
        return int(self._board.updates[self._launch.index, 0])

    # --- the loop -------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Act and learn in turns; pause while the total env steps of all workers are at or above the limit.

        Raises:
            Closed: the board is closed.
        """
        while True:
            env_steps, limit = self._board.env_steps, int(self._board.limit[0])
            if env_steps >= limit:
                self._pause(limit)
                continue
            step = self._counters.learning_steps
            while self._link.may_act:
                work = self._link.next()
                self._actor.act(work)
                self._link.commit(work, self._actor.timings, self._actor.longest_stall)
            learned = self._learner.learn(step, min(1.0, env_steps / self._launch.config.run.steps))
            self._count(learned)
            self._link.learned = step + 1
            if clock() > self._reported_at + REPORT_EVERY_S:
                self._report_progress()

    def _count(self, learned: Learned) -> None:
        before = self._counters
        self._counters = before._replace(
            learning_steps=before.learning_steps + 1,
            env_steps=before.env_steps + learned.env_steps,
            agent_steps=before.agent_steps + learned.agent_steps,
        )
        self._publish_counters()
        self._pending.add(learned)

    def _publish_counters(self) -> None:
        """Write the counters of this worker to the board, with those for its replay's update ratio."""
        self._counters = self._counters.with_ratio(self._learner.feed.ratio(self._updates_made))
        self._board.set_counters(self._launch.index, self._counters)

    def _pause(self, limit: int) -> None:
        """Report the worker's state, and wait until the board has another limit.

        Raises:
            Closed: the board is closed.
        """
        self._report_progress()
        self._deadline.renew()
        self._report("paused", (limit, self._state()))
        while self._board.limit[0] == limit:
            self._deadline.check()
            self._bell.sleep(POLL_INTERVAL_S)
        self._deadline.renew()

    def _state(self) -> WorkerState:
        learner = self._learner.state()
        if self._launch.shared_state.share_moments:
            learner["adam"] = {}  # saved once, with the shared state
        return WorkerState(learner, self._actor.snapshot(), self._learner.feed.priorities())

    # --- reports --------------------------------------------------------------------------------------------

    def _report_progress(self) -> None:
        """Report the learning steps since the last report."""
        self._reported_at = clock()
        timings = Timings()
        timings.merge(self._timings.seconds)
        timings.merge(self._actor.timings.seconds)
        self._timings.seconds.clear()
        self._actor.timings.seconds.clear()
        report, self._pending = self._pending, WorkerReport(np.zeros_like(self._pending.info))
        report.seconds, report.stall = timings.seconds, self._actor.longest_stall
        self._report("progress", report)

    def close(self) -> None:
        self._actor.close()
        self._algorithm.close()


def _attached(launch: WorkerLaunch) -> Arrays:
    """Return the arrays of the shared state, with the tensors of the device buffer if there is one."""
    shape = launch.shared_state
    arena = attach(launch.state_arena, shape.slabs())
    return arena if launch.buffer is None else {**arena, **open_buffer(launch.buffer, shape.learned_slabs())}
