"""Deadlines: detect workers that make no progress, whatever they do.

Each worker has a deadline on the board. It sets a new deadline whenever it starts something: an env call, a decision,
an update, a sleep. If it stops, because an env hangs, a library deadlocks, or a debugger or signal has stopped the
process, its deadline passes. The process that waits for the worker checks for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import Closed

START_FACTOR, LEAST_START_S = 2.5, 30.0
"""A process may take this many times `stall_timeout_s` to start and import its modules, and at least these seconds."""
CONFIRM_S = 0.5
"""Seconds to wait for a new deadline after one has passed. If a batch scheduler has stopped all processes of the run
for a while, all deadlines have passed; workers that continue then set a new one."""
ROW = 2
"""Numbers in the row of a deadline: its time, and the span."""


class Span(IntEnum):
    """What a worker is doing. Each span has its own time limit."""

    NOTHING = 0
    """It has not started, or has ended: there is no deadline."""
    START = 1
    """The process starts."""
    STEP = 2
    """An env call in which no episode can start."""
    RESET = 3
    """An env call in which an episode may start."""
    WORK = 4
    """Anything else."""
    INFERENCE = 5
    """It waits for an inference worker."""


_REASONS = {
    Span.NOTHING: "made no progress",
    Span.START: "did not start in time (stall_timeout_s)",
    Span.STEP: "was in a call of its envs that did not return in time (step_timeout_s)",
    Span.RESET: "was in a call of its envs that did not return in time (reset_timeout_s)",
    Span.WORK: "made no progress in time outside of its envs (stall_timeout_s)",
    Span.INFERENCE: "waited for an inference worker that did not answer in time (stall_timeout_s)",
}


class Deadline:
    """The deadline of one worker. Its parent writes it before the worker starts; after that, only the worker."""

    def __init__(self, row: NDArray[np.float64]) -> None:
        """Make a deadline on a row of the board, [ROW]."""
        self._row = row

    def set(self, span: Span, seconds: float) -> None:
        """Start a span with a limit in seconds."""
        self._row[1] = span  # first: a reader between the two writes can only see a wrong reason
        self._row[0] = monotonic() + seconds

    def end(self) -> None:
        """End the span: there is no deadline until the next one starts."""
        self._row[0] = 0

    @property
    def time(self) -> float:
        """Time on the clock of `monotonic()` by which the next span must start; 0: no deadline."""
        return float(self._row[0])

    @property
    def has_passed(self) -> bool:
        return 0 < self.time < monotonic()

    @property
    def span(self) -> Span:
        """What the worker is doing."""
        return Span(int(self._row[1]))

    @property
    def is_in_env(self) -> bool:
        """Whether the worker is in an env call."""
        return self.span in (Span.STEP, Span.RESET)

    @property
    def reason(self) -> str:
        """Message about a worker whose deadline has passed, to follow its name: 'actor 1 made no progress'."""
        return _REASONS[self.span]


class WorkerDeadline:
    """Sets the deadline of a worker, in the worker, with the time limits of the run. It is an `EnvCallWatch`."""

    def __init__(self, closed: NDArray[np.int64], deadline: Deadline, runtime: RuntimeConfig) -> None:
        """Make the setter of a worker's deadline.

        Args:
            closed: [1]: not 0 when the run is ending.
            deadline: the deadline of the worker.
            runtime: has the time limits.
        """
        self._closed, self._deadline = closed, deadline
        self._step_s, self._reset_s = runtime.step_timeout_s, runtime.reset_timeout_s
        self._stall_s = runtime.stall_timeout_s
        self._inference_s = start_timeout(runtime) + 2 * self._stall_s

    def enter(self, *, resets: bool) -> None:
        """Note that an env call starts; `resets`: whether an episode may start in the call.

        Raises:
            Closed: the run is ending.
        """
        self.require_open()
        if resets:
            self._deadline.set(Span.RESET, self._reset_s)
        else:
            self._deadline.set(Span.STEP, self._step_s)

    def leave(self) -> None:
        """Note that the env call has returned."""
        self.renew()

    def renew(self) -> None:
        """Set a new deadline for anything but an env call: a decision, an update, a sleep."""
        self._deadline.set(Span.WORK, self._stall_s)

    def check(self) -> None:
        """Set a new deadline, as `renew` does; raise `Closed` if the run is ending."""
        self.require_open()
        self.renew()

    def wait_for_inference(self) -> None:
        """Set a new deadline for an answer of an inference worker.

        It is long enough to notice that the worker hangs, to start it again, and to get the answer.
        """
        self._deadline.set(Span.INFERENCE, self._inference_s)

    def require_open(self) -> None:
        """Raise `Closed` if the run is ending."""
        if self._closed[0]:
            raise Closed


def start_timeout(runtime: RuntimeConfig) -> float:
    """Return the maximum seconds for a process to start, until it makes its envs."""
    return max(LEAST_START_S, START_FACTOR * runtime.stall_timeout_s)


class StallWatch:
    """Detects workers that have stalled, from their deadlines. It must be called often."""

    def __init__(self, deadlines: Sequence[Deadline]) -> None:
        self._deadlines = deadlines
        self._suspects: dict[int, tuple[float, float]] = {}
        """By worker whose deadline has passed: the time of this deadline, and the time at which this was detected."""

    def has_stalled(self, worker: int) -> bool:
        """Whether a worker's deadline has passed, and it has not set a new one for CONFIRM_S seconds."""
        deadline = self._deadlines[worker]
        if not deadline.has_passed:
            self._suspects.pop(worker, None)
            return False
        passed, now = deadline.time, monotonic()
        suspected, since = self._suspects.get(worker, (passed, now))
        self._suspects[worker] = (passed, since if suspected == passed else now)
        return suspected == passed and now - since >= CONFIRM_S
