"""Programs without the two seconds that it takes to load torch: forked from a process that has loaded it before.

Such a program has the environment, folder and files that it is given, the default signal handlers and the usual end:
signals, kills and exit codes are real. What it starts itself are fresh Pythons, as always.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.warm import LOADED

from benchmarks.common import die_with_the_parent

POLL_EVERY_S = 0.01


def load() -> None:
    """Load what programs need, so that they find it loaded; start no thread."""
    for module in (*LOADED, "offbeat.algorithms.dqn", "offbeat.algorithms.impala", "offbeat.algorithms.a2c"):
        import_module(module)
    gc.freeze()


class Forked:
    """A program in a forked process. It has the methods of `subprocess.Popen` that the soak uses."""

    def __init__(
        self, program: Callable[[], None], folder: Path, environment: Mapping[str, str], out: Path, err: Path
    ) -> None:
        """Start it, in a session of its own. What it prints goes to the ends of the files."""
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _run(program, folder, environment, out, err)

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return the exit code.

        Raises:
            TimeoutExpired: it has not ended in time.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() >= until:
                raise subprocess.TimeoutExpired("a forked program", timeout or 0.0)
            time.sleep(POLL_EVERY_S)
        return code

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.wait()


def _run(program: Callable[[], None], folder: Path, environment: Mapping[str, str], out: Path, err: Path) -> None:
    """Run the program in the forked process, and end it."""
    code = 70
    try:
        die_with_the_parent()
        os.setsid()
        os.chdir(folder)
        for descriptor, path in enumerate((Path(os.devnull), out, err)):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(file, descriptor)
            os.close(file)
        os.environ.clear()
        os.environ.update(environment)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        faulthandler.enable()
        random.seed()
        sys.argv = ["offbeat"]
        program()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - nobody else is left to show it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def offbeat(arguments: list[str]) -> Callable[[], None]:
    """Return the program `offbeat` with these arguments."""

    def program() -> None:
        from offbeat.cli.entry import main

        sys.argv = ["offbeat", *arguments]
        main()

    return program
