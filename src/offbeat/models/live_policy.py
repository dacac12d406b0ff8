"""A policy whose weights others change while it acts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import Acted, Array, Tree
from offbeat.models.numpy_policy import ActingPolicy

F32 = NDArray[np.float32]
Renew = Callable[[F32], None]
"""Writes the newest weights into a vector, as `published_layout` lays them out."""


class LivePolicy:
    """Takes the newest weights for each decision, not those that it was told to load."""

    def __init__(self, policy: ActingPolicy, renew: Renew) -> None:
        self._policy, self._renew = policy, renew
        self.state_size, self.to_env = policy.state_size, policy.to_env

    def load(self, vector: F32) -> None:
        self._policy.load(vector)

    def act(self, observation: Tree, random: np.random.Generator, state: F32 | None = None) -> Acted:
        self._renew(self._policy.vector)
        return self._policy.act(observation, random, state)

    def greedy(self, observation: Tree, state: F32 | None = None) -> Array:
        self._renew(self._policy.vector)
        return self._policy.greedy(observation, state)
