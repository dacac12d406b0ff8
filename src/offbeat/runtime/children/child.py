"""Child processes, as their parent sees them: start them, read their reports, kill them.

A child is a new Python interpreter. It inherits no threads or locks, and only the files that it needs. What it does
itself is in child_main.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import IO, Any

from offbeat.core.lossy_stream import lossy
from offbeat.core.process.kills import killed_by, memory_kills
from offbeat.core.process.stop_signals import STOP_SIGNALS
from offbeat.runtime.children.child_main import Report
from offbeat.runtime.children.process_groups import GROUPS

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
KILL_S = 10.0
"""Seconds to wait for the end of a process after SIGKILL. One that waits in the kernel, such as for a disk or a device
that does not answer, ends only when that call returns. Its own code does not run any more."""
LAST_REPORT_S = 1.0
"""Seconds to wait for the last reports of a process that has ended."""
LAST_OUTPUT_S = 0.2
"""Seconds to wait for the end of its output. It is also copied later: a server that its envs have started may write."""
LONGEST_LINE = 1 << 16
"""Bytes of printed output without the end of a line that are held back."""
POLL_S = 0.005
"""Seconds between two checks whether a process has ended."""


class Child:
    """A child process and its reports.

    A thread receives the reports. So a child that sends a large report does not wait for the learner, and the learner
    does not wait for a child that hangs in the middle of a report. Another thread forwards its output.
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
        """Send a process its launch spec and receive its reports.

        Args:
            index: index of the process among those of its kind.
            process: the started process.
            connection: the socket for the launch spec and the reports.
            launch: the launch spec, which is pickled.
            on_report: is called with each report of a kind that its module has added, in the thread that calls
                `take_reports`.
            notify: is called in another thread when a report has arrived.

        Raises:
            OSError: its threads cannot be started. The process was killed.
        """
        self.index, self.process, self._on_report, self._notify = index, process, on_report, notify
        self.ready = False
        """Whether it has started, and an actor has reset its envs."""
        self.failure = ""
        """The traceback of the error that ended it; empty if there was none."""
        self.explained = ""
        """The same error for the user: a line in words, then the lines of the user's own code."""
        self.no_restart_reason = ""
        """Why it must not be restarted; empty if it may be."""
        self.paused: tuple[int, Any] = (-1, None)
        """The ticket or limit of its last pause, and its state there."""
        self._memory_kills_before = memory_kills()
        self._waits_in_kernel = False
        """Whether it was killed, and has not ended within `KILL_S`."""
        self._reports: SimpleQueue[bytes] = SimpleQueue()
        self._connection = connection
        self._unsent = pickle.dumps(launch)
        """The launch spec, until it is sent. That of a learner has weights and moments."""
        self._thread = threading.Thread(target=self._send_and_receive, daemon=True)
        self._output = threading.Thread(target=_forward_output, args=(process.stdout,), daemon=True)
        self._start()

    def _start(self) -> None:
        """Add the process group, and start the threads; if that fails, kill the process and raise OSError."""
        try:
            GROUPS.add(self.process.pid)
            self._output.start()
            self._thread.start()
        except (OSError, RuntimeError) as error:  # RuntimeError: the limit of processes, which also counts threads
            self._kill_and_wait()
            GROUPS.remove(self.process.pid)
            self._connection.close()
            if self._output.ident is not None:
                self._output.join(LAST_REPORT_S)
            elif self.process.stdout is not None:
                self.process.stdout.close()
            if isinstance(error, OSError):
                raise
            raise OSError(errno.EAGAIN, str(error)) from error

    def _send_and_receive(self) -> None:
        """Send the launch spec, then receive reports until the process has ended."""
        with self._connection as connection, contextlib.suppress(EOFError, OSError):
            data, self._unsent = self._unsent, b""
            connection.send_bytes(data)
            del data
            while True:
                self._reports.put(connection.recv_bytes())
                self._notify()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def name(self) -> str:
        """The process, for messages."""
        return f"process {self.pid}"

    @property
    def has_ended(self) -> bool:
        """Whether `kill` was called: it has ended, or runs no code of its own any more."""
        return self.process.returncode is not None or self._waits_in_kernel

    def take_reports(self, seconds: float = 0.0) -> None:
        """Handle the received reports; wait up to `seconds` for the first one."""
        with contextlib.suppress(Empty):
            while True:
                report = self._reports.get(timeout=seconds) if seconds else self._reports.get_nowait()
                self._handle_report(pickle.loads(report))  # noqa: S301 - from our own child process
                seconds = 0.0

    def _handle_report(self, report: Report) -> None:
        if report.kind == "ready":
            self.ready = True
        elif report.kind == "failed":
            self.explained, self.failure, self.no_restart_reason = report.content
        elif report.kind == "paused":
            self.paused = report.content
        else:
            self._on_report(report)

    def is_alive(self) -> bool:
        """Whether it runs. If not, its process id stays reserved until `kill`: its group may still have processes."""
        if self.has_ended:
            return False
        if not hasattr(os, "waitid"):  # macOS, before Python 3.13
            return self.process.poll() is None
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:  # other code has already waited for it
            return False

    def exits_within(self, seconds: float) -> bool:
        """Wait for its end, up to `seconds`; return whether it has ended."""
        deadline = monotonic() + seconds
        while self.is_alive():
            if monotonic() > deadline:
                return False
            sleep(POLL_S)
        return True

    def kill(self) -> None:
        """Kill it and all processes that its envs have started, wait for its end, and handle its last reports.

        After that, another process may write to the same memory.
        """
        if not self.has_ended:
            self._kill_and_wait()
        if not self._waits_in_kernel:
            GROUPS.remove(self.process.pid)
        self._thread.join(LAST_REPORT_S)
        if self._thread.is_alive():  # a process that has left the group still has the socket
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as both:
                both.shutdown(socket.SHUT_RDWR)
            self._thread.join(LAST_REPORT_S)
        self._output.join(LAST_OUTPUT_S)  # likewise for its output
        self.take_reports()

    def _kill_and_wait(self) -> None:
        """Kill it and its process group, and wait for its end, for at most `KILL_S`."""
        GROUPS.kill(self.process.pid)  # it leads its own process group
        self.process.kill()  # also if it has left this group
        try:
            self.process.wait(KILL_S)
        except subprocess.TimeoutExpired:
            self._waits_in_kernel = True
            warnings.warn(
                f"{self.name} was killed, but has not ended within {KILL_S:g} s: it may wait for a disk or a device "
                "that does not answer. Its memory is free when it has ended",
                RuntimeWarning,
                stacklevel=3,
            )

    def exit_reason(self) -> str:
        """Return how it ended, after `kill`."""
        code = self.process.returncode
        if code is None:
            return "was killed, but has not ended"
        if code < 0:
            return f"was killed by {killed_by(-code, self._memory_kills_before)}"
        return f"ended with exit code {code}"


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
    """Start a child process.

    The output of its envs goes to stderr, line by line: stdout is for the results of a command, and a dashboard shows
    whole lines above itself.

    Args:
        module: name of the module whose `main` it runs, see `child_main.ChildModule`.
        launch: the launch spec. Its `parent` is the process id of this process.
        inherited: file descriptors that it inherits, with the same numbers.
        index: index of the process among those of its kind.
        threads: number of threads for BLAS and OpenMP.
        on_report: see `Child`.
        notify: see `Child`.

    Raises:
        OSError: the process, or a thread of this process, cannot be started.
    """
    ours, theirs = Pipe()
    code = f"from offbeat.runtime.children.child_main import run_child; run_child({module!r})"
    with _stop_signals_blocked():
        process = subprocess.Popen(  # noqa: S603 - our own code, in the same Python; -u: unbuffered output
            [sys.executable, "-u", "-P", "-c", code, str(theirs.fileno())],
            pass_fds=(theirs.fileno(), *inherited),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=_environment(threads),
            process_group=0,  # a ^C in the terminal reaches the parent alone
        )
    theirs.close()
    return Child(index, process, ours, launch, on_report, notify)


@contextlib.contextmanager
def _stop_signals_blocked() -> Iterator[None]:
    """Block the stop signals in this thread, so that a process that is started here starts with them blocked.

    Otherwise a signal could end the child before its handlers are set.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forward_output(printed: IO[bytes]) -> None:
    """Copy the output of a child to `sys.stderr`, until all processes that could write it have ended.

    Lines that cannot be written are dropped. The pipe is still read: an env that prints into a closed one would fail.
    A line that does not end, such as a progress bar's, is copied in parts.
    """
    with printed:
        while line := printed.readline(LONGEST_LINE):
            if sys.stderr is not None:
                print(line.decode(errors="replace"), end="", file=lossy(sys.stderr), flush=True)


def _environment(threads: int) -> dict[str, str]:
    """Return the environment variables of a child, with the module search path and thread counts set."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(search_path())} | dict.fromkeys(THREAD_VARIABLES, str(threads))


def search_path() -> list[str]:
    """Return the folders in which this process searches modules: the text in `sys.path`. Python ignores the rest."""
    return [entry or str(Path.cwd()) for entry in sys.path if isinstance(entry, str)]
