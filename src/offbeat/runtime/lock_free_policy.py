"""The policy of lock-free workers: other workers change its weights while it acts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from offbeat.core.types import F32, Acted, Array, Tree
from offbeat.models.acting import ActingPolicy

Renew = Callable[[F32], None]
"""Writes the newest weights into a vector, in the layout of `published_layout`."""


class LockFreePolicy:
    """A policy that loads the newest weights before each action; other workers change them at the same time."""

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
