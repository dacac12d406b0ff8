"""What each side has got in the current games of an actor, until a game ends with a result for the league."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from offbeat.core.types import F64


class GameOutcomes:
    """Rewards and reported outcomes of each side, in the current game of each world."""

    def __init__(self, sides: int, worlds: int, *, reported: bool) -> None:
        """Start a game in each world.

        Args:
            sides: number of sides.
            worlds: number of worlds.
            reported: whether the env reports outcomes (`outcome` of the league); else they are undiscounted returns.
        """
        shape = worlds, sides
        self._reported = reported
        self._returns = np.zeros(shape)
        """[W, sides], as the next three: sums of the rewards."""
        self._outcomes = np.full(shape, np.nan)
        """Sums of the outcomes that the env has reported; NaN: none so far."""
        self._agents = np.zeros(shape, np.int64)
        """Number of agents whose mean is the outcome of their side: those whose episodes have ended, or for which the
        env has reported an outcome."""
        self._cut = np.zeros(shape, np.bool_)
        """Whether an agent was truncated without an outcome."""
        self._advanced = np.zeros(worlds, np.bool_)
        """[W]: whether random steps were taken in the game, before its first ticket: it has no result."""

    def add_reward(self, world: int, side: int, reward: float) -> None:
        """Add the reward of an agent of a side in a row."""
        self._returns[world, side] += reward

    def add_outcome(self, world: int, side: int, outcome: float) -> None:
        """Add the outcome that the env has reported for an agent of a side."""
        self._outcomes[world, side] = np.nansum((self._outcomes[world, side], outcome))
        self._agents[world, side] += 1

    def add_end(self, world: int, side: int) -> None:
        """Note that the episode of an agent of a side has ended, and that its return is its outcome."""
        self._agents[world, side] += 1

    def add_cut(self, world: int, side: int) -> None:
        """Note that an agent of a side was truncated, and that the env has not reported its outcome."""
        self._cut[world, side] = True

    def take(self, world: int) -> F64 | None:
        """Return the outcome of each side, [sides], in the game that has ended in a world; the next one starts.

        None: the game has no result, because it began with random steps, or because an outcome is missing: no agent of
        a side appeared, the env reported no outcome, or a limit cut the game before the env reported one of each side.
        If the env reported that of one side only in a game that was not cut, the outcome of the other side is NaN.
        """
        sums = self._outcomes[world] if self._reported else self._returns[world]
        outcomes: F64 = sums / np.maximum(self._agents[world], 1)
        has_result = self._has_result(world)
        self._advanced[world] = False
        self._returns[world], self._outcomes[world], self._agents[world], self._cut[world] = 0, np.nan, 0, False
        return outcomes if has_result else None

    def _has_result(self, world: int) -> bool:
        """Whether the game that has ended in a world has a result: see `take`."""
        if self._advanced[world]:
            return False
        missing = self._agents[world] == 0
        if not missing.any():
            return True
        if not self._reported or missing.all():
            return False
        return not (missing & self._cut[world]).any()

    def reset(self, *, advanced: bool) -> None:
        """Start a game in each world. `advanced`: it begins with random steps, so it has no result."""
        self._returns[:], self._outcomes[:], self._agents[:], self._cut[:] = 0, np.nan, 0, False
        self._advanced[:] = advanced

    def state(self) -> dict[str, Any]:
        """Return the state between two tickets."""
        return {
            "returns": self._returns.copy(),
            "outcomes": self._outcomes.copy(),
            "reports": self._agents.copy(),  # the name in checkpoints
            "cut": self._cut.copy(),
            "advanced": self._advanced.copy(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue the games of what `state` returned."""
        self._returns[:], self._outcomes[:] = state["returns"], state["outcomes"]
        self._agents[:], self._cut[:], self._advanced[:] = state["reports"], state["cut"], state["advanced"]
