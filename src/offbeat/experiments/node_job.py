"""What runs on a node of a Ray cluster: the process of a job, and a check of the folder that all nodes share."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import TextIO

from offbeat.experiments.file_digests import FileDigests, wait_until_equal
from offbeat.experiments.launching import COMMAND, KILL_S, logged
from offbeat.runtime.ray.cluster import own_versions

_KEEPER = """
import os, signal, subprocess, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda *_: None)
job = subprocess.Popen(sys.argv[2:])
with open(int(sys.argv[1]), "w") as pipe:
    pipe.write(str(job.pid))
code = job.wait()
if code < 0:
    if -code in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
"""A process between a worker of Ray and a job, which ends in the same way as the job.

When a worker of Ray ends, it kills its children, but not their children. So a job whose worker ends is not killed:
its standard input is closed.
"""


@dataclass(frozen=True)
class Launch:
    """What a node needs to start a job."""

    arguments: list[str]
    """Arguments of `offbeat`."""
    folder: str
    """The current folder; paths in the arguments are relative to it."""
    log: str
    """Path of the log."""
    output: str | None
    """Path of the file for the standard output; None: the log."""
    environment: Mapping[str, str | None]
    """Environment variable -> value; None: not set. All others are those of the node."""
    files: FileDigests
    """The files of the job, as the machine of `offbeat run` sees them."""


@dataclass(frozen=True)
class NodeEnd:
    """How a job ended on its node."""

    code: int
    """Exit code; negative: minus the number of the signal that ended it."""
    files: FileDigests
    """The files of the job, as the node sees them."""
    lost: bool = False
    """Whether its keeper was killed, as a worker of Ray that ends does. The job then saves and ends by itself."""


class NodeJob:
    """A job on this node. Ray runs it as an actor with threads, because `wait` blocks one."""

    def __init__(self) -> None:
        self._files: list[Path] = []
        self._keeper: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._starting, self._launching = Lock(), Lock()
        self._killed = Event()

    def host(self) -> str:
        """Return the name of this node."""
        return socket.gethostname()

    def start(self, launch: Launch) -> str:
        """Start the process; return why it was not started, '' if it was."""
        with self._starting:
            if self._keeper is None:  # else this is a repetition of a call whose answer was lost
                if differing := wait_until_equal(launch.files):
                    return f"{self.host()} does not see {differing[0]} as the machine of `offbeat run` does"
                with self._launching:
                    if self._killed.is_set():
                        return "it was killed before it started"
                    self._files = [Path(path) for path in launch.files.digests]
                    self._start(launch)
                    if self._killed.is_set():  # `kill` may not have waited for the launch
                        self.signal(signal.SIGKILL)
        return ""

    def _start(self, launch: Launch) -> None:
        reader, writer = os.pipe()
        keeper = [sys.executable, "-I", "-S", "-c", _KEEPER, str(writer)]
        files = logged(Path(launch.log), Path(launch.output) if launch.output else None, launch.arguments, self.host())
        with files as (out, errors), open(reader, encoding="utf-8") as pipe:  # noqa: PTH123
            started = subprocess.Popen(  # noqa: S603 - our own command, with arguments that were checked
                [*keeper, *COMMAND, *launch.arguments], pass_fds=[writer], process_group=0, cwd=launch.folder,
                stdin=subprocess.PIPE, stdout=out, stderr=errors, env=_environment(launch.environment),
            )  # fmt: skip
            os.close(writer)
            self._pid = int(pipe.read())
        self._keeper = started  # last: from now on, other threads may send signals to the process

    def wait(self) -> NodeEnd:
        """Wait until the process has ended."""
        assert self._keeper is not None
        code = self._keeper.wait()
        lost = code == -signal.SIGKILL and self._job_is_there()
        if lost and self._keeper.stdin is not None:
            self._keeper.stdin.close()
        return NodeEnd(code, FileDigests.of(self._files), lost)

    def _job_is_there(self) -> bool:
        """Whether the job exists. Its keeper ends after it, unless the keeper itself is killed."""
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        return True

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self._keeper is not None and self._keeper.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def kill(self, timeout_s: float = KILL_S) -> bool:
        """Kill the process, if it runs or is being launched; return whether it has ended within `timeout_s`.

        `start` launches none after this. A process that waits for a disk or a device may end only when that answers.
        It is then left alone.
        """
        self._killed.set()
        deadline = monotonic() + timeout_s
        if not self._launching.acquire(timeout=timeout_s):
            return False
        self._launching.release()
        self.signal(signal.SIGKILL)
        if self._keeper is not None:
            try:
                self._keeper.wait(max(0.0, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                return False
        return True


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    changed = {name: changes.get(name, value) for name, value in os.environ.items()} | dict(changes)
    return {name: value for name, value in changed.items() if value is not None}


def reason_against(token: str, content: str, folder: str, versions: Mapping[str, str | None]) -> str:
    """Return why this node cannot run jobs; '' if it can.

    Args:
        token: path of a file on the disk of the jobs, which the machine of `offbeat run` has locked.
        content: the content of this file.
        folder: the current folder of the jobs.
        versions: the versions of Python and of packages on the machine of `offbeat run`.
    """
    others = [f"{name} {found or 'missing'}" for name, found in own_versions().items() if versions[name] != found]
    if others:
        return f"has other versions than the machine of `offbeat run`: {', '.join(others)}"
    disk = Path(token).parent
    try:
        with open(token, encoding="utf-8") as file:  # noqa: PTH123 - as everywhere else for locks
            if file.read() != content:
                return f"has another file {token}"
            if not _is_locked(file):
                return (
                    f"does not see the locks of other machines in {disk}, so two of them could train the same run: "
                    "mount the disk with locks (NFS 4, or Lustre with -o flock)"
                )
    except OSError as error:
        return f"cannot use the folder {disk} ({error.strerror})"
    if not os.access(disk, os.W_OK):
        return f"cannot write to the folder {disk}"
    return "" if Path(folder).is_dir() else f"does not have the folder {folder}"


def _is_locked(file: TextIO) -> bool:
    """Whether another process has locked an open file. Raises OSError if the disk has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
