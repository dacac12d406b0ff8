"""The metrics that `info_metrics` asks for: means of what an env reports in its infos."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from offbeat.core.types import Array
from offbeat.metrics.text import counted


class InfoMetrics:
    """Means of the values of the infos since the last line, by name; a name that is never reported causes a warning."""

    def __init__(self, names: Sequence[str], notify: Callable[[str], None]) -> None:
        """Average the values of these names; `notify` shows a warning to the user."""
        self._notify = notify
        self._sums = dict.fromkeys(names, (0.0, 0.0))
        """name -> sum and number of the values since the last line."""
        self._never_reported = set(names)
        """Names without a value so far, and without a warning."""

    def add(self, info: Array) -> None:
        """Add values: the sum and the number of values of each name, [2, K]."""
        for name, total, count in zip(self._sums, *info.tolist(), strict=True):
            before = self._sums[name]
            self._sums[name] = (before[0] + total, before[1] + count)
            if count:
                self._never_reported.discard(name)

    def take_means(self) -> dict[str, float | None]:
        """Return the means, None for a name without a value, and start again."""
        means = {f"info/{name}_mean": total / count if count else None for name, (total, count) in self._sums.items()}
        self._sums = dict.fromkeys(self._sums, (0.0, 0.0))
        return means

    def warn_of_unreported(self, episodes: int) -> None:
        """Warn once about each name that no info has had in these episodes: it may be misspelled."""
        for name in sorted(self._never_reported):
            self._notify(
                f"info_metrics or league.outcome names {name}, but no info of a step had this key in "
                f"{counted(episodes, 'episode')}: check the infos that the env's step() returns"
            )
        self._never_reported.clear()

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        sums = {name: list(sum_and_count) for name, sum_and_count in self._sums.items()}
        return {"info": sums, "silent": sorted(self._never_reported)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state()`, for the names that it has."""
        for name in self._sums.keys() & state["info"].keys():
            self._sums[name] = tuple(state["info"][name])
        self._never_reported -= state["info"].keys() - set(state["silent"])
