"""Runs sessions in parallel, one process each, shows their progress and stops them together."""

from __future__ import annotations

import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import FrameType, TracebackType
from typing import BinaryIO, Literal, Self

from offbeat.core.errors import ConfigError
from offbeat.experiments.progress import Row, SessionCounts, View
from offbeat.experiments.sessions import RunProcess
from offbeat.metrics.text import compact, duration, rounded

_TICK_S = 0.1
_END_TIMEOUT_S = 15.0
"""Maximum seconds until the sessions of a killed experiment have ended by themselves."""


@dataclass(frozen=True)
class Outcome:
    """How a session ended."""

    session: RunProcess
    state: Literal["finished", "interrupted", "failed"]
    reason: str
    killed: bool = False
    """Whether a signal ended the process, which is not the fault of the run."""


class StopSignals:
    """While entered, SIGINT and SIGTERM request a stop. A second signal raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            numbers = (signal.SIGINT, signal.SIGTERM)
            self._previous = {number: signal.signal(number, self._request) for number in numbers}
        return self

    def _request(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


class Child:
    """The process of a session.

    It has its own process group, so that Ctrl+C reaches it only through `stop`. Its standard input is a pipe without
    data: when the pipe is closed, the child knows that this process has ended.
    """

    def __init__(self, session: RunProcess, command: Sequence[str]) -> None:
        self.session = session
        self.arguments = session.arguments()
        self.started = time.monotonic()
        self.stopping = False
        with session.log.open("ab") as log, _output(session, log) as output:
            log.write(f"$ offbeat {shlex.join(self.arguments)}\n".encode())
            log.flush()
            self.process = subprocess.Popen(  # noqa: S603 - our own command, with arguments that were checked
                [*command, *self.arguments], stdin=subprocess.PIPE, stdout=output, stderr=log, process_group=0
            )

    @property
    def resumed(self) -> bool:
        return self.arguments[0] == "resume"

    def row(self) -> Row:
        """Return the progress of the session."""
        return Row(self.session.name, self.session.steps, self.session.last_line(), self.stopping)

    def stop(self) -> None:
        """Let the process save a checkpoint and end."""
        if not self.stopping:
            self.stopping = True
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        """Wait until the process has ended, and close the pipe."""
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()

    def outcome(self) -> Outcome:
        """Return how the session ended, from its files and the exit code."""
        session = self.session
        if session.status_on_disk() == "finished":
            return Outcome(
                session, "finished", f"{_summary(self.row())} in {duration(time.monotonic() - self.started)}"
            )
        if self.stopping and self.process.returncode in (0, 130, -signal.SIGTERM):
            return Outcome(session, "interrupted", _summary(self.row()))
        return Outcome(session, "failed", self._failure(), killed=(self.process.returncode or 0) < 0)

    def _failure(self) -> str:
        code, status = self.process.returncode, self.session.status()
        if code < 0:
            return f"its process was killed by {signal.Signals(-code).name}"
        if status.get("state") in ("failed", "interrupted") and status.get("reason"):
            return str(status["reason"])
        printed = [line for line in self.session.log.read_text(errors="replace").splitlines() if line.strip()]
        return f"exit code {code}: {printed[-1].removeprefix('offbeat: ')}"


@contextmanager
def _output(session: RunProcess, log: BinaryIO) -> Iterator[BinaryIO]:
    """Open the file for the standard output of a process: a new one, which no earlier process writes to."""
    if session.output is None:
        yield log
        return
    session.output.unlink(missing_ok=True)
    with session.output.open("wb") as output:
        yield output


def _summary(row: Row) -> str:
    """Return the last return of a session as text."""
    if not row.line:
        return "nothing learned yet"
    name, key = "evaluation", "eval_return_mean"
    if row.line.get(key) is None:
        name, key = "return", "episode_return_mean"
    return f"{name} {rounded(row.line.get(key))} at {compact(row.env_steps)} env steps"


class Pool:
    """Runs sessions, up to `jobs` at a time.

    Args:
        command: Command that starts `offbeat`, without arguments.
        jobs: Number of sessions that run at the same time.
        view: Display of the progress.
        stops: The signals that request a stop.
        counts: Number of sessions of the experiment, including those finished before.
    """

    def __init__(
        self, command: Sequence[str], jobs: int, view: View, stops: StopSignals, counts: SessionCounts
    ) -> None:
        self._command, self._jobs, self._view, self._stops = command, jobs, view, stops
        self.counts = counts
        self.outcomes: list[Outcome] = []
        """Outcomes of all sessions that were started here and have ended."""

    def run(self, sessions: Iterable[RunProcess]) -> None:
        """Run sessions until all have ended. After a stop, running sessions save a checkpoint and no other starts.

        Raises:
            KeyboardInterrupt: a second signal was received; the running sessions were killed.
        """
        waiting = deque(sessions)
        self.run_from(lambda: waiting.popleft() if waiting else None, lambda _outcome: None)

    def run_from(self, next_session: Callable[[], RunProcess | None], on_end: Callable[[Outcome], None]) -> None:
        """Run sessions that depend on each other, until none can start and all have ended. Raises as `run`.

        Args:
            next_session: returns a session that can start now; None if none can before another one has ended.
            on_end: is called with the outcome of each session.
        """
        running = list[Child]()
        try:
            self._start(next_session, running)
            while running:
                for child in [child for child in running if child.process.poll() is not None]:
                    running.remove(child)
                    on_end(self._ended(child))
                self._poll(running)
                self._start(next_session, running)
                time.sleep(_TICK_S)
            self._view.clear(self.counts)
        finally:
            for child in running:
                child.kill()

    def _start(self, next_session: Callable[[], RunProcess | None], running: list[Child]) -> None:
        while len(running) < self._jobs and not self._stops.requested:
            session = next_session()
            if session is None:
                return
            if session.status_on_disk() == "lost":
                renamed = session.rename_lost()
                self._view.message(f"{session.name} had no checkpoint: it was renamed to {renamed} and starts again")
            crashed = "has crashed and " * bool(session.run.crash())
            child = Child(session, self._command)
            running.append(child)
            what = f"{crashed}resumes from its checkpoint" if child.resumed else "starts"
            self._view.message(f"{session.name} {what}: {session.about}")

    def _poll(self, running: list[Child]) -> None:
        """Stop the sessions if a stop was requested, and show the progress."""
        if self._stops.requested:
            for child in running:
                child.stop()
        self._view.update(lambda: [child.row() for child in running], self.counts)

    def _ended(self, child: Child) -> Outcome:
        child.close()
        outcome = child.outcome()
        self.outcomes.append(outcome)
        finished, failed = outcome.state == "finished", outcome.state == "failed"
        self.counts = replace(self.counts, finished=self.counts.finished + finished, failed=self.counts.failed + failed)
        where = f" (see {child.session.log})" if failed else ""
        self._view.message(f"{child.session.name} {outcome.state}: {outcome.reason}{where}")
        return outcome


def wait_until_free(sessions: Sequence[RunProcess], view: View) -> None:
    """Wait for sessions that are still running: those of a killed experiment end by themselves.

    Raises:
        ConfigError: a session does not end in time.
    """
    notified, deadline = False, time.monotonic() + _END_TIMEOUT_S
    while locked := [session for session in sessions if session.is_locked()]:
        if not notified:
            view.message(f"waiting for the processes of an earlier start to end: {', '.join(s.name for s in locked)}")
            notified = True
        if time.monotonic() > deadline:
            raise ConfigError(f"another process is training in {locked[0].run.path}: wait for it, or stop it first")
        with suppress(InterruptedError):
            time.sleep(_TICK_S)
