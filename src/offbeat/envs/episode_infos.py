"""The one number that those in the infos of an episode become, for names in `info_metrics` such as is_success:last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from offbeat.core.info_names import metric_of, reduction_of
from offbeat.core.types import F64, Array
from offbeat.envs.contract import Outcome

_REDUCE: dict[str, Callable[[F64, F64], F64]] = {"last": lambda _before, new: new, "max": np.maximum, "sum": np.add}
"""Reduction -> the number of an episode, from the one before a row and the one in the row."""


class EpisodeInfos:
    """Reduces the numbers in the infos of each episode to one.

    They are counted as rewards are for its return, but not those of the reset row after a lost life in ale-py's games.
    """

    def __init__(self, names: Sequence[str], *shape: int) -> None:
        """Reduce the numbers with these K names, of episodes in an array of this shape."""
        reductions = {index: reduction for index, name in enumerate(names) if (reduction := reduction_of(name))}
        self._reduce = {index: _REDUCE[reduction] for index, reduction in reductions.items()}
        self._metrics = {metric_of(names[index]): index for index in reductions}
        self.numbers = np.full((*shape, len(names)), np.nan)
        """[*shape, K]: the numbers of the episodes so far. NaN where there is none, and for names without a reduction.
        """

    def add(self, info: F64, episodes: Any) -> None:
        """Add a row of n different episodes.

        Args:
            info: the numbers in the infos of the row, [n, K]; NaN where there is none.
            episodes: index of the episodes in an array of the shape.
        """
        for index, reduce in self._reduce.items():
            of_all, new = self.numbers[..., index], info[:, index]
            before = of_all[episodes]
            reduced = np.where(np.isnan(before), new, reduce(before, new))
            of_all[episodes] = np.where(np.isfinite(new), reduced, before)

    def add_outcome(self, outcome: Outcome, columns: slice) -> F64:
        """Add a row of columns, each with an episode of its own; where one ends, the next one starts.

        Returns:
            [n, K]: what is recorded in the row. Without a reduction it is the number of the row, and with one that of
            the episode, in the row that ends it. NaN where there is none.
        """
        if not self._reduce:
            return outcome.info
        self.add(outcome.info, columns)
        recorded, numbers, ended = outcome.info.copy(), self.numbers[columns], outcome.ended
        for index in self._reduce:
            recorded[:, index] = np.where(ended, numbers[:, index], np.nan)
        numbers[ended] = np.nan
        return recorded

    def state(self) -> dict[str, Array]:
        """Return the numbers of the unfinished episodes, by metric."""
        return {metric: self.numbers[..., index].copy() for metric, index in self._metrics.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state()`."""
        for metric, index in self._metrics.items():
            self.numbers[..., index] = state[metric]
