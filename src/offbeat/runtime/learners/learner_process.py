"""The main function of a learner process: makes the same learning steps as rank 0, until the board is closed.

It reads the slots and replays in the run's arena, which actors write. It publishes weights to private memory only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import sleep
from typing import Any, NamedTuple

from offbeat.algorithms.base import Algorithm
from offbeat.config.config import Config
from offbeat.core.errors import Closed
from offbeat.core.process.threads import set_thread_count
from offbeat.core.types import Array, Tree
from offbeat.memory.arena import attach, private_arena
from offbeat.memory.weights import Weights, weight_slabs
from offbeat.metrics.timings import Timings
from offbeat.models.published import published_layout
from offbeat.runtime.assembly import learner_of
from offbeat.runtime.board import POLL_INTERVAL_S, Bell
from offbeat.runtime.children.child_main import ChildContext
from offbeat.runtime.children.launch import LaunchSpec, prepare_process
from offbeat.runtime.devices import device_of, set_up_device
from offbeat.runtime.gate import PaceBoard
from offbeat.runtime.learners.board import LearnersBoard, learners_board_slabs
from offbeat.runtime.learners.collective import make_collective
from offbeat.runtime.learners.distributed import join_store
from offbeat.runtime.plan import Plan, PolicyPlan
from offbeat.workers.learner import Learner
from offbeat.workers.learner_pool import LearnerPool

COMMITS_POLL_S = 0.002
"""Seconds between two checks of a loader whether its tickets are committed. Actors ring only the bell of rank 0."""


class LearnerState(NamedTuple):
    """The state of the learner of one policy, from which a learner process continues. The rows are in the arena."""

    weights: Mapping[str, Array]
    learner: Mapping[str, Any]
    memory_state: Mapping[str, Any]
    """What its feed needs to use these rows: see `Feed.memory_state`."""


@dataclass(frozen=True, kw_only=True)
class LearnerLaunch(LaunchSpec):
    """The launch spec of a learner process. `index` is its rank."""

    config: Config
    """The config of this learner: see `Config.of_learner`."""
    plan: Plan
    algorithm: type[Any]
    """The algorithm's class."""
    step: int
    """The first learning step."""
    states: dict[str, LearnerState]
    """The state of each policy that learns, by name. The process removes each before it restores it."""
    run_arena: int
    """File descriptor of the run's arena; inherited, with the same number, like the next two."""
    learners_arena: int
    """File descriptor of the arena with the board of the learners."""
    bells: tuple[int, ...]
    """File descriptors that ring the bells of the learners, by rank."""
    port: int | None
    """Port of the store of torch.distributed on this machine, if the learners exchange rows with NCCL."""


def main(launch: LearnerLaunch, child: ChildContext) -> None:
    """Make learning steps until the board is closed."""
    prepare_process(launch, nice=launch.config.runtime.learner_nice)
    set_thread_count(launch.threads)
    set_up_device(launch.config)
    process = LearnerProcess(launch)
    child.closing.callback(process.close)
    child.report("ready", None)
    process.work()


class LearnerProcess:
    """The learners of all policies in one learner process."""

    def __init__(self, launch: LearnerLaunch) -> None:
        count = len(launch.bells)
        self._launch, self._rank = launch, launch.index
        self._board = LearnersBoard(attach(launch.learners_arena, learners_board_slabs(count)), count)
        self._deadline = self._board.worker_deadline(self._rank, launch.config.runtime)
        self._bells = [Bell(-1, writer) for writer in launch.bells]
        self._bells[self._rank] = Bell(launch.own_bell, -1)
        store = None if launch.port is None else join_store(launch.port, count)
        self._collective = make_collective(
            launch.config, self._board, self._rank, self._bells, store, self._deadline.check, Timings()
        )
        self._algorithms: list[Algorithm] = []
        arrays = attach(launch.run_arena, launch.plan.slabs())
        self._actors = PaceBoard(arrays, launch.config.runtime.actors)
        learners = {
            plan.name: self._make_learner(plan, index, arrays)
            for index, plan in enumerate(launch.plan.policies)
            if plan.trained
        }
        self._pool = LearnerPool(learners, Timings(), 1, self._wait_for_commits)

    def _make_learner(self, plan: PolicyPlan, index: int, arrays: Tree) -> Learner:
        """Make the learner of a policy, which continues from its state."""
        launch = self._launch
        own, state = launch.config.of_policy(plan.name), launch.states.pop(plan.name)
        algorithm: Algorithm = launch.algorithm.for_run(own, plan.spec, device_of(own), None)
        algorithm.collective = self._collective
        algorithm.load_weights(state.weights)
        self._algorithms.append(algorithm)
        weights = Weights(private_arena(weight_slabs(published_layout(plan.spec).size, versions=1)))
        learner = learner_of(own, algorithm, plan.slots(arrays), weights, Timings(), policy_index=index)
        learner.restore(state.learner)
        learner.feed.attach_memory(state.memory_state)
        return learner

    def work(self) -> None:
        """Make each learning step that rank 0 requests.

        Raises:
            Closed: the run is ending.
        """
        board, step = self._board, self._launch.step
        while True:
            self._deadline.check()
            while board.requested[0] <= step:
                self._bells[self._rank].sleep(POLL_INTERVAL_S)
                self._deadline.check()
            self._pool.learn(step, float(board.progress[0]))
            step += 1
            board.next[self._rank][0] = step
            self._bells[0].ring()

    def _wait_for_commits(self, tickets: int, closed: Callable[[], bool]) -> None:
        """Wait until tickets 0 .. tickets-1 are committed, in the thread of a loader: see `WaitForCommits`."""
        while self._actors.acted < tickets:
            if closed():
                raise Closed
            sleep(COMMITS_POLL_S)

    def close(self) -> None:
        self._pool.close()
        self._collective.close()
        for algorithm in self._algorithms:
            algorithm.close()
