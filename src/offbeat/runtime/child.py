"""Child processes: how one is started, what it reports, and that it never outlives the process that started it.

A child is a fresh Python. It inherits no thread, no lock and no file but those that it is given. All that it needs is
sent to it on one socket, on which it later reports; everything else goes over shared memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from types import FrameType
from typing import IO, Any, NamedTuple, Protocol, cast

from offbeat.core.errors import Closed, RunFailed, explained
from offbeat.runtime.process_groups import GROUPS

PR_SET_PDEATHSIG = 1
"""Of prctl(2): have a signal sent to this process when its parent dies."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What a terminal, a service manager or a batch scheduler sends to all processes of a run at once."""
LAST_REPORT_S = 1.0
"""Seconds in which the last report of a process that has ended must have been read."""
POLL_S = 0.005
"""Seconds between two checks whether a process has ended."""


class Report(NamedTuple):
    """A message from a child to its parent."""

    kind: str
    """ready: the envs have begun; paused: it waits until the pause ends; explained, then failed; gave up: so would any
    other in its place; or what its kind adds."""
    content: Any
    """paused: where it pauses, and its state; explained: what a person is shown of the error that ended it; failed: its
    whole traceback; gave up: the reason."""


# --- in the child -------------------------------------------------------------------------------------------


class ChildLaunch(Protocol):
    """What every child is given at its start."""

    @property
    def parent(self) -> int:
        """The process that started it."""
        ...


class ChildModule(Protocol):
    """The module of a kind of child."""

    def main(self, launch: Any, connection: Connection[Report, Any]) -> None:
        """Do what the launch spec says, until `Closed`."""


def run_child(module: str) -> None:
    """Run in a child process: receive the launch spec, then run `main` of a module. An error is reported."""
    _ignore_stop_signals()
    connection: Connection[Report, Any] = Connection(int(sys.argv[1]))
    os.set_inheritable(connection.fileno(), False)
    try:
        received = connection.recv_bytes()  # before anything heavy is loaded
    except EOFError:
        return  # whoever started this process has died
    with _modules_exempt_from_collection():
        program, launch = cast(ChildModule, import_module(module)), pickle.loads(received)  # noqa: S301 - from the parent
    _exit_with_parent(launch.parent, connection)
    try:
        program.main(launch, connection)
    except Closed:
        return
    except BaseException as error:  # noqa: BLE001 - the parent is told, whatever it was
        if type(error) is RunFailed:  # an env that failed may do better in another process
            connection.send(Report("gave up", str(error)))
        connection.send(Report("explained", explained(error)))
        connection.send(Report("failed", traceback.format_exc()))
        raise SystemExit(1) from None


@contextlib.contextmanager
def _modules_exempt_from_collection() -> Iterator[None]:
    """Exempt what is imported meanwhile from garbage collection: a child that loads torch takes 25 % less CPU time.

    Modules live until the process ends. Otherwise each collection would traverse them, and so would the one at exit.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _ignore_stop_signals() -> None:
    """Do nothing at SIGINT and SIGTERM, which reach all processes of a run: the parent stops its children in order.

    A handler, not SIG_IGN: programs that envs start, and processes that they fork, have the defaults again.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, _ignore_signal)
        signal.siginterrupt(number, False)
    os.register_at_fork(after_in_child=_restore_default_handlers)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # they were blocked while this process started


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    pass


def _restore_default_handlers() -> None:
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is _ignore_signal:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _exit_with_parent(parent: int, connection: Connection[Any, Any]) -> None:
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
    """A process, and what it has reported.

    A thread reads its reports: a child that sends much never waits for the learner, and the learner never for a child
    that has stopped in the middle of a report.
    """

    def __init__(
        self,
        index: int,
        process: subprocess.Popen[bytes],
        connection: Connection[Any, Report],
        launch: object,
        on_report: Callable[[Report], None] = lambda _report: None,
        notify: Callable[[], None] = lambda: None,
    ) -> None:
        """Follow a process.

        Args:
            index: of the worker that it is.
            process: as it was started.
            connection: on which it gets its launch spec, and reports.
            launch: its launch spec; can be pickled.
            on_report: is called with each report of a kind that only this child has, in the thread that calls
                `take_reports`.
            notify: is called, in another thread, when a report has arrived.
        """
        self.index, self.process, self._on_report, self._notify = index, process, on_report, notify
        self.ready = False
        """Whether its envs have begun."""
        self.failure = ""
        """The whole traceback of what ended it."""
        self.explained = ""
        """What a person is shown of it: a line in words, and the lines of their own code."""
        self.no_restart_reason = ""
        """Why no process may be started in its place; empty if one may."""
        self.paused: tuple[int, Any] = (-1, None)
        """Where it paused last, and the state that it reported there."""
        self._reports: SimpleQueue[bytes] = SimpleQueue()
        self._connection = connection
        self._thread = threading.Thread(target=self._send_and_receive, args=(pickle.dumps(launch),), daemon=True)
        self._thread.start()

    def _send_and_receive(self, launch: bytes) -> None:
        """Send the launch spec, then take in reports until the other end is gone."""
        with self._connection as connection, contextlib.suppress(EOFError, OSError):
            connection.send_bytes(launch)
            while True:
                self._reports.put(connection.recv_bytes())
                self._notify()

    def take_reports(self, seconds: float = 0.0) -> None:
        """Take in what it has reported; wait up to `seconds` for the first report."""
        with contextlib.suppress(Empty):
            while True:
                report = self._reports.get(timeout=seconds) if seconds else self._reports.get_nowait()
                self._handle_report(pickle.loads(report))  # noqa: S301 - from a process that this one has started
                seconds = 0.0

    def _handle_report(self, report: Report) -> None:
        if report.kind == "ready":
            self.ready = True
        elif report.kind == "failed":
            self.failure = report.content
        elif report.kind == "explained":
            self.explained = report.content
        elif report.kind == "gave up":
            self.no_restart_reason = report.content
        elif report.kind == "paused":
            self.paused = report.content
        else:
            self._on_report(report)

    def state_at_pause(self, pause: int) -> Any:
        """Return the state that it reported when the pause at this ticket had stopped it; None if it has not."""
        where, state = self.paused
        return state if where >= pause else None  # not that of an earlier pause, which came too late

    def is_alive(self) -> bool:
        """Whether it runs. One that has ended keeps its number until `kill`: its group may still have members."""
        if self.process.returncode is not None:
            return False
        if not hasattr(os, "waitid"):  # macOS, before Python 3.13
            return self.process.poll() is None
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:  # somebody else has waited for it
            return False

    def exits_within(self, seconds: float) -> bool:
        """Wait for its end; return whether it came in time."""
        deadline = monotonic() + seconds
        while self.is_alive():
            if monotonic() > deadline:
                return False
            sleep(POLL_S)
        return True

    def kill(self) -> None:
        """End it at once, with all that its envs have started, and wait until it is gone; take in its last reports.

        Only then may another write where it did.
        """
        if self.process.returncode is None:
            GROUPS.kill(self.process.pid)  # it leads a group of its own
            self.process.wait()
        GROUPS.remove(self.process.pid)
        self._thread.join(LAST_REPORT_S)
        if self._thread.is_alive():  # a process that left the group holds the other end
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as both:
                both.shutdown(socket.SHUT_RDWR)
            self._thread.join(LAST_REPORT_S)
        self.take_reports()

    def exit_reason(self) -> str:
        """Return how it ended, once it has been killed, or has been found dead and then killed."""
        code = self.process.returncode
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def start_child(
    module: str,
    launch: object,
    inherited: Sequence[int] = (),
    *,
    index: int = 0,
    threads: int = 1,
    on_report: Callable[[Report], None] = lambda _report: None,
    notify: Callable[[], None] = lambda: None,
) -> Child:
    """Start a child.

    What its envs print goes to stderr, line by line: stdout is for what a command says, and a dashboard lets whole
    lines pass above it.

    Args:
        module: whose `main` it is to run, see `ChildModule`.
        launch: its launch spec.
        inherited: file descriptors that it gets, under the same numbers.
        index: of the worker that it is.
        threads: that BLAS and OpenMP may use there.
        on_report: see `Child`.
        notify: see `Child`.
    """
    ours, theirs = Pipe()
    code = f"from offbeat.runtime.child import run_child; run_child({module!r})"
    with _stop_signals_blocked():
        process = subprocess.Popen(  # noqa: S603 - our own code, in the same Python; -u: prints are not kept back
            [sys.executable, "-u", "-P", "-c", code, str(theirs.fileno())],
            pass_fds=(theirs.fileno(), *inherited),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=_environment(threads),
            process_group=0,  # a ^C in the terminal reaches the parent alone
        )
    GROUPS.add(process.pid)
    theirs.close()
    threading.Thread(target=_forward_output, args=(process.stdout,), daemon=True).start()
    return Child(index, process, ours, launch, on_report, notify)


@contextlib.contextmanager
def _stop_signals_blocked() -> Iterator[None]:
    """Block SIGINT and SIGTERM in this thread: a process that is started meanwhile begins with them blocked.

    Else one that came before the child can handle them would end it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forward_output(printed: IO[bytes]) -> None:
    """Print what a child prints, until nobody is left who could."""
    with printed, contextlib.suppress(OSError, ValueError):  # stderr may be closed
        for line in printed:
            sys.stderr.write(line.decode(errors="replace"))
            sys.stderr.flush()


def _environment(threads: int) -> dict[str, str]:
    """Return the environment of a child: it finds the modules that this process finds."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return os.environ | {"PYTHONPATH": path} | dict.fromkeys(THREAD_VARIABLES, str(threads))
