"""Tells the user when the main thread makes no progress: in an env call, in serial, or in a learning step.

Nothing can end a thread, so the run goes on when the call returns. Ctrl-C ends it, but not while
compiled code hangs: then only a kill does.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread, get_ident
from time import monotonic

import numpy as np

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.envs.current import env_called_by
from offbeat.runtime.deadline import ROW, Deadline, Span, StallWatch, reset_timeout, stall_timeout, step_timeout
from offbeat.runtime.supervisor import Notify

CHECK_S = 0.25
"""Seconds between two checks."""


class MainThreadWatch:
    """Watches the thread that makes it, during env calls and learning steps. It is a `Watch` of env calls."""

    def __init__(
        self, runtime: RuntimeConfig, notify: Notify, updates_made: Callable[[], int] = lambda: 0, remedy: str = ""
    ) -> None:
        """Start the thread that checks for progress.

        Args:
            runtime: has the time limits.
            notify: is called, in another thread, once for each call or learning step that makes no progress in time.
            updates_made: returns the number of updates, which are the progress of a learning step.
            remedy: end of the message about an env call: how such a call is ended in another run; or ''.
        """
        self._notify, self._updates_made, self._remedy = notify, updates_made, remedy
        self._env_s, self._stall_s = (step_timeout(runtime), reset_timeout(runtime)), stall_timeout(runtime)
        self._deadline = Deadline(np.zeros(ROW))
        self._thread, self._closed = get_ident(), Event()
        Thread(target=self._check, name="offbeat watch", daemon=True).start()

    def enter(self, *, resets: bool) -> None:
        """Note that an env call starts; `resets`: whether an episode may start in the call."""
        self._deadline.set(Span.RESET if resets else Span.STEP, self._env_s[resets])

    def leave(self) -> None:
        """Note that the call has returned."""
        self._deadline.end()

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Watch a learning step."""
        self._deadline.set(Span.WORK, self._stall_s)
        try:
            yield
        finally:
            self._deadline.end()

    def close(self) -> None:
        """End the thread that checks."""
        self._closed.set()

    def _check(self) -> None:
        stalls, notified, made, progressed = StallWatch([self._deadline]), 0.0, -1, monotonic()
        while not self._closed.wait(CHECK_S):
            before, made = made, self._updates_made()
            if made != before:
                progressed = monotonic()
            time = self._deadline.time
            learns = self._deadline.span == Span.WORK and monotonic() - progressed < self._stall_s
            if stalls.has_stalled(0) and not learns and time != notified:
                notified = time
                self._deadline.name_env(env_called_by(self._thread), time)
                self._notify(self._message(), self._stack())

    def _message(self) -> str:
        if not self._deadline.is_in_env:
            return (
                f"the learner has made no update for {self._stall_s:g} s (stall_timeout_s), and a thread cannot be "
                "killed. If it hangs, press Ctrl-C, or kill the process; log.txt says where it is"
            )
        return (
            f"the main thread {self._deadline.reason}, and a thread cannot be killed. If it hangs, press Ctrl-C, or "
            f"kill the process; log.txt says where it is{self._remedy}"
        )

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - the documented way to other threads' frames
        return "".join(traceback.format_stack(frame)) if frame is not None else ""
