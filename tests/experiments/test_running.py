"""The pool that runs jobs: jobs whose node was lost start again, within limits."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from offbeat.core.errors import RunFailed
from offbeat.core.process import kills
from offbeat.experiments import launching, running
from offbeat.experiments.jobs import Job, JobStatus
from offbeat.experiments.launching import End, LocalProcess
from offbeat.experiments.progress import JobCounts, JobsView
from offbeat.experiments.running import (
    RESTARTS_AFTER_LOST_NODE,
    Child,
    JobOutcome,
    JobSchedule,
    Pool,
    StopSignals,
    wait_until_free,
)
from offbeat.run_directory.directory import RunDirectory

LOST = End(1, "the node was lost", node_lost=True)
KILLED = End(-9)


class FakeJob(Job):
    """A job that is finished as soon as a process has ended with exit code 0."""

    steps, about, caller_imports = 1, "a session", ()

    def __init__(self, folder: Path) -> None:
        self.finished, self.locked, self._run = False, False, RunDirectory(folder / "seed-1")

    @property
    def run(self) -> RunDirectory:
        return self._run

    def arguments(self) -> list[str]:
        return ["train"]

    def status(self) -> JobStatus:
        return "finished" if self.finished else "new"

    def is_locked(self) -> bool:
        return self.locked


class FakeProcess:
    """A process that has ended."""

    is_waiting = False

    def __init__(self, job: FakeJob, end: End) -> None:
        job.finished, self._end = end.code == 0, end

    def poll(self) -> End | None:
        return self._end

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def close(self, _timeout_s: float = 0) -> str:
        return ""


class FakeLauncher:
    """Starts processes with given ends; `rooms` are the answers to how many may run at the same time."""

    def __init__(self, ends: Sequence[End], rooms: Sequence[int] = ()) -> None:
        self._ends, self._rooms, self.launched = iter(ends), iter(rooms), 0

    def prepare(self, folder: Path, notify: Callable[[str], None]) -> None: ...

    def room(self) -> int:
        return next(self._rooms, 1)

    def launch(self, job: Job, arguments: Sequence[str]) -> FakeProcess:  # noqa: ARG002
        assert isinstance(job, FakeJob)
        self.launched += 1
        return FakeProcess(job, next(self._ends))


@pytest.fixture
def job(tmp_path) -> Iterator[FakeJob]:
    with patch.object(running, "_TICK_S", 0.0):
        yield FakeJob(tmp_path)


def pool_of(launcher: FakeLauncher) -> Pool:
    return Pool(launcher, JobsView(), StopSignals(), JobCounts(1))


def test_a_job_starts_again_after_each_loss_up_to_the_limit(job):
    pool = pool_of(FakeLauncher([*[LOST] * RESTARTS_AFTER_LOST_NODE, End(0)]))
    pool.run([job])
    assert [outcome.state for outcome in pool.outcomes] == ["finished"]
    job.finished = False
    pool = pool_of(FakeLauncher([LOST] * (RESTARTS_AFTER_LOST_NODE + 1)))
    pool.run([job])
    assert [(outcome.state, outcome.reason, outcome.killed) for outcome in pool.outcomes] == [
        ("failed", "the node was lost", True)
    ]


class UntilNotKilled(JobSchedule):
    """Lets a job start again whenever it was killed."""

    def __init__(self, job: Job) -> None:
        self.waiting, self.states = [job], list[str]()

    def prepare_next(self) -> Job | None:
        return self.waiting.pop() if self.waiting else None

    def ended(self, outcome: JobOutcome) -> None:
        self.states.append(outcome.state)

    def restart(self, outcome: JobOutcome) -> bool:
        self.waiting.append(outcome.job)
        return outcome.killed


def test_a_job_that_is_started_again_has_not_failed(job):
    pool, schedule = pool_of(FakeLauncher([KILLED, End(0)])), UntilNotKilled(job)
    pool.run_from(schedule)
    assert schedule.states == ["finished"]
    assert (pool.counts.finished, pool.counts.failed, pool.failed) == (1, 0, ())


def test_the_progress_of_a_job_has_the_phase_that_its_process_has_written(job):
    job.run.path.mkdir()
    job.run.write_status("running", phase="evaluating")  # of an earlier process
    child = Child(job, lambda: FakeProcess(job, End(0)))
    assert child.progress().state == "starting"
    job.run.write_status("running", phase="saving")
    assert child.progress().state == "saving"
    job.run.write_status("running", phase="training")
    with patch.object(job, "last_line", lambda: {"env_steps": 1}):
        assert child.progress().state == ""
    job.run.write_status("finished")
    assert child.progress().state == "ending"


def test_a_job_that_finished_before_its_node_was_lost_is_finished(job):
    pool = pool_of(FakeLauncher([LOST]))
    with patch.object(job, "status", lambda: "finished"):
        pool.run([job])
    assert [outcome.state for outcome in pool.outcomes] == ["finished"]


def test_a_lost_job_starts_again_when_its_earlier_process_has_ended(job):
    launcher = FakeLauncher([LOST, End(0)])
    pool = pool_of(launcher)
    answers = iter([True] * 5)
    with patch.object(job, "is_locked", lambda: next(answers, False)):
        pool.run([job])
    assert next(answers, None) is None
    assert [outcome.state for outcome in pool.outcomes] == ["finished"]


def test_a_lost_job_whose_earlier_process_does_not_end_fails(job):
    job.locked = True
    launcher = FakeLauncher([LOST, End(0)])
    pool = pool_of(launcher)
    with patch.object(running, "_UNLOCK_TIMEOUT_S", 0.0):
        pool.run([job])
    assert launcher.launched == 1
    assert [outcome.state for outcome in pool.outcomes] == ["failed"]
    assert "still trains in it" in pool.outcomes[0].reason


def test_a_stop_ends_the_waiting_for_the_processes_of_an_earlier_start(job, monkeypatch):
    job.locked = True
    with StopSignals() as stops:
        monkeypatch.setattr(JobsView, "message", lambda *_: signal.raise_signal(signal.SIGINT))
        wait_until_free([job], JobsView(), stops)
        assert stops.requested


def test_a_process_that_the_system_does_not_start_is_refused_with_the_reason(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (tmp_path / "log").open("wb") as log:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            with pytest.raises(RunFailed, match=r"a process cannot be started \(Too many open files\)"):
                LocalProcess([sys.executable, "-c", ""], log, log)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_only_a_process_of_this_machine_is_said_to_be_killed_because_memory_ran_out(job, tmp_path, monkeypatch):
    counters = tmp_path / "vmstat"
    counters.write_text("oom_kill 3\n")
    monkeypatch.setattr(kills, "_COUNTERS", counters)
    with (tmp_path / "log").open("wb") as log:
        here = LocalProcess([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], log, log)
    counters.write_text("oom_kill 4\n")
    here.close()
    assert here.poll() == End(-9, "its process was killed by SIGKILL (perhaps because memory ran out)")
    elsewhere = Child(job, lambda: FakeProcess(job, KILLED))
    assert elsewhere.outcome(KILLED).reason == "its process was killed by SIGKILL"


class StuckProcess(LocalProcess):
    """A process that SIGKILL does not end, such as one that waits for a disk."""

    def __init__(self) -> None:
        with Path(os.devnull).open("wb") as nowhere:
            super().__init__([sys.executable, "-c", "import time; time.sleep(600)"], nowhere, nowhere)
        self.pid = self._process.pid

    def kill(self) -> None: ...


def test_a_killed_job_that_does_not_end_is_named_and_not_waited_for(job, monkeypatch):
    monkeypatch.setattr(launching, "KILL_S", 0.1)
    monkeypatch.setattr(running, "KILL_S", 0.1)
    process, said = StuckProcess(), list[str]()
    pool = pool_of(FakeLauncher([]))
    try:
        with (
            patch.object(FakeLauncher, "launch", lambda *_: process),
            patch.object(JobsView, "message", lambda _, text: said.append(text)),
            patch.object(JobsView, "update", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            pool.run([job])
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.close()
    assert f"{job.name}: process {process.pid} was killed, but has not ended within 0.1 s" in said[-1]


class StoppableProcess(FakeProcess):
    """A process that ends some time after it was asked to, with a checkpoint."""

    def __init__(self, job: FakeJob) -> None:
        super().__init__(job, End(130))
        self.polls_left, self.is_stopping, self.is_killed = 3, False, False

    def poll(self) -> End | None:
        self.polls_left -= self.is_stopping
        return None if self.polls_left else self._end

    def terminate(self) -> None:
        self.is_stopping = True

    def kill(self) -> None:
        self.is_killed = self.polls_left > 0


def test_running_jobs_save_their_checkpoints_when_another_one_cannot_be_started(job):
    process, said, states = StoppableProcess(job), list[str](), list[str]()
    launched: list[FakeProcess | Exception] = [process, OSError(errno.ENOSPC, "No space left on device")]
    pool = pool_of(FakeLauncher([], rooms=[2, 2]))
    with (
        patch.object(FakeLauncher, "launch", side_effect=launched),
        patch.object(JobsView, "message", lambda _, text: said.append(text)),
        patch.object(JobsView, "update", lambda _, rows, __: states.extend(row.state for row in rows())),
        pytest.raises(OSError, match="No space left"),
    ):
        pool.run([job, job])
    assert states == ["stopping"] * 2
    assert (process.polls_left, process.is_killed) == (0, False)
    assert said[-1].startswith("the running sessions save and end, because of OSError: [Errno 28] No space left")


@pytest.mark.parametrize("code", [0, 130, -signal.SIGTERM])
def test_a_job_that_was_stopped_is_interrupted_and_not_counted_as_failed(job, code):
    child = Child(job, lambda: FakeProcess(job, End(code)))
    job.finished = False
    child.stop()
    pool = pool_of(FakeLauncher([]))
    pool.count(child.outcome(End(code)))
    assert [outcome.state for outcome in pool.outcomes] == ["interrupted"]
    assert (pool.counts.finished, pool.counts.failed) == (0, 0)


def test_jobs_wait_while_there_is_no_room(job):
    launcher = FakeLauncher([End(0)], rooms=[0, 0, 0])
    pool = pool_of(launcher)
    pool.run([job])
    assert [outcome.state for outcome in pool.outcomes] == ["finished"]


def test_the_reason_of_a_process_that_could_not_start_is_not_that_of_an_earlier_one(job):
    job.run.path.mkdir()
    job.run.write_status("failed", "an env failed")
    job.log.write_text("$ offbeat resume\noffbeat: the disk is full\n")
    pool = pool_of(FakeLauncher([End(2)]))
    pool.run([job])
    assert [outcome.reason for outcome in pool.outcomes] == ["exit code 2: the disk is full"]


def test_only_the_end_of_a_log_is_read_for_the_reason(job):
    job.log.touch()
    os.truncate(job.log, 1 << 42)  # zeros, which take no space
    with job.log.open("a") as log:
        log.write("\noffbeat: the disk is full\n\n")
    pool = pool_of(FakeLauncher([End(2)]))
    pool.run([job])
    assert [outcome.reason for outcome in pool.outcomes] == ["exit code 2: the disk is full"]


def test_a_job_whose_log_is_not_seen_fails_alone(job, tmp_path):
    other = FakeJob(tmp_path / "other")
    pool = pool_of(FakeLauncher([End(2), End(0)]))
    pool.run([job, other])
    assert [outcome.state for outcome in pool.outcomes] == ["failed", "finished"]
    assert pool.outcomes[0].reason == "exit code 2: its log cannot be read (No such file or directory)"


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (
            "offbeat: step() raised E: no licence\nTraceback (most recent call last):\nE: no licence\n",
            "step() raised E: no licence",
        ),
        (
            'offbeat: my.py cannot be imported\n  File "my.py", line 1\n    a b\nSyntaxError: invalid syntax\n',
            "my.py cannot be imported",
        ),
        ("offbeat: 3 evaluations were skipped\nFATAL: no licence\n", "FATAL: no licence"),
        ("E: no licence\n", "E: no licence"),
        ("", "it printed nothing"),
    ],
)
def test_the_reason_of_a_failure_is_the_message_before_a_traceback(job, printed, reason):
    job.log.write_text(f"$ offbeat train\noffbeat: an earlier start\n$ offbeat train\n{printed}")
    pool = pool_of(FakeLauncher([End(1)]))
    pool.run([job])
    assert [outcome.reason for outcome in pool.outcomes] == [f"exit code 1: {reason}"]
