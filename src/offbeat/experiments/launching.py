"""Starts the processes of jobs: the interface, and the launcher for this machine."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from offbeat.config.config import Config
from offbeat.core.errors import RunFailed
from offbeat.core.process.kills import killed_by, memory_kills
from offbeat.core.process.threads import usable_cores
from offbeat.experiments.jobs import Job

COMMAND = (sys.executable, "-P", "-c", "from offbeat.cli.entry import session; session()")
"""The command that starts the process of a job, before its arguments of `offbeat`. It ends with its parent."""

KILL_S = 30.0
"""Seconds that killed processes get to end."""


@dataclass(frozen=True)
class End:
    """How a process ended."""

    code: int
    """Exit code; negative: minus the number of the signal that ended it."""
    reason: str = ""
    """Why, if the files of the job do not say it."""
    node_lost: bool = False
    """Whether it did not end by itself, but its node was lost."""


class JobProcess(Protocol):
    """A process of a job, which may run on another machine."""

    @property
    def is_waiting(self) -> bool:
        """Whether it has not started yet, because it waits for resources."""
        ...

    def poll(self) -> End | None:
        """Return how it ended; None while it waits or runs."""
        ...

    def terminate(self) -> None:
        """Let it save a checkpoint and end."""
        ...

    def kill(self) -> None:
        """Kill it, without waiting for its end."""
        ...

    def close(self, timeout_s: float = KILL_S) -> str:
        """Free what it used, after its end. If it was killed, wait for its end first, for at most `timeout_s`.

        Returns:
            Which process has not ended then; '' if it has.
        """
        ...


class Launcher(Protocol):
    """Starts the processes of jobs, on this machine or on others."""

    def prepare(self, folder: Path, notify: Callable[[str], None]) -> None:
        """Check that jobs can run in a folder, which may not exist yet, before anything is changed.

        Args:
            folder: the directory of the experiment or population.
            notify: shows a message to the user, from now on.

        Raises:
            ConfigError: they cannot.
        """
        ...

    def room(self) -> int:
        """Return the number of jobs that can run at the same time now."""
        ...

    def launch(self, job: Job, arguments: Sequence[str]) -> JobProcess:
        """Start the process of a job, with these arguments of `offbeat`."""
        ...


@contextmanager
def logged(
    log: Path, output: Path | None, arguments: Sequence[str], node: str = ""
) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Append a command to a log, and open the files for the standard output and the standard error of its process.

    Args:
        log: path of the log.
        output: path of a file for the output, which no earlier process writes to; None: the log.
        arguments: the arguments of `offbeat`.
        node: name of the node on which it runs; empty: this machine.
    """
    with log.open("ab") as errors:
        where = f"  # on {node}" if node else ""
        errors.write(f"$ offbeat {shlex.join(arguments)}{where}\n".encode())
        errors.flush()
        if output is None:
            yield errors, errors
            return
        output.unlink(missing_ok=True)
        with output.open("wb") as file:
            yield file, errors


# --- on this machine ----------------------------------------------------------------------------------------


def cores_of(config: Config) -> int:
    """Return the number of cores that a job uses, at most those of this machine."""
    return min(usable_cores(), usable_cores() if config.busy_cores is None else config.busy_cores)


class LocalLauncher:
    """Starts jobs on this machine.

    Args:
        configs: the configs of the jobs.
        jobs: number of jobs that run at the same time; None: as many as there are cores for.
    """

    def __init__(self, configs: Sequence[Config], jobs: int | None = None) -> None:
        self._jobs = jobs or max(1, usable_cores() // max(map(cores_of, configs)))

    def prepare(self, folder: Path, notify: Callable[[str], None]) -> None:
        """Do nothing: jobs can run in all folders of this machine."""

    def room(self) -> int:
        return self._jobs

    def launch(self, job: Job, arguments: Sequence[str]) -> LocalProcess:
        with logged(job.log, job.output, arguments) as (output, errors):
            return LocalProcess([*COMMAND, *arguments], output, errors)


class LocalProcess:
    """A process of a job on this machine.

    It has its own process group, so that Ctrl+C reaches it only through `terminate`. Its standard input is a pipe
    without data: when the pipe is closed, the process knows that this one has ended.
    """

    is_waiting = False

    def __init__(self, command: Sequence[str], output: BinaryIO, errors: BinaryIO) -> None:
        """Start the process.

        Raises:
            RunFailed: the system does not start it.
        """
        self._memory_kills_before = memory_kills()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own command, with arguments that were checked
                command, stdin=subprocess.PIPE, stdout=output, stderr=errors, process_group=0
            )
        except OSError as error:
            raise RunFailed(
                f"a process cannot be started ({error.strerror}): end other programs, free memory, or raise the limits "
                "of `ulimit`, then run the command again"
            ) from error

    def poll(self) -> End | None:
        code = self._process.poll()
        if code is None:
            return None
        if code >= 0:
            return End(code)
        return End(code, f"its process was killed by {killed_by(-code, self._memory_kills_before)}")

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()

    def close(self, timeout_s: float = KILL_S) -> str:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return f"process {self._process.pid}"
        return ""
