"""The start and the end of a child process: it runs the main function of a module, and never outlives its parent.

It gets its launch spec on a socket and sends its reports on the same socket; all other data is in shared memory. The
parent's side is in child.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import threading
import traceback
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, NamedTuple, NoReturn, Protocol, cast

from offbeat.core.argument_notation import keep_flags
from offbeat.core.errors import Closed, RunFailed, explained
from offbeat.core.process.garbage import pause_collection
from offbeat.core.process.process_exit import exit_after, exit_process
from offbeat.core.process.stop_signals import STOP_SIGNALS

PR_SET_PDEATHSIG = 1
"""Option of prctl(2): the kernel sends this process a signal when its parent dies."""
FAILED_CLOSE_S = 10.0
"""Seconds that a process with an error gets to close its envs. One that has failed may hang there."""


class Report(NamedTuple):
    """A message from a child to its parent."""

    kind: str
    """ready: it has started, and an actor has reset its envs; paused: it waits for the end of a pause; failed: an error
    ended it. A module may add kinds of its own."""
    content: Any
    """paused: the ticket or limit of the pause, and the state; failed: `Failed`."""


class Failed(NamedTuple):
    """An error that has ended a process of the run, or an actor on a cluster."""

    explained: str
    """The error in words, then the lines of the user's own code."""
    traceback: str
    no_restart_reason: str
    """Why it must not be restarted; empty if it may be."""

    @classmethod
    def by(cls, error: BaseException) -> Failed:
        """Describe an error that is handled now. Only a `RunFailed` would occur again in a new process."""
        return cls(explained(error), traceback.format_exc(), str(error) if type(error) is RunFailed else "")


@dataclass(frozen=True)
class ChildContext:
    """What the main function of a child process gets beside its launch spec."""

    connection: Connection[Report, Any]
    closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Gets what is to be closed at the end. It is closed after an error was reported: an env that has failed may hang
    in `close`."""

    def report(self, kind: str, content: Any) -> None:
        """Send a report to the parent."""
        self.connection.send(Report(kind, content))


class ChildModule(Protocol):
    """A module with the main function of a child process."""

    def main(self, launch: Any, child: ChildContext) -> None:
        """Do the work of the child, until `Closed` is raised.

        Args:
            launch: the launch spec.
            child: for reports, and for what is to be closed at the end.
        """


def run_child(module: str) -> NoReturn:
    """In a child process: receive the launch spec, run `main` of a module, report its error, if any, and exit."""
    _ignore_stop_signals()
    keep_flags()
    connection: Connection[Report, Any] = Connection(int(sys.argv[1]))
    os.set_inheritable(connection.fileno(), False)
    child, code = ChildContext(connection), 0
    limit: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    try:
        program, launch = _import_and_load(module, connection)
        _exit_with_parent(launch.parent, connection)
        program.main(launch, child)
    except Closed:
        pass
    except BaseException as error:  # noqa: BLE001 - every error is reported to the parent
        child.report("failed", Failed.by(error))
        code, limit = 1, exit_after(FAILED_CLOSE_S, 1, "a process with an error has not closed its envs")
    with limit:
        try:
            child.closing.close()
        except BaseException:  # noqa: BLE001 - the process ends
            traceback.print_exc()
    exit_process(code)


def _import_and_load(module: str, connection: Connection[Any, Any]) -> tuple[ChildModule, Any]:
    """Receive the launch spec, before slow imports; return the module and the spec. The received bytes are freed."""
    try:
        received = connection.recv_bytes()
    except (EOFError, OSError):
        exit_process(0)  # the parent has died
    with pause_collection(freeze=True):
        return cast(ChildModule, import_module(module)), pickle.loads(received)  # noqa: S301 - from the parent


def _ignore_stop_signals() -> None:
    """Ignore the stop signals, which reach all processes of a run: the parent stops its children itself.

    This uses a handler, not SIG_IGN, so that processes which envs start or fork have the default handlers again.
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
    """Make this process end with its parent, for whatever reason the parent ends.

    Raises:
        RuntimeError: a thread cannot be started.
    """
    try:
        threading.Thread(target=_exit_at_end_of_file, args=(connection,), daemon=True).start()
    except RuntimeError as error:
        raise RuntimeError(
            f"its process could not start a thread ({error}): raise the limit of processes and threads (`ulimit -u`)"
        ) from error
    if sys.platform == "linux":  # works also while an env holds the GIL
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _exit_at_end_of_file(connection: Connection[Any, Any]) -> None:
    with contextlib.suppress(EOFError, OSError):  # nothing is sent: this returns when the parent has ended
        connection.recv_bytes()
    os._exit(1)
