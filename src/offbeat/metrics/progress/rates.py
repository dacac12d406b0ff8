"""How fast a run is over windows of time."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import NamedTuple

from offbeat.metrics.progress.status import Status


class _Sample(NamedTuple):
    """The counters of a run at a time."""

    now: float
    env_steps: int
    updates: int


class Rates:
    """SPS and UPS over windows of time, from samples that are at least half a second apart."""

    windows_s = (10.0, 60.0, 300.0)

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._now = _Sample(0.0, 0, 0)

    def add(self, now: float, env_steps: int, updates: int) -> None:
        """Add a sample. The counters need not start at 0: those of a resumed run do not.

        Args:
            now: time of a clock, in seconds.
            env_steps: env steps so far.
            updates: updates so far.
        """
        self._now = _Sample(now, env_steps, updates)
        if not self._samples or now - self._samples[-1].now >= 0.5:
            self._samples.append(self._now)
        while len(self._samples) > 2 and self._samples[1].now <= now - self.windows_s[-1]:
            self._samples.popleft()

    @property
    def elapsed_s(self) -> float:
        """Seconds between the oldest and the newest sample."""
        return self._now.now - self._samples[0].now if self._samples else 0.0

    def over(self, window_s: float) -> tuple[float | None, float | None]:
        """(SPS, UPS) over the last ``window_s`` seconds, or over the whole run if it is shorter.

        The window has whole learning steps, at least one. The present learning step counts only as far as it takes
        longer than the last one.
        """
        if not self._samples:
            return None, None
        now, changes = self._now.now, self._changes()
        last, earlier = changes[-1], changes[max(0, len(changes) - 2)]
        since = max((change for change in changes[:-1] if change.now <= now - window_s), default=changes[0])
        seconds = max(last.now, now - (last.now - earlier.now)) - since.now
        if seconds <= 0:
            return None, None
        return (last.env_steps - since.env_steps) / seconds, (last.updates - since.updates) / seconds

    def _changes(self) -> list[_Sample]:
        """Return the first sample, and those in which a counter differs from the sample before."""
        samples = [*self._samples, self._now]
        return [
            samples[0],
            *(
                later
                for earlier, later in pairwise(samples)
                if (earlier.env_steps, earlier.updates) != (later.env_steps, later.updates)
            ),
        ]

    def eta_s(self, steps: int) -> float | None:
        """Seconds until ``steps`` env steps at the SPS of the last minute; None while that is not known."""
        sps, _ = self.over(60.0)
        return max(0, steps - self._now.env_steps) / sps if sps else None

    def end_s(self, status: Status) -> float | None:
        """Seconds until this part of the run ends, by its env steps or its limit of time; None while not known."""
        known = (self.eta_s(status.ends_at), status.limit_s)
        return min((seconds for seconds in known if seconds is not None), default=None)
