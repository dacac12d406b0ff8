"""Child processes: how one is started, what it reports, and that it never outlives the process that started it.

A child is a fresh Python. It inherits no thread, no lock and no file but those that it is given. It is told all it
needs on one socket, on which it later reports; everything else goes over shared memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from time import monotonic
from typing import IO, Any, NamedTuple, Protocol, cast

from offbeat.errors import Closed, RunFailed, explained
from offbeat.runtime.gate import NAP_S

PR_SET_PDEATHSIG = 1
"""Of prctl(2): have a signal sent to this process when its parent dies."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Report(NamedTuple):
    """What a child says."""

    kind: str
    """ready: the envs have begun; rest: it does nothing until it is told to go on; explained, then failed; gave up: so
    would any other in its place; or what its kind adds."""
    content: Any
    """rest: where it rests, and its state; explained: what a person is shown of the error that ended it; failed: its
    whole traceback; gave up: the reason."""


# --- in the child -------------------------------------------------------------------------------------------


class Orders(Protocol):
    """What every child is told."""

    @property
    def parent(self) -> int:
        """The process that started it."""
        ...


class Life(Protocol):
    """The module of a kind of child."""

    def work(self, orders: Any, connection: Connection[Report, Any]) -> None:
        """Do what the orders say, until `Closed`."""

    def ring(self, orders: Any) -> None:
        """Wake who reads the reports."""


def live(module: str) -> None:
    """Be a child: take orders, then do the work of a module; why it could not go on is reported."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C is for the parent, which ends its children
    connection: Connection[Report, Any] = Connection(int(sys.argv[1]))
    try:
        told = connection.recv_bytes()  # before anything heavy is loaded: the parent waits until all is taken
    except EOFError:
        return  # whoever started this process has died
    life, orders = cast(Life, import_module(module)), pickle.loads(told)  # noqa: S301 - from the parent
    _die_with_the_parent(orders.parent, connection)
    try:
        life.work(orders, connection)
    except Closed:
        return
    except BaseException as error:  # noqa: BLE001 - the parent is told, whatever it was
        if type(error) is RunFailed:  # an env that failed may do better in another process
            connection.send(Report("gave up", str(error)))
        connection.send(Report("explained", explained(error)))
        connection.send(Report("failed", traceback.format_exc()))
        life.ring(orders)
        raise SystemExit(1) from None


def _die_with_the_parent(parent: int, connection: Connection[Any, Any]) -> None:
    """See to it that this process does not outlive the one that started it, however that ends."""
    threading.Thread(target=_exit_at_end_of_file, args=(connection,), daemon=True).start()
    if sys.platform == "linux":  # also while an env holds on to the interpreter
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _exit_at_end_of_file(connection: Connection[Any, Any]) -> None:
    with contextlib.suppress(EOFError, OSError):  # nothing more is ever sent: this returns when the other end is gone
        connection.recv_bytes()
    os._exit(1)


# --- in the parent ------------------------------------------------------------------------------------------


class Child:
    """A process, and what it has reported."""

    def __init__(
        self,
        index: int,
        process: subprocess.Popen[bytes],
        connection: Connection[Any, Report],
        heard: Callable[[Report], None] = lambda _report: None,
    ) -> None:
        """Follow a process.

        Args:
            index: of the worker that it is.
            process: as it was started.
            connection: on which it reports.
            heard: is given what its kind of child reports beyond the usual.
        """
        self.index, self.process, self.connection, self._heard = index, process, connection, heard
        self.ready = False
        """Whether its envs have begun."""
        self.failure = ""
        """The whole traceback of what ended it."""
        self.explained = ""
        """What a person is shown of it: a line in words, and the lines of their own code."""
        self.gave_up = ""
        """Why nobody is to be started in its place."""
        self.rests: tuple[int, Any] = (-1, None)
        """Where it came to rest last, and the state that it reported there."""

    def listen(self, seconds: float = 0.0) -> None:
        """Take in what it reports; wait up to `seconds` for the first word."""
        try:
            while self.connection.poll(seconds):
                self._note(self.connection.recv())
                seconds = 0.0
        except (EOFError, OSError):
            return  # it has died; what it said before has been read

    def _note(self, report: Report) -> None:
        if report.kind == "ready":
            self.ready = True
        elif report.kind == "failed":
            self.failure = report.content
        elif report.kind == "explained":
            self.explained = report.content
        elif report.kind == "gave up":
            self.gave_up = report.content
        elif report.kind == "rest":
            self.rests = report.content
        else:
            self._heard(report)

    def snapshot(self, hold: int, deadline: float) -> Any:
        """Return the state that it reports when `hold` has stopped it; None if it never does."""
        while self.rests[0] < hold and self.alive() and monotonic() < deadline:
            self.listen(NAP_S)
        where, state = self.rests
        return state if where >= hold else None  # not that of an earlier hold, which came too late

    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """End it at once, and wait until it is gone: only then may another write where it did."""
        self.sweep()
        self.process.wait()

    def sweep(self) -> None:
        """End the process, if it is there, and all that its envs have started and left behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # it leads a group of its own

    def how_it_ended(self) -> str:
        code = self.process.returncode
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def spawn(module: str, inherited: Sequence[int], threads: int) -> tuple[subprocess.Popen[bytes], Connection[Any, Any]]:
    """Start a child, and return it and the socket on which it waits for its orders.

    What its envs print goes to stderr, line by line: stdout is for what a command says, and a dashboard lets whole
    lines pass above it.

    Args:
        module: whose `work` it is to do, see `Life`.
        inherited: file descriptors that it gets, under the same numbers.
        threads: that BLAS and OpenMP may use there.
    """
    ours, theirs = Pipe()
    code = f"from offbeat.runtime.child import live; live({module!r})"
    process = subprocess.Popen(  # noqa: S603 - our own code, in the same Python; -u: what is printed is not kept back
        [sys.executable, "-u", "-P", "-c", code, str(theirs.fileno())],
        pass_fds=(theirs.fileno(), *inherited),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=_environment(threads),
        process_group=0,  # a ^C in the terminal reaches the parent alone
    )
    theirs.close()
    threading.Thread(target=_pass_on, args=(process.stdout,), daemon=True).start()
    return process, ours


def _pass_on(printed: IO[bytes]) -> None:
    """Print what a child prints, until nobody is left who could."""
    with printed, contextlib.suppress(OSError, ValueError):  # stderr may be closed
        for line in printed:
            sys.stderr.write(line.decode(errors="replace"))
            sys.stderr.flush()


def tell(connection: Connection[Any, Any], orders: object) -> None:
    """Give a child its orders."""
    with contextlib.suppress(OSError):  # it has died already, which the supervisor will see
        connection.send(orders)


def _environment(threads: int) -> dict[str, str]:
    """Return the environment of a child: it finds the modules that this process finds."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return os.environ | {"PYTHONPATH": path} | dict.fromkeys(THREAD_VARIABLES, str(threads))
