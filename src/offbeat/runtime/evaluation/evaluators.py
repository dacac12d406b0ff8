"""Evaluators: evaluate the weights of a run in a separate process, or in the learner's process."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from time import monotonic
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.config.config import Config
from offbeat.core.closing import close_all, closed_on_error
from offbeat.core.errors import OffbeatError, RunFailed, message_with_notes
from offbeat.core.process.threads import higher_niceness
from offbeat.envs.call_watch import EnvCallWatch
from offbeat.envs.sending import NotSendable
from offbeat.memory.arena import SharedArena
from offbeat.runtime.board import POLL_INTERVAL_S, Bell
from offbeat.runtime.children.child import Child
from offbeat.runtime.children.child_main import Report
from offbeat.runtime.children.launch import sent_code, start_worker
from offbeat.runtime.children.supervisor import Supervisor
from offbeat.runtime.evaluation.evaluator_process import (
    EvaluatorBoard,
    EvaluatorLaunch,
    EvaluatorReport,
    evaluator_board_slabs,
)
from offbeat.runtime.evaluation.plan import EvaluationPlan
from offbeat.runtime.loop.time_limit_warning import EndlessEpisodes
from offbeat.runtime.main_thread import MainThreadWatch
from offbeat.runtime.reporting import Reporting
from offbeat.workers.episodes import Evaluation

Vectors = Mapping[str, NDArray[np.float32]]
"""The weights of each policy, by its name, in the layout of `published_layout`."""


class Result(NamedTuple):
    """The result of an evaluation."""

    evaluation: Evaluation | None
    """None if the evaluation failed."""
    seconds: float
    failure: str = ""
    """The reason of the failure, for the user."""
    details: str = ""
    """The traceback, for the log."""
    waited_s: float = 0.0
    """Seconds of these in which an evaluator with a process of its own waited for a core."""


class InlineEvaluator:
    """Evaluates in this process. An env that hangs or crashes then stops the run."""

    concurrent = False
    """Whether the learner can continue during an evaluation."""
    restarts = 0
    """Number of restarts of the evaluator's process."""

    def __init__(self, plan: EvaluationPlan, watch: EnvCallWatch, on_endless: Callable[[int], None]) -> None:
        """Make the policies. `watch` is that of the env calls; `on_endless` as for `make_evaluator`."""
        self._plan, self._policies, self._watch = plan, plan.make_policies(), watch
        self._on_endless = on_endless

    def start(self, vectors: Vectors) -> None:
        """Start to evaluate weights. No evaluation may be running."""
        for name, policy in self._policies.items():
            policy.load(vectors[name].copy())

    def poll(self, seconds: float, on_step: Callable[[], None]) -> Result:  # noqa: ARG002 - it evaluates to the end
        """Return the result of the running evaluation. If `on_step` raises, the evaluation is abandoned."""
        started, is_in_run = monotonic(), False
        find_endless = EndlessEpisodes(self._plan.trials, self._on_endless)

        def call_run(ended: int) -> None:
            nonlocal is_in_run
            is_in_run = True
            find_endless(ended)
            on_step()
            is_in_run = False

        try:
            with ExitStack() as closing:
                evaluation = self._plan.evaluate(self._policies, closing, watch=self._watch, on_step=call_run)
                self._watch.enter(resets=True)  # to close the envs
        except OffbeatError as error:  # of the env, or of a policy
            if is_in_run:
                raise
            return Result(
                None, monotonic() - started, message_with_notes(error), "".join(traceback.format_exception(error))
            )
        finally:
            self._watch.leave()
        return Result(evaluation, monotonic() - started)

    def close(self) -> None:
        """Do nothing: no process was started."""


class ProcessEvaluator:
    """Evaluates in a separate process, which is started when needed and supervised like an actor process."""

    def __init__(
        self,
        plan: EvaluationPlan,
        config: Config,
        reporting: Reporting,
        on_endless: Callable[[int], None],
        *,
        cores: set[int],
        threads: int,
        concurrent: bool,
    ) -> None:
        """Make an evaluator.

        Args:
            plan: the plan of the evaluations.
            config: the config of the run.
            reporting: is notified of restarts, and of the process.
            on_endless: as for `make_evaluator`.
            cores: cores that the process may use: those of this one before the learner was pinned to some of them.
            threads: number of threads for BLAS and torch.
            concurrent: whether the learner continues during an evaluation; the process then has a higher niceness.

        Raises:
            NotSendable: the env or an encoder cannot be sent to another process.
        """
        self._code = sent_code(plan)
        self._plan, self._config = plan, config
        self._threads, self.concurrent = threads, concurrent
        self._nice = higher_niceness() if concurrent else None
        self._cores = cores
        self._arena = SharedArena(evaluator_board_slabs(plan.policies))
        with closed_on_error([self._arena]):
            self._board = EvaluatorBoard(self._arena.arrays, plan.policies)
            self._bell, self._own_bell = Bell.make_several(2)
        self._supervisor = Supervisor(
            self._start,
            self._board,
            config.runtime,
            reporting,
            role="evaluator",
            work="evaluation",
            changes_result=False,
        )
        self._on_endless = on_endless
        self._results: list[EvaluatorReport] = []
        self._started = 0.0

    @property
    def restarts(self) -> int:
        """Number of restarts of the process."""
        return self._supervisor.restarts

    def start(self, vectors: Vectors) -> None:
        """Start to evaluate weights. No evaluation may be running."""
        self._started = monotonic()
        for name, vector in self._board.vectors.items():
            vector[:] = vectors[name]
        self._board.requested[0] += 1
        with suppress(OSError):  # `poll` tries it once more; if that fails too, the evaluation fails
            self._supervisor.ensure_started()
        self._bell.ring()

    def _start(self, index: int, attempt: int) -> Child:
        raised = any((child.process.returncode or 0) > 0 for child in self._supervisor.processes)
        launch = EvaluatorLaunch(
            index=index,
            attempt=attempt if raised else 0,
            code=self._code,
            cores=self._cores,
            threads=self._threads,
            own_bell=self._bell.reader,
            plan=self._plan,
            runtime=self._config.runtime,
            number=int(self._board.next[0][0]),
            nice=self._nice,
            arena=self._arena.fd,
        )
        return start_worker(
            "offbeat.runtime.evaluation.evaluator_process",
            launch,
            [launch.arena],
            self._own_bell.ring,
            self._on_report,
        )

    def _on_report(self, report: Report) -> None:
        if report.kind == "endless":
            self._on_endless(report.content)
        else:
            self._results.append(report.content)

    def poll(self, seconds: float, on_step: Callable[[], None]) -> Result | None:
        """Return the result of the running evaluation; None if it does not end within about `seconds`.

        `on_step` is called repeatedly while this waits. If it raises, the wait ends and the evaluation is abandoned.
        """
        deadline = monotonic() + seconds
        while True:
            for child in self._supervisor.processes:
                child.take_reports()
            number = int(self._board.requested[0]) - 1
            if done := next((done for done in self._results if done.number == number), None):
                self._results.clear()  # a restarted process may have repeated an earlier evaluation
                return Result(done.evaluation, done.seconds, waited_s=done.waited_s)
            try:
                self._supervisor.ensure_started()
                self._supervisor.watch()
            except RunFailed as error:
                return self._failed(message_with_notes(error), str(error.__cause__ or ""))
            except OSError as error:
                return self._failed(f"its process could not be started ({error.strerror or error})")
            if (left := deadline - monotonic()) <= 0:
                return None
            on_step()
            self._own_bell.sleep(min(left, POLL_INTERVAL_S))

    def _failed(self, reason: str, details: str = "") -> Result:
        """Return the result of an evaluation that has failed."""
        self._board.next[0][0] = self._board.requested[0]  # the next process does not repeat it
        return Result(None, monotonic() - self._started, reason, details)

    def close(self) -> None:
        self._board.close([self._bell])
        close_all((self._arena, self._bell, self._own_bell, self._supervisor))


Evaluator = InlineEvaluator | ProcessEvaluator


def make_evaluator(
    plan: EvaluationPlan,
    config: Config,
    reporting: Reporting,
    main_thread: MainThreadWatch,
    on_endless: Callable[[int], None],
    *,
    cores: set[int],
    threads: int,
    concurrent: bool,
) -> Evaluator:
    """Make the evaluator of a run. It evaluates in this process if code cannot be sent to another one.

    `main_thread` watches this process. `on_endless` is called once in an evaluation in which no episode ends for long,
    with the env steps of each env. The other arguments are those of `ProcessEvaluator`.
    """
    if config.run.evaluator == "inline":
        remedy = ". With --set evaluator=process it would not stop the run"
        return InlineEvaluator(plan, main_thread.env_calls(reporting.notify, remedy), on_endless)
    try:
        return ProcessEvaluator(
            plan, config, reporting, on_endless, cores=cores, threads=threads, concurrent=concurrent
        )
    except NotSendable as error:
        reporting.notify(
            f"evaluations run in the learner's process, where an env that hangs stops the run: {error.reason}"
        )
        return InlineEvaluator(plan, main_thread.env_calls(reporting.notify), on_endless)
