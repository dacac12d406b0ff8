"""Frame stacks: what a policy sees of successive frames, while they come one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import Array, Leaf, Tree


class Stacks:
    """The last frames of each column's episode, oldest first; the episode's first stands for those before it.

    Leaves that are not stacked are left alone: without any, nothing is kept and nothing is done.
    """

    def __init__(self, leaves: Sequence[Leaf], columns: int) -> None:
        stacked = [leaf for leaf in leaves if leaf.stack > 1]
        self.names = [leaf.name for leaf in stacked]
        self._frames = {leaf.name: np.zeros((columns, *leaf.seen), leaf.dtype) for leaf in stacked}
        self._longest = max((leaf.stack for leaf in stacked), default=1) - 1
        self.age: NDArray[np.uint8] = np.zeros(columns, np.uint8)
        """Frames of its episode that came before each column's newest, [N]; at most as many as a stack reaches back."""

    def reset(self, observation: Mapping[str, Array]) -> None:
        """Take in the first observation of new episodes in all columns, [N, *shape] by leaf."""
        self.push(observation, np.ones(len(self.age), np.bool_))

    def push(self, observation: Mapping[str, Array], begins: NDArray[np.bool_], columns: slice = slice(None)) -> None:
        """Take in the next observation of some columns, [n, *shape] by leaf, which may begin episodes, [n]."""
        if not self.names:
            return
        for name in self.names:
            frames, newest = self._frames[name][columns], observation[name]
            frames[:, :-1] = frames[:, 1:]
            frames[:, -1] = newest
            if begins.any():
                frames[begins] = newest[begins, None]
        age = self.age[columns]
        age += age < self._longest
        age[begins] = 0

    def seen(self, observation: Mapping[str, Array], columns: slice = slice(None)) -> Tree:
        """Return the columns' newest observation as a policy sees it: stacks [n, stack, *shape] in place of frames."""
        return {**observation, **{name: frames[columns] for name, frames in self._frames.items()}}

    def older(self, name: str) -> Array:
        """Return the frames before the newest, in the order of time: a view [stack - 1, N, *shape]."""
        return self._frames[name][:, :-1].swapaxes(0, 1)

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs: copies."""
        return {"age": self.age.copy(), "frames": {name: frames.copy() for name, frames in self._frames.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over `state()`."""
        self.age[:] = state["age"]
        for name, frames in self._frames.items():
            frames[:] = state["frames"][name]
