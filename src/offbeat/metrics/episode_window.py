"""The last training episodes, whose returns and lengths are averaged."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from offbeat.core.types import Array


class EpisodeWindow:
    """The last training episodes, of a run or of one of its policies."""

    def __init__(self, size: int) -> None:
        self._returns: deque[float] = deque(maxlen=size)
        self._lengths: deque[int] = deque(maxlen=size)
        self.count = 0
        """All episodes that have ended so far."""

    def add(self, returns: Array, lengths: Array) -> None:
        """Add episodes: [n] returns and [n] lengths in env steps."""
        self._returns.extend(returns.tolist())
        self._lengths.extend(lengths.tolist())
        self.count += len(returns)

    @property
    def length_mean(self) -> float | None:
        """Mean length in env steps; None before an episode has ended."""
        return fmean(self._lengths) if self._lengths else None

    def metrics(self) -> dict[str, float | None]:
        """Return the metrics of these episodes."""
        return {
            "episodes": self.count,
            "episode_return_mean": fmean(self._returns) if self._returns else None,
            "episode_return_min": min(self._returns, default=None),
            "episode_return_max": max(self._returns, default=None),
            "episode_length_mean": self.length_mean,
        }

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"returns": list(self._returns), "lengths": list(self._lengths), "totals": {"episodes": self.count}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state()`."""
        self._returns.extend(state["returns"])
        self._lengths.extend(state["lengths"])
        self.count = state["totals"]["episodes"]
