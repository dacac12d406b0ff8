"""The last training episodes, whose returns and lengths are averaged; with several policies, those of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from offbeat.core.types import Array

_MEANS = ("episode_return_mean", "episode_length_mean")


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


def metrics_of_all(windows: Sequence[EpisodeWindow]) -> dict[str, float | None]:
    """Return the metrics of several policies together: their means, weighted by how many episodes each has had so far.

    Policies learn one after the other, so the last episodes of all would be those of the policy that learns last.
    """
    total = sum(window.count for window in windows)
    known = [(window.count / total, window.metrics()) for window in windows if window.length_mean is not None]
    mean = {name: sum(weight * (of[name] or 0.0) for weight, of in known) if known else None for name in _MEANS}
    return {
        "episodes": total,
        **mean,
        "episode_return_min": min((of["episode_return_min"] or 0.0 for _, of in known), default=None),
        "episode_return_max": max((of["episode_return_max"] or 0.0 for _, of in known), default=None),
    }
