"""SIGINT and SIGTERM: the first asks for a stop at the next boundary, and a deadline makes sure of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Self

GRACE_S = 5.0
"""Seconds from the first signal to the moment at which the run gives up on a checkpoint of that moment."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopImmediately(BaseException):
    """The boundary did not come in time, or a second signal did: leave at once, on the last checkpoint."""


class StopSignals:
    """While entered, catches the stop signals; outside of the main thread it catches nothing.

    The deadline is kept by a thread, which sends the main thread one of these signals: alarms stay the caller's.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The first signal that came."""
        self._previous: dict[signal.Signals, Any] = {}
        self._events: SimpleQueue[int | None] = SimpleQueue()
        """The number of the first signal, then None: no deadline is needed any more. A handler may put into it."""
        self._timer: threading.Thread | None = None
        self._due = False
        """Whether the deadline has passed, and the next signal tells of that."""
        self._deadline_suspended = self._late = self._over = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
            # One that was not installed from Python cannot be put back, so it stays.
            self._previous = {number: handler for number, handler in handlers.items() if handler is not None}
            self._timer = threading.Thread(target=self._keep_deadline, args=(threading.get_ident(),), daemon=True)
            self._timer.start()  # here, as a handler must not start threads
            for number in self._previous:
                signal.signal(number, self._stop)
        return self

    def end_deadline(self) -> None:
        """The boundary has come: what remains is to save, however long it takes. A second signal still ends it."""
        if self._timer is not None:
            self._events.put(None)
            self._timer.join()
        self._due = False

    @contextmanager
    def suspend_deadline(self) -> Iterator[None]:
        """While entered, let the deadline wait: a checkpoint that is being written is not given up for being large.

        Raises:
            StopImmediately: when it is left, if the deadline has passed meanwhile; at once, at a second signal.
        """
        self._deadline_suspended = True
        try:
            yield
        finally:
            self._deadline_suspended = False
        if self._late:
            raise StopImmediately

    def disarm(self) -> None:
        """From here on nothing is to be stopped any more: the run is being put in order."""
        self._over = True
        self.end_deadline()
        for number in self._previous:
            signal.signal(number, signal.SIG_IGN)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        if self._over:
            return
        if self._due:
            self._due = False
            self._stop_immediately()
        elif self.received is not None:
            raise StopImmediately
        else:
            self.received = signal.Signals(number)
            self._events.put(number)

    def _keep_deadline(self, thread: int) -> None:
        """Tell the main thread when the deadline has passed; a signal interrupts whatever it waits in."""
        number = self._events.get()
        if number is None:
            return
        try:
            self._events.get(timeout=GRACE_S)
        except Empty:
            self._due = True
            signal.pthread_kill(thread, number)

    def _stop_immediately(self) -> None:
        if not self._deadline_suspended:
            raise StopImmediately
        self._late = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.disarm()
        for number, handler in self._previous.items():
            signal.signal(number, handler)
