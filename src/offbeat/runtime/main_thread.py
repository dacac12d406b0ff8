"""Tells the user when the main thread makes no progress in an env call, a learning step or a callback.

The main thread of a run is the one that calls `train`. Nothing can end it, so the run goes on when the call returns.
Ctrl-C does, but not while compiled code hangs, while the run closes its envs, or if this thread is not the main thread
of the process: then only a kill does.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread, get_ident, main_thread
from time import monotonic

import numpy as np

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import place_in_user_code
from offbeat.core.process.threads import join_all, start_thread
from offbeat.envs.call_watch import EnvCallWatch
from offbeat.runtime.deadline import ROW, Deadline, Span, StallWatch
from offbeat.runtime.reporting import Notify

CHECK_S = 0.25
"""Seconds between two checks."""


@dataclass(frozen=True)
class _Watched:
    """What the main thread does while it is watched."""

    notify: Notify
    """Is called, in another thread, with the message."""
    problem: str = ""
    """Start of the message; '': the thread is in an env call, which the deadline describes."""
    advice: str = ""
    """What to do if it hangs; '': what ends this thread."""
    remedy: str = ""
    """End of the message: how this is avoided in another run."""
    updates_made: Callable[[], int] = lambda: 0
    """Returns the number of updates, which are the progress of a learning step."""


class MainThreadWatch:
    """Watches the main thread of a run, in env calls, learning steps, callbacks and the end of envs. A run has one.

    The thread that checks for progress starts at the first of them. It notifies the user once for each call or learning
    step that makes no progress in time. It may have the cores and the niceness of the learner. That does not
    matter: it runs for less than 0.1 ms, four times a second.
    """

    def __init__(self, runtime: RuntimeConfig) -> None:
        """Make a watch with the time limits in `runtime`."""
        self._env_s, self._stall_s = (runtime.step_timeout_s, runtime.reset_timeout_s), runtime.stall_timeout_s
        self.has_log = False
        """Whether a log gets the stack of the thread. If not, a message says where the thread is."""
        self._deadline = Deadline(np.zeros(ROW))
        self._watched: _Watched | None = None
        self._thread = 0
        """Identifier of the main thread; 0: it was not watched yet."""
        self._checker: Thread | None = None
        """The thread that checks."""
        self._closed = Event()

    def env_calls(self, notify: Notify, remedy: str = "") -> EnvCallWatch:
        """Return the watch of the calls of some envs; `remedy` is the end of the message about one of them, or ''."""
        return _EnvCalls(self, _Watched(notify, remedy=remedy))

    def learning_steps(
        self, notify: Notify, updates_made: Callable[[], int]
    ) -> Callable[[], AbstractContextManager[None]]:
        """Return the watch of learning steps; `updates_made` returns the number of updates, their progress."""
        problem = self._for_too_long("the learner has made no update")
        return partial(self._working, _Watched(notify, problem, updates_made=updates_made))

    def callback(self, notify: Notify, name: str) -> AbstractContextManager[None]:
        """Watch a call of a callback; `name` is that of the method and the callback, for the message."""
        return self._working(_Watched(notify, self._for_too_long(f"{name} has not returned")))

    def closing(self, notify: Notify) -> AbstractContextManager[None]:
        """Watch the end of the envs of this process, when the run ends and stop signals are ignored."""
        problem, advice = self._for_too_long("the envs have not closed"), "kill the process: Ctrl-C does not end it"
        return self._working(_Watched(notify, problem, advice))

    def _for_too_long(self, what: str) -> str:
        return f"{what} for {self._stall_s:g} s (stall_timeout_s)"

    @contextmanager
    def _working(self, watched: _Watched) -> Iterator[None]:
        self.start(watched, Span.WORK)
        try:
            yield
        finally:
            self.end()

    def start(self, watched: _Watched, span: Span) -> None:
        """Note that the calling thread starts a span."""
        if not self._thread:
            self._thread = get_ident()
            checker = Thread(target=self._check, name="offbeat watch", daemon=True)
            start_thread(checker)
            self._checker = checker
        self._watched = watched
        self._deadline.set(span, self._stall_s if span is Span.WORK else self._env_s[span is Span.RESET])

    def renew(self) -> None:
        """Start the time of a learning step again, if there is one: it waits for other learners, which are watched."""
        if self._deadline.time:
            self._deadline.set(Span.WORK, self._stall_s)

    def end(self) -> None:
        """Note that the span has ended."""
        self._deadline.end()

    def close(self) -> None:
        """End the thread that checks, unless it hangs while it notifies the user. Nothing is watched any more."""
        self._closed.set()
        self._watched = None  # it may refer to the parts of the run, which refer to this object
        if self._checker is not None:
            join_all([self._checker])

    def _check(self) -> None:
        stalls, notified, made, progressed = StallWatch([self._deadline]), 0.0, -1, monotonic()
        while not self._closed.wait(CHECK_S):
            watched = self._watched
            if watched is None:
                continue
            before, made = made, watched.updates_made()
            if made != before:  # also if something else is watched now: it gets stall_timeout_s of its own
                progressed = monotonic()
            time = self._deadline.time
            progresses = self._deadline.span == Span.WORK and monotonic() - progressed < self._stall_s
            if stalls.has_stalled(0) and not progresses and time != notified:
                notified = time
                self._notify(watched)

    def _notify(self, watched: _Watched) -> None:
        """Notify the user, with the stack of the thread for the log."""
        is_main = self._thread == main_thread().ident  # in another one, `train` catches no signals
        problem = watched.problem or f"{'the main thread' if is_main else 'the thread'} {self._deadline.reason}"
        advice = watched.advice or ("press Ctrl-C, or kill the process" if is_main else "kill the process")
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - the documented way to other threads' frames
        where = "log.txt says where it is" if self.has_log or frame is None else f"it is in {place_in_user_code(frame)}"
        stack = "" if frame is None else "".join(traceback.format_stack(frame))
        text = f"{problem}, and a thread cannot be killed. If it hangs, {advice}; {where}{watched.remedy}"
        watched.notify(text, stack)


class _EnvCalls:
    """The `EnvCallWatch` of the calls of some envs in the main thread."""

    def __init__(self, main_thread: MainThreadWatch, watched: _Watched) -> None:
        self._main_thread, self._watched = main_thread, watched

    def enter(self, *, resets: bool) -> None:
        """Note that an env call starts; `resets`: whether an episode may start in the call."""
        self._main_thread.start(self._watched, Span.RESET if resets else Span.STEP)

    def leave(self) -> None:
        """Note that the call has returned."""
        self._main_thread.end()
