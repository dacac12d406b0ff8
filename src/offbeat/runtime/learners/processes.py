"""The learners of a run with several devices: the learner pool of this process is rank 0, the others are processes.

Rank 0 requests each learning step before it starts its own, and waits at its end until all have finished it: until then
they may read the slots. A learner process that dies or hangs ends the run; it is not restarted, because the others are
in the middle of an update. The last checkpoint is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from time import monotonic
from time import perf_counter as clock

from offbeat.core.closing import Closable, close_all, closed_on_error
from offbeat.core.errors import RunFailed
from offbeat.core.process.threads import usable_core_numbers, write_blas_memory
from offbeat.memory.arena import SharedArena
from offbeat.metrics.timings import EXCHANGE, UPDATE
from offbeat.runtime.acting import Acting
from offbeat.runtime.board import POLL_INTERVAL_S, Bell
from offbeat.runtime.children.child import Child
from offbeat.runtime.children.launch import sent_algorithm, sent_code, start_worker
from offbeat.runtime.children.supervised import LossWatch, failure_of, start_failure, traceback_of, wait_until_ready
from offbeat.runtime.deadline import Span, start_timeout
from offbeat.runtime.learners.board import LearnersBoard, learners_board_slabs
from offbeat.runtime.learners.collective import make_collective
from offbeat.runtime.learners.distributed import host_store, uses_nccl
from offbeat.runtime.learners.learner_process import LearnerLaunch, LearnerState
from offbeat.runtime.parts import PacedParts, PacedPolicy
from offbeat.runtime.reporting import Reporting
from offbeat.workers.learner import Learned
from offbeat.workers.learner_pool import LearnerPool

CLOSE_S = 1.0
"""Seconds that learner processes get to end by themselves at the end of the run. They have nothing to save."""


class LearnerProcesses:
    """See the module's docstring. It has the methods of a `LearnerPool`."""

    def __init__(self, parts: PacedParts, pool: LearnerPool, reporting: Reporting) -> None:
        """Make the learners; `start` starts the processes.

        Args:
            parts: the parts of the run.
            pool: the learners of this process.
            reporting: is notified of the processes, and of a slow start.

        Raises:
            ConfigError: the env, an encoder or the algorithm cannot be sent to another process.
        """
        self._runtime = parts.config.runtime
        self._code, self._algorithm = sent_code(parts.plan), sent_algorithm(parts.config)  # first: they may raise
        assert parts.arena is not None
        self._parts, self._pool, self._reporting = parts, pool, reporting
        self._run_arena = parts.arena
        self._cores = usable_core_numbers()
        count = self._runtime.learners
        self._devices = self._runtime.devices or ()
        self._children: list[Child] = []
        self._arena = SharedArena(learners_board_slabs(count))
        made: list[Closable] = [self._arena]
        with closed_on_error(made):
            self._board = LearnersBoard(self._arena.arrays, count)
            self._losses = LossWatch[Child](self._board)
            self._bells = Bell.make_several(count)
            made += self._bells
            self._store = host_store(count) if uses_nccl(self._devices) else None
            self._collective = make_collective(
                parts.config, self._board, 0, self._bells, self._store, self._check, parts.timings
            )
        self._alone = [policy.algorithm.collective for policy in parts.trained]
        """The collectives of rank 0 without the other learners."""

    # --- start and end --------------------------------------------------------------------------------------

    def start(self, step: int) -> None:
        """Start the processes from the present state of the learners; `step`: the next learning step.

        Raises:
            RunFailed: a process could not be started.
        """
        for row in (self._board.requested, *self._board.next):
            row[0] = step
        states = {policy.name: _state_of(policy) for policy in self._parts.trained}
        for rank in range(1, self._runtime.learners):
            try:
                self._children.append(self._start(rank, step, states))
            except OSError as error:
                raise start_failure(f"learner {rank}", error) from error
        self._reporting.processes_changed("learner", self._children)
        for policy in self._parts.trained:
            policy.algorithm.collective = self._collective
        wait_until_ready(self._children, self.watch, self._reporting.notify, "other learner", len(self._children))

    def _start(self, rank: int, step: int, states: dict[str, LearnerState]) -> Child:
        self._board.deadlines[rank].set(Span.START, start_timeout(self._runtime))
        config = self._parts.config.of_learner(rank)
        launch = LearnerLaunch(
            index=rank,
            attempt=0,
            code=self._code,
            cores=self._runtime.cores_of_learner(rank) or self._cores,
            threads=self._parts.blas_threads,
            own_bell=self._bells[rank].reader,
            config=config,
            plan=self._parts.plan,
            algorithm=self._algorithm,
            port=self._store.port if self._store else None,
            step=step,
            states=states,
            run_arena=self._run_arena.fd,
            learners_arena=self._arena.fd,
            bells=tuple(bell.writer for bell in self._bells),
        )
        inherited = (launch.run_arena, launch.learners_arena, *launch.bells)
        return start_worker("offbeat.runtime.learners.learner_process", launch, inherited, self._bells[0].ring)

    def close(self) -> None:
        """End the processes."""
        self._board.close(self._bells[1:])
        deadline = monotonic() + CLOSE_S
        for child in self._children:
            child.exits_within(max(0.0, deadline - monotonic()))
        for policy, alone in zip(self._parts.trained, self._alone, strict=True):
            policy.algorithm.collective = alone
        with ExitStack() as closing:
            closing.callback(close_all, (self._arena, *self._bells, self._pool, self._collective))
            for child in self._children:
                closing.callback(child.kill)
        del self._collective  # it refers to this object, which refers to the memory of the run

    # --- learning steps -------------------------------------------------------------------------------------

    def learn(self, step: int, progress: float) -> list[Learned]:
        """Make learning step `step` of each policy, in all processes; return the results of this process.

        Raises:
            RunFailed: a learner process has died or hangs.
        """
        self._board.progress[0] = progress
        self._board.requested[0] = step + 1
        for bell in self._bells[1:]:
            bell.ring()
        results = self._pool.learn(step, progress)
        self._board.next[0][0] = step + 1
        self._wait_for_others(step + 1)
        return results

    def _wait_for_others(self, learned: int) -> None:
        """Wait until all learners have finished this number of learning steps."""
        started = clock()
        while min(int(row[0]) for row in self._board.next) < learned:
            self._bells[0].sleep(POLL_INTERVAL_S)
            self._check()
        waited = clock() - started
        for name in ("learn", UPDATE, EXCHANGE):
            self._parts.timings.add(name, waited)

    def _check(self) -> None:
        """Check the other learners: at the start of each exchange, and while this one waits for them.

        In such a wait it is they who may hang, and not this thread.
        """
        self.watch()
        require_same_exchanges(self._board)
        self._parts.main_thread.renew()

    def watch(self) -> None:
        """Check that all learner processes are alive and make progress. Also called while the run waits for actors.

        Raises:
            RunFailed: one has died or hangs.
        """
        for child, reason in self._losses.lost(self._children):
            raise self._failure(child, reason)

    def _failure(self, child: Child, reason: str) -> RunFailed:
        """Return the error for a learner process that has ended."""
        rank, where = child.index, "at its start"
        if child.ready:
            step, exchanges = int(self._board.next[rank][0]), int(self._board.gathered[rank])
            where = f"in learning step {step} after {exchanges} exchanges with the other learners were started"
        summary, _, lines = (child.no_restart_reason or child.explained).partition("\n")
        why = f": {summary}" if summary else ""
        error = failure_of(
            f"learner {rank} on {self._devices[rank]} (process {child.pid}) {reason}, {where}{why}", lines
        )
        error.__cause__ = traceback_of(child)
        return error


def require_same_exchanges(board: LearnersBoard) -> None:
    """Check that no learner waits for an exchange with one that has finished the learning step.

    Raises:
        RunFailed: one does.
    """
    finished, made = board.finished_and_gathered()
    if exchanges_differ(finished, made):
        raise RunFailed(
            f"the learners have exchanged rows a different number of times by the end of learning step "
            f"{board.requested[0] - 1} ({', '.join(map(str, made))}): they have not made the same updates. "
            "Train with one device, and report this as a bug"
        )


def exchanges_differ(finished: Sequence[bool], made: Sequence[int]) -> bool:
    """Whether a learner has finished the learning step with fewer exchanges than another has started.

    Args:
        finished: for each learner, whether it has finished the learning step.
        made: for each learner, the number of exchanges that it has started, read after `finished`.
    """
    final = [count for count, is_final in zip(made, finished, strict=True) if is_final]
    return bool(final) and min(final) < max(made)


def _state_of(policy: PacedPolicy) -> LearnerState:
    """Return the present state of the learner of a policy."""
    learner = policy.learner
    return LearnerState(policy.algorithm.weights(), learner.state(with_rows=False), learner.feed.memory_state())


def learners_of(parts: PacedParts, acting: Acting, reporting: Reporting) -> LearnerPool | LearnerProcesses:
    """Make the learners of a run: in this process, and with several devices in a process for each further device.

    Args:
        parts: the parts of the run.
        acting: its actors.
        reporting: is notified of learner processes.

    Raises:
        ConfigError: the env or the algorithm cannot be sent to another process.
        RunFailed: a thread cannot be started.
    """
    runtime, learners = parts.config.runtime, {policy.name: policy.learner for policy in parts.policies}
    if runtime.learning_threads > 1:
        write_blas_memory(threads=runtime.learning_threads * parts.threads)
    pool = LearnerPool(
        learners, parts.timings, runtime.learning_threads, acting.wait_for_commits, runtime.stall_timeout_s
    )
    if runtime.learners == 1:
        return pool
    with closed_on_error([pool]):
        return LearnerProcesses(parts, pool, reporting)
