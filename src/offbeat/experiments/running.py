"""Runs jobs in parallel, one process each, shows their progress and stops them together."""

from __future__ import annotations

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, Self

from offbeat.core.argument_notation import printable
from offbeat.core.errors import ConfigError, type_and_text
from offbeat.core.process.kills import signal_name
from offbeat.core.process.stop_signals import StopRequest, replaceable_handlers
from offbeat.experiments.jobs import Job
from offbeat.experiments.launching import KILL_S, End, JobProcess, Launcher
from offbeat.experiments.progress import JobCounts, JobProgress, JobsView
from offbeat.metrics.text import duration

_TICK_S = 0.1
_END_TIMEOUT_S = 15.0
"""Maximum seconds until the jobs of a killed experiment have ended by themselves."""
_UNLOCK_TIMEOUT_S = 180.0
"""Maximum seconds until the process of a job on a lost node has ended. File servers keep its lock for a while."""
_TAIL = 4096
"""Bytes at the end of a log in which its last message is searched for."""
_TRACEBACK = ("Traceback (", '  File "')
"""How the first line of a traceback starts; a syntax error has only the second one."""
RESTARTS_AFTER_LOST_NODE = 3
"""Times that a job is started again because its node was lost."""


@dataclass(frozen=True)
class JobOutcome:
    """How a job ended."""

    job: Job
    state: Literal["finished", "interrupted", "pruned", "failed"]
    reason: str
    killed: bool = False
    """Whether a signal ended the process, which is not the fault of the run."""


class StopSignals:
    """While entered, a stop signal requests a stop. A second signal raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self._request = StopRequest()
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = replaceable_handlers()
            for number in self._previous:
                signal.signal(number, self._stop)
        return self

    @property
    def requested(self) -> bool:
        """Whether a signal was received."""
        return self._request.signal is not None

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        if self._request.take(number) == "second":
            raise KeyboardInterrupt

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


class Child:
    """A job and its process."""

    def __init__(self, job: Job, launch: Callable[[], JobProcess]) -> None:
        """Start the process of a job with `launch`."""
        self.job, self._earlier_status = job, job.run.read_status()
        self._process = launch()
        self._started = time.monotonic()
        self._stopped: Literal["interrupted", "pruned"] | None = None
        """The state of its outcome after `stop`; None before."""

    def progress(self) -> JobProgress:
        """Return the progress of the job."""
        job = self.job
        state = "stopping" if self._stopped else "waiting" if self._process.is_waiting else ""
        if job.activity:
            return JobProgress(job.name, job.steps, {}, state or job.activity, trains=False)
        return JobProgress(job.name, job.steps, job.last_line(), state or self._phase(), time_s=job.time_s)

    def _phase(self) -> str:
        """Return the phase of the run; '' if it is training, "ending" if it has ended but its process has not."""
        status = self.job.run.read_status()
        if status == self._earlier_status:  # the status is that of an earlier process
            return "starting"
        phase = status.get("phase")
        if not isinstance(phase, str):  # the run has ended
            return "ending"
        return "" if phase == "training" else printable(phase)

    def poll(self) -> End | None:
        """Return how the process ended; None while it runs."""
        return self._process.poll()

    def stop(self, outcome: Literal["interrupted", "pruned"] = "interrupted") -> None:
        """Let the process save a checkpoint and end, with this outcome."""
        if not self._stopped:
            self._stopped = outcome
            self._process.terminate()

    def kill(self) -> None:
        """Kill the process, without waiting for its end."""
        self._process.kill()

    def close(self, timeout_s: float = KILL_S) -> str:
        """Wait for the end of the process; return a message if it was killed and does not end."""
        if not (which := self._process.close(timeout_s)):
            return ""
        return (
            f"{self.job.name}: {which} was killed, but has not ended within {KILL_S:g} s: it may wait for a disk "
            "or a device that does not answer"
        )

    def outcome(self, end: End) -> JobOutcome:
        """Return how the job ended, from its files and the end of its process."""
        job = self.job
        if job.status() == "finished":
            return JobOutcome(job, "finished", f"{job.summary()} in {duration(time.monotonic() - self._started)}")
        if self._stopped and (end.node_lost or end.code in (0, 130, -signal.SIGTERM)):
            return JobOutcome(job, self._stopped, job.summary())
        return JobOutcome(job, "failed", end.reason or self._failure(end.code), killed=end.node_lost or end.code < 0)

    def _failure(self, code: int) -> str:
        status = self.job.run.read_status()
        if code < 0:
            return f"its process was killed by {signal_name(-code)}"
        written = status != self._earlier_status  # else the status is that of an earlier process
        if written and status.get("state") in ("failed", "interrupted") and status.get("reason"):
            return str(status["reason"])
        return f"exit code {code}: {_last_message(self.job.log)}"


def _last_message(log: Path) -> str:
    """Return the last message of offbeat since the last start that a traceback follows; or else the last line.

    Other messages may be warnings, which do not say why the process has ended. Only the end of the log is read: an env
    may have printed very much. A log of another machine may not be seen here yet.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            printed = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"its log cannot be read ({error.strerror})"
    since_start = takewhile(lambda line: not line.startswith("$ offbeat "), reversed(printed))
    lines = [line for line in since_start if line.strip()]
    explained = [
        line for after, line in pairwise(lines) if after.startswith(_TRACEBACK) and line.startswith("offbeat: ")
    ]
    return (explained or lines or ["it printed nothing"])[0].removeprefix("offbeat: ")


class JobSchedule(ABC):
    """Chooses the job that starts next."""

    @abstractmethod
    def prepare_next(self) -> Job | None:
        """Return a job that can start now; None if none can before another one has ended."""

    def ended(self, outcome: JobOutcome) -> None:  # noqa: B027 - by default, nothing depends on it
        """Take the outcome of a job that has ended."""

    def restart(self, outcome: JobOutcome) -> bool:  # noqa: ARG002 - by default, no job is
        """Return whether `prepare_next` returns a job that failed again. Then it has not ended."""
        return False

    def prune(self, running: Sequence[Job]) -> Sequence[Job]:  # noqa: ARG002 - by default, no job is
        """Return the running jobs that end early, because nothing needs what they would still learn."""
        return ()


class _Queue(JobSchedule):
    """Jobs that start one after the other, each once."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = deque(jobs)

    def prepare_next(self) -> Job | None:
        return self._jobs.popleft() if self._jobs else None


class Pool:
    """Runs jobs, as many at a time as the launcher has room for.

    Args:
        launcher: starts the processes.
        view: The progress view.
        stops: The signals that request a stop.
        counts: Number of jobs of the experiment, including those finished before.
    """

    def __init__(self, launcher: Launcher, view: JobsView, stops: StopSignals, counts: JobCounts) -> None:
        self._launcher, self._view, self._stops = launcher, view, stops
        self._schedule: JobSchedule  # set by `run_from`
        self._next_job: Job | None = None
        """The job that starts next: it waits for room."""
        self._locked: list[_Locked] = []
        self._losses = Counter[str]()
        self.counts = counts
        self.outcomes: list[JobOutcome] = []
        """Outcomes of all jobs that were started here and have ended."""

    @property
    def failed(self) -> tuple[JobOutcome, ...]:
        """The outcomes of those that failed."""
        return tuple(outcome for outcome in self.outcomes if outcome.state == "failed")

    def run(self, jobs: Iterable[Job]) -> None:
        """Run jobs until all have ended. After a stop, running jobs save a checkpoint and no other starts.

        An error, such as a full disk when a job is started, stops them in the same way before it is raised.

        Raises:
            KeyboardInterrupt: a second signal was received; the running jobs were killed.
        """
        self.run_from(_Queue(jobs))

    def run_from(self, schedule: JobSchedule) -> None:
        """Run jobs that depend on each other, until none can start and all have ended. Raises as `run`."""
        self._schedule = schedule
        running = list[Child]()
        try:
            self._start(running)
            while running or self._has_next():
                for child, end in [(child, end) for child in running if (end := child.poll()) is not None]:
                    running.remove(child)
                    self._ended(child, end)
                self._fail_locked()
                self._poll(running)
                self._start(running)
                time.sleep(_TICK_S)
            self._view.clear(self.counts)
        except Exception as error:
            self._end_after(error, running)
            raise
        finally:
            for child in running:
                child.kill()
            deadline = time.monotonic() + KILL_S
            for child in running:
                if still_there := child.close(max(0, deadline - time.monotonic())):
                    self._view.message(still_there)

    def _end_after(self, error: Exception, running: Sequence[Child]) -> None:
        """Let the running jobs save a checkpoint and end, because an error ends the command."""
        if running:
            self._view.message(f"the running sessions save and end, because of {type_and_text(error)}")
        for child in running:
            child.stop()
        while ending := [child for child in running if child.poll() is None]:
            with suppress(Exception):  # it may have raised the error
                self._show(ending)
            time.sleep(_TICK_S)

    # --- starting -------------------------------------------------------------------------------------------

    def _start(self, running: list[Child]) -> None:
        while not self._stops.requested and len(running) < self._launcher.room():
            job = self._next()
            if job is None:
                return
            running.append(self._launched(job))

    def _next(self) -> Job | None:
        """Return a job that can start now: first one whose earlier process has ended meanwhile."""
        for locked in self._locked:
            if not locked.job.is_locked():
                self._locked.remove(locked)
                return locked.job
        job, self._next_job = self._next_job or self._schedule.prepare_next(), None
        return job

    def _has_next(self) -> bool:
        """Return whether a job waits while none runs: for room, or for the end of its earlier process."""
        if self._stops.requested:
            return False
        if not self._locked and self._next_job is None:
            self._next_job = self._schedule.prepare_next()
        return bool(self._locked) or self._next_job is not None

    def _launched(self, job: Job) -> Child:
        if job.status() == "lost":
            renamed = job.rename_lost()
            self._view.message(f"{job.name} had no checkpoint: it was renamed to {renamed} and starts again")
        crashed = "has crashed and " * bool(job.run.crash_message())
        arguments = job.arguments()
        child = Child(job, lambda: self._launcher.launch(job, arguments))
        what = f"{crashed}resumes from its checkpoint" if arguments[0] == "resume" else "starts"
        self._view.message(f"{job.name} {what}: {job.about}")
        return child

    # --- running and ending ---------------------------------------------------------------------------------

    def _poll(self, running: list[Child]) -> None:
        """Stop the jobs if a stop was requested, or else those that are pruned; and show the progress."""
        if self._stops.requested:
            for child in running:
                child.stop()
        else:
            pruned = {job.name for job in self._schedule.prune([child.job for child in running])}
            for child in running:
                if child.job.name in pruned:
                    child.stop("pruned")
        self._show(running)

    def _show(self, running: Sequence[Child]) -> None:
        """Show the progress."""
        self._view.update(lambda: [child.progress() for child in running], self.counts)

    def _ended(self, child: Child, end: End) -> None:
        child.close()
        outcome = child.outcome(end)
        name = child.job.name
        if end.node_lost and outcome.state == "failed" and self._losses[name] < RESTARTS_AFTER_LOST_NODE:
            self._losses[name] += 1
            self._locked.append(_Locked(child.job, time.monotonic() + _UNLOCK_TIMEOUT_S))
            self._view.message(f"{name}: {end.reason}; it starts again")
        elif outcome.state == "failed" and not self._stops.requested and self._schedule.restart(outcome):
            self._view.message(f"{name}: {outcome.reason}; it starts again")
        else:
            self._finish(outcome)

    def _fail_locked(self) -> None:
        """Give up the jobs whose earlier process does not end in time."""
        for locked in [each for each in self._locked if time.monotonic() > each.deadline]:
            if locked.job.is_locked():
                self._locked.remove(locked)
                reason = f"a process on a node that was lost still trains in it after {_UNLOCK_TIMEOUT_S:g} s"
                self._finish(JobOutcome(locked.job, "failed", reason))

    def _finish(self, outcome: JobOutcome) -> None:
        self.count(outcome)
        self._schedule.ended(outcome)

    def count(self, outcome: JobOutcome) -> None:
        """Count the outcome of a job, and print it; also of one that could not start."""
        job = outcome.job
        self.outcomes.append(outcome)
        finished, pruned, failed = (outcome.state == state for state in ("finished", "pruned", "failed"))
        self.counts = replace(
            self.counts,
            finished=self.counts.finished + finished,
            pruned=self.counts.pruned + pruned,
            failed=self.counts.failed + failed,
        )
        where = f" (see {job.log})" if failed and job.log.exists() else ""
        self._view.message(f"{job.name} {outcome.state}: {outcome.reason}{where}")


@dataclass(frozen=True, eq=False)
class _Locked:
    """A job that waits for the end of its earlier process, on a node that was lost."""

    job: Job
    deadline: float
    """Time until which its earlier process may run."""


def wait_until_free(jobs: Sequence[Job], view: JobsView, stops: StopSignals) -> None:
    """Wait for jobs that are still running: those of a killed experiment end by themselves. A stop ends the waiting.

    Raises:
        ConfigError: a job does not end in time.
    """
    notified, deadline = False, time.monotonic() + _END_TIMEOUT_S
    while not stops.requested and (locked := [job for job in jobs if job.is_locked()]):
        if not notified:
            view.message(f"waiting for the processes of an earlier start to end: {', '.join(s.name for s in locked)}")
            notified = True
        if time.monotonic() > deadline:
            raise ConfigError(f"another process is training in {locked[0].run.path}: wait for it, or stop it first")
        time.sleep(_TICK_S)
