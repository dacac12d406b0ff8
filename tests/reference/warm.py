"""Programs that tests start, each in a process of its own, without the two seconds that it takes to load torch.

A Python that has loaded torch and offbeat, and has done nothing else, waits beside each test process. It forks for each
program. Such a program has the environment, working directory, files and arguments that it is given, the default signal
handlers and the usual end of an interpreter: signals, kills and exit codes are real. What it starts itself are fresh
Pythons, as always. Where the start of an interpreter is itself the point, a test starts a fresh one.
"""

from __future__ import annotations

import gc
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any

REPOSITORY = Path(__file__).parents[2]
LOADED = (
    *("torch", "gymnasium", "torch.utils.tensorboard", "offbeat.cli.main", "offbeat.api.train", "offbeat.api.evaluate"),
    *("offbeat.runtime.serial", "offbeat.runtime.threads", "offbeat.runtime.processes", "offbeat.runtime.hogwild.loop"),
    *("offbeat.algorithms.ppo", "offbeat.algorithms.sac", "offbeat.fastpath.registrations"),
)
"""What a program finds loaded."""
Files = tuple[IO[Any], IO[Any]]
"""What a program prints: stdout and stderr."""
LARGEST = 1 << 20
"""Bytes of a message: code, arguments and environment of a program."""


class ForkedProcess:
    """A program that was started. It has the methods of `subprocess.Popen` that tests use."""

    def __init__(self, status: int) -> None:
        """Follow a program by the pipe on which its number and then its end are reported."""
        number = os.read(status, 8)
        assert number, "the Python that forks has ended"
        self._status, self.pid = status, int.from_bytes(number, "little")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._end_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return the exit code.

        Raises:
            TimeoutExpired: it has not ended in time.
        """
        if (code := self._end_within(timeout)) is None:
            raise subprocess.TimeoutExpired("a forked program", timeout or 0.0)
        return code

    def _end_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(os.read(self._status, 8), "little"))
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class Warm:
    """The Python that forks, from the side of the tests."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        search = [str(REPOSITORY), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"from tests.reference.warm import serve; exec(*serve({theirs.fileno()}))"],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(search), "OMP_NUM_THREADS": "1"},
                cwd=REPOSITORY,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def start(
        self, code: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], files: Files
    ) -> ForkedProcess:
        """Start a program: Python code, as `python -c` runs it."""
        program = {
            "code": code,
            "arguments": list(arguments),
            "folder": str(folder.resolve()),
            "environment": dict(environment),
        }
        reader, writer = os.pipe()
        message = json.dumps(program).encode()
        assert len(message) < LARGEST
        socket.send_fds(self._socket, [message], [*(file.fileno() for file in files), writer])
        os.close(writer)
        return ForkedProcess(reader)


_WARM: list[Warm] = []


def start(
    code: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], files: Files
) -> ForkedProcess:
    """Start a program from this test process's warm Python, which is started when it is first needed."""
    if not _WARM or _WARM[0].process.poll() is not None:
        _WARM[:] = [Warm()]
    return _WARM[0].start(code, arguments, folder, environment, files)


# --- in the warm Python -------------------------------------------------------------------------------------


def serve(descriptor: int) -> tuple[Any, dict[str, Any]]:
    """Fork for each program that is asked for; return only in a forked process, with the code that it is to run."""
    for module in LOADED:
        import_module(module)
    own = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = [path for path in sys.path if path and path not in own]
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait for programs
    with socket.socket(fileno=descriptor) as requests:
        while True:
            message, files, _, _ = socket.recv_fds(requests, LARGEST, 3)
            if not message:
                raise SystemExit  # the test process has ended
            if os.fork() == 0:
                break
            for file in files:
                os.close(file)
    return _program(json.loads(message), *files)


def _program(program: Mapping[str, Any], out: int, err: int, status: int) -> tuple[Any, dict[str, Any]]:
    """Fork once more: wait for the program here, and return what it is to run there."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        os.write(status, pid.to_bytes(8, "little"))
        os.write(status, os.waitpid(pid, 0)[1].to_bytes(8, "little"))
        os._exit(0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    for file in (out, err, status):
        os.close(file)
    os.environ.clear()
    os.environ.update(program["environment"])
    os.chdir(program["folder"])
    sys.argv = ["-c", *program["arguments"]]
    sys.orig_argv = [sys.executable, "-c", program["code"], *program["arguments"]]
    search = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = ["", *search, *sys.path]
    random.seed()
    return compile(program["code"], "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__}
