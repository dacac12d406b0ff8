"""The metrics that `info_metrics` asks for: means of what an env reports in its infos, in steps or in episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from offbeat.core.info_names import key_of, metric_of
from offbeat.core.policy_names import policy_key
from offbeat.core.types import Array
from offbeat.metrics.text import counted


class InfoMetrics:
    """Means of the values of the infos since the last line, by name; a name that is never reported causes a warning.

    In a run with several policies there are those of each policy too.
    """

    def __init__(self, names: Sequence[str], notify: Callable[[str], None]) -> None:
        """Average the values of these names; `notify` shows a warning to the user."""
        self._names, self._notify = tuple(names), notify
        self._sums = dict.fromkeys(map(metric_of, names), (0.0, 0.0))
        """metric -> sum and number of the values since the last line."""
        self._never_reported = set(names)
        """Names without a value so far, and without a warning."""

    def add(self, info: Array, policy: str) -> None:
        """Add values of a policy: the sum and the number of values of each name, [2, K]."""
        for name, total, count in zip(self._names, *info.tolist(), strict=True):
            of_all = metric_of(name)
            for metric in dict.fromkeys((of_all, policy_key(policy, of_all))):
                before = self._sums.get(metric, (0.0, 0.0))
                self._sums[metric] = (before[0] + total, before[1] + count)
            if count:
                self._never_reported.discard(name)

    def take_means(self) -> dict[str, float | None]:
        """Return the means, None for a name without a value, and start again."""
        means = {metric: total / count if count else None for metric, (total, count) in self._sums.items()}
        self._sums = dict.fromkeys(self._sums, (0.0, 0.0))
        return means

    def warn_of_unreported(self, episodes: int) -> None:
        """Warn once about each name that no info has had in these episodes: it may be misspelled."""
        for name in sorted(self._never_reported):
            self._notify(
                f"info_metrics or league.outcome names {key_of(name)}, but no info of a step had this key in "
                f"{counted(episodes, 'episode')}: check the infos that the env's step() returns"
            )
        self._never_reported.clear()

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        sums = {metric: list(sum_and_count) for metric, sum_and_count in self._sums.items()}
        return {"info": sums, "silent": sorted(self._never_reported)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state()`, for the names that it has."""
        saved, own = state["info"], tuple(map(metric_of, self._names))
        self._sums |= {metric: tuple(sums) for metric, sums in saved.items() if metric.endswith(own)}
        reported = {name for name in self._names if metric_of(name) in saved and name not in state["silent"]}
        self._never_reported -= reported
