"""Deadlines: the one place that says whether a worker still makes progress, whatever it is doing.

Each worker has a row of memory with the moment by which it must be heard of next. It sets a new moment whenever it
begins something: a call of its envs, a decision, an update, a nap. So if it stands still, because an env hangs, a
library deadlocks, or a debugger or a signal has stopped it, its moment passes. Who waits for the worker looks for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from threading import Event, Thread
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import Closed

STEP_TIMEOUT_S = 60.0
"""Seconds for one call of an env, unless `step_timeout_s` says otherwise."""
RESET_TIMEOUT_S = 300.0
"""The same where an episode begins, unless `reset_timeout_s` says otherwise."""
STALL_TIMEOUT_S = 120.0
"""Seconds for anything else, such as one update of a lock-free worker, unless `stall_timeout_s` says otherwise."""
START_S, LEAST_START_S = 300.0, 30.0
"""Seconds that a process gets to start and to import what it needs, unless `stall_timeout_s` is given; and at least."""
CONFIRM_S = 0.5
"""Seconds for which a worker is still watched when its moment has passed. If a batch scheduler had stopped all
processes of the run for a while, every moment has passed; the workers that go on then set a new one."""
ROW = 2
"""Numbers in a row: the moment, and the span."""


class Span(IntEnum):
    """What a worker is doing, as far as it matters for how long that may take."""

    NOTHING = 0
    """Nobody waits for it: it has not started, or has ended."""
    START = 1
    STEP = 2
    RESET = 3
    WORK = 4


_TOO_LONG = {
    Span.NOTHING: "made no progress",
    Span.START: "did not start in time (stall_timeout_s)",
    Span.STEP: "was in a call of its envs that did not return in time (step_timeout_s)",
    Span.RESET: "was in a call of its envs that did not return in time (reset_timeout_s)",
    Span.WORK: "made no progress in time outside of its envs (stall_timeout_s)",
}


class Deadline:
    """One worker's row. It has one writer: who starts the worker, and from then on the worker."""

    def __init__(self, row: NDArray[np.float64]) -> None:
        """Address a row, [ROW] float64."""
        self._row = row

    def set(self, span: Span, seconds: float) -> None:
        """Begin a span, which may take so many seconds."""
        self._row[1] = span  # first: whoever reads between the two sees at worst another reason
        self._row[0] = monotonic() + seconds

    @property
    def moment(self) -> float:
        """The moment of `monotonic()` by which the next span must begin; 0 for none."""
        return float(self._row[0])

    @property
    def has_passed(self) -> bool:
        return 0 < self.moment < monotonic()

    @property
    def is_in_env(self) -> bool:
        """Whether the span is a call of an env."""
        return int(self._row[1]) in (Span.STEP, Span.RESET)

    @property
    def reason(self) -> str:
        """What to say of a worker whose moment has passed: 'actor 1' and this make a sentence."""
        return _TOO_LONG[Span(int(self._row[1]))]


class WorkerDeadline:
    """The worker's side: how long each span may take is a setting of the run."""

    def __init__(self, closed: NDArray[np.int64], deadline: Deadline, runtime: RuntimeConfig) -> None:
        """Keep a deadline.

        Args:
            closed: [1], not 0 once nothing is wanted any more.
            deadline: the worker's.
            runtime: says how long a span may take.
        """
        self._closed, self._deadline = closed, deadline
        self._env = (step_timeout(runtime), reset_timeout(runtime))
        self._stall = stall_timeout(runtime)

    def enter(self, *, resets: bool) -> None:
        """Begin a call of an env; `resets` says whether an episode may begin in it.

        Raises:
            Closed: what is being acted is no longer wanted.
        """
        if self._closed[0]:
            raise Closed
        self._deadline.set(Span.RESET if resets else Span.STEP, self._env[resets])

    def leave(self) -> None:
        """End a call of an env."""
        self.renew()

    def renew(self) -> None:
        """Begin the next piece of anything else: a decision, an update, a nap."""
        self._deadline.set(Span.WORK, self._stall)


def step_timeout(runtime: RuntimeConfig) -> float:
    """Return the seconds that a call of an env may take."""
    return runtime.step_timeout_s or STEP_TIMEOUT_S


def reset_timeout(runtime: RuntimeConfig) -> float:
    """Return the seconds that a call of an env may take in which an episode begins."""
    return runtime.reset_timeout_s or RESET_TIMEOUT_S


def stall_timeout(runtime: RuntimeConfig) -> float:
    """Return the seconds that anything else of a worker may take."""
    return runtime.stall_timeout_s or STALL_TIMEOUT_S


def start_timeout(runtime: RuntimeConfig) -> float:
    """Return the seconds that a process gets until it makes its envs."""
    return max(LEAST_START_S, runtime.stall_timeout_s or START_S)


@contextmanager
def notifying_if_slow(what: str, notify: Callable[[str], None]) -> Iterator[None]:
    """Tell every minute that a piece of work in this thread is still under way: nobody else could end it."""
    over, begun = Event(), monotonic()

    def remind() -> None:
        while not over.wait(STEP_TIMEOUT_S):
            notify(f"still {what} after {monotonic() - begun:.0f} s: if it hangs, press Ctrl-C")

    Thread(target=remind, daemon=True).start()
    try:
        yield
    finally:
        over.set()


class StallWatch:
    """Tells which workers stand still; whoever waits for workers asks it often."""

    def __init__(self, deadlines: Sequence[Deadline]) -> None:
        self._deadlines = deadlines
        self._suspects: dict[int, tuple[float, float]] = {}
        """Worker -> its moment, which has passed, and when that was seen first."""

    def has_stalled(self, worker: int) -> bool:
        """Whether a worker's moment has passed, and it has not set another one while that was confirmed."""
        deadline = self._deadlines[worker]
        if not deadline.has_passed:
            self._suspects.pop(worker, None)
            return False
        moment, now = deadline.moment, monotonic()
        known, since = self._suspects.get(worker, (moment, now))
        self._suspects[worker] = (moment, since if known == moment else now)
        return known == moment and now - since >= CONFIRM_S
