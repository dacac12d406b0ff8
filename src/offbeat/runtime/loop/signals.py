"""The stop signals: the first signal stops the run at the next boundary, at the latest after GRACE_S seconds."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Self

from offbeat.core.process.stop_signals import StopRequest, replaceable_handlers
from offbeat.core.process.threads import start_thread

GRACE_S = 5.0
"""Seconds from the first signal to the deadline: a run without a boundary until then stops without a checkpoint."""


class StopImmediately(BaseException):
    """Stop at once, with only the last checkpoint: the deadline has passed, or a second signal was received.

    The text says which of them.
    """


class GracefulStop:
    """While entered, the first stop signal asks the run to stop at its next boundary, before the deadline.

    Outside of the main thread it does nothing. A thread watches the deadline and sends the main thread a signal when it
    has passed. `signal.alarm` is not used, so the caller can use it.
    """

    def __init__(self) -> None:
        self._request = StopRequest()
        self._previous: dict[signal.Signals, Any] = {}
        self._events: SimpleQueue[int | None] = SimpleQueue()
        """Messages to the timer thread: the number of the first signal; None to end the deadline. A signal handler may
        put messages into a SimpleQueue."""
        self._timer: threading.Thread | None = None
        self._deadline_signal_sent = False
        """Whether the deadline has passed, so that the next signal comes from the timer thread."""
        self._deadline_suspended = False
        self._passed_while_suspended = False
        self._disarmed = False

    @property
    def received(self) -> signal.Signals | None:
        """The first stop signal; None: no signal yet."""
        return self._request.signal

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = replaceable_handlers()
            self._timer = threading.Thread(
                target=self._keep_deadline, args=(threading.get_ident(),), name="offbeat stop deadline", daemon=True
            )
            start_thread(self._timer)  # here, because a signal handler must not start threads
            for number in self._previous:
                signal.signal(number, self._stop)
        return self

    def end_deadline(self) -> None:
        """End the deadline at a boundary: the last save may take any time. A second signal still stops it."""
        if self._timer is not None:
            self._events.put(None)
            self._timer.join()
        self._deadline_signal_sent = False

    @contextmanager
    def suspend_deadline(self) -> Iterator[None]:
        """Suspend the deadline inside the context, so that a large checkpoint can be completed.

        Raises:
            StopImmediately: at the end of the context, if the deadline has passed; at once at a second signal.
        """
        self._deadline_suspended = True
        try:
            yield
        finally:
            self._deadline_suspended = False
        if self._passed_while_suspended:
            raise _too_late()

    def disarm(self) -> None:
        """Ignore stop signals from now on, so that the run can clean up."""
        self._disarmed = True
        self.end_deadline()
        for number in self._previous:
            signal.signal(number, signal.SIG_IGN)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        if self._disarmed:
            return
        if self._deadline_signal_sent:
            self._deadline_signal_sent = False
            self._stop_immediately()
            return
        which = self._request.take(number)
        if which == "first":
            self._events.put(number)
        elif which == "second":
            raise StopImmediately("a second signal was received")

    def _keep_deadline(self, thread: int) -> None:
        """Wait for the first signal, then for the deadline; send the main thread a signal when it has passed.

        The signal interrupts any wait of the main thread.
        """
        number = self._events.get()
        if number is None:
            return
        try:
            self._events.get(timeout=GRACE_S)
        except Empty:
            self._deadline_signal_sent = True
            signal.pthread_kill(thread, number)

    def _stop_immediately(self) -> None:
        if not self._deadline_suspended:
            raise _too_late()
        self._passed_while_suspended = True

    def restore(self) -> None:
        """Restore the handlers of the caller; a second call does nothing."""
        self.disarm()
        previous, self._previous = self._previous, {}
        for number, handler in previous.items():
            signal.signal(number, handler)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.restore()


def _too_late() -> StopImmediately:
    return StopImmediately(f"the run could not pause within {GRACE_S:g} seconds of the signal")
