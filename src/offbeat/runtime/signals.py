"""SIGINT and SIGTERM: the first asks for a stop at the next boundary, and a deadline makes sure of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

GRACE_S = 5.0
"""Seconds from the first signal to the moment at which the run gives up on a checkpoint of that moment."""


class TooLate(BaseException):
    """The boundary did not come in time, or a second signal did: leave at once, on the last checkpoint."""


class StopSignals:
    """While entered, catches the stop signals; outside of the main thread it catches nothing."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The first signal that came."""
        self._previous: dict[signal.Signals, object] = {}
        self._patient = self._late = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handlers = {signal.SIGINT: self._stop, signal.SIGTERM: self._stop, signal.SIGALRM: self._too_late}
            self._previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        return self

    def at_rest(self) -> None:
        """The boundary has come: what remains is to save, however long it takes. A second signal still ends it."""
        if self._previous:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def patience(self) -> Iterator[None]:
        """While entered, let the deadline wait: a checkpoint that is being written is not given up for being large.

        Raises:
            TooLate: when it is left, if the deadline has passed meanwhile; at once, at a second signal.
        """
        self._patient = True
        try:
            yield
        finally:
            self._patient = False
        if self._late:
            raise TooLate

    def disarm(self) -> None:
        """From here on nothing is to be stopped any more: the run is being put in order."""
        if self._previous:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number in self._previous:
                signal.signal(number, signal.SIG_IGN)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            raise TooLate
        self.received = signal.Signals(number)
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)

    def _too_late(self, _number: int, _frame: FrameType | None) -> None:
        if not self._patient:
            raise TooLate
        self._late = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.disarm()
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
