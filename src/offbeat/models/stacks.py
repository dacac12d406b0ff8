"""Frame stacks: the last frames of each episode, added one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import Array, Leaf, Tree


class Stacks:
    """The last frames of each column's episode, oldest first. The first frame of an episode is repeated as needed.

    Leaves without a stack are not stored.
    """

    def __init__(self, leaves: Sequence[Leaf], columns: int) -> None:
        stacked = [leaf for leaf in leaves if leaf.stack > 1]
        self.names = [leaf.name for leaf in stacked]
        self._frames = {leaf.name: np.zeros((columns, *leaf.stacked_shape), leaf.dtype) for leaf in stacked}
        self._longest = max((leaf.stack for leaf in stacked), default=1) - 1
        self.age: NDArray[np.uint8] = np.zeros(columns, np.uint8)
        """Number of frames before the newest in the episode of each column, [N]; at most the stack size - 1."""

    def reset(self, observation: Mapping[str, Array]) -> None:
        """Start new episodes in all columns with their first observations, [N, *shape] by leaf."""
        self.push(observation, np.ones(len(self.age), np.bool_))

    def push(self, observation: Mapping[str, Array], starts: NDArray[np.bool_], columns: slice = slice(None)) -> None:
        """Add the next observations of some columns, [n, *shape] by leaf; `starts`, [n]: whether an episode starts."""
        if not self.names:
            return
        for name in self.names:
            frames, newest = self._frames[name][columns], observation[name]
            frames[:, :-1] = frames[:, 1:]
            frames[:, -1] = newest
            if starts.any():
                frames[starts] = newest[starts, None]
        age = self.age[columns]
        age += age < self._longest
        age[starts] = 0

    def with_stacks(self, observation: Mapping[str, Array], columns: slice = slice(None)) -> Tree:
        """Return an observation with stacks [n, stack, *shape] in place of the frames."""
        return {**observation, **{name: frames[columns] for name, frames in self._frames.items()}}

    def older_frames(self, name: str) -> Array:
        """Return the frames before the newest, in temporal order: a view [stack - 1, N, *shape]."""
        return self._frames[name][:, :-1].swapaxes(0, 1)

    def state(self) -> dict[str, Any]:
        """Return the state for `restore`, as copies."""
        return {"age": self.age.copy(), "frames": {name: frames.copy() for name, frames in self._frames.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state()`."""
        self.age[:] = state["age"]
        for name, frames in self._frames.items():
            frames[:] = state["frames"][name]
