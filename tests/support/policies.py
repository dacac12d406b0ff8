"""Policies without weights: a base, and one that keeps what it sees."""

from __future__ import annotations

from typing import Any

import numpy as np

from offbeat.core.types import Acted, Array, Tree

NO_WEIGHTS = np.zeros(0, np.float32)


class WithoutWeights:
    """A policy whose subclasses choose the actions."""

    state_size = 0

    def load(self, vector: Any) -> None:
        """Do nothing: there are no weights."""

    def act(self, observation: Tree, random: np.random.Generator, state: Any = None) -> Acted:
        raise NotImplementedError

    def greedy(self, observation: Tree, state: Any = None) -> Array:
        raise NotImplementedError

    def to_env(self, action: Array) -> Array:
        return action


class Spy(WithoutWeights):
    """Acts at random, and keeps what it sees: [N, *seen] of each row, by leaf."""

    def __init__(self) -> None:
        self.seen: list[Tree] = []

    def load(self, vector: Any) -> None:
        assert vector is NO_WEIGHTS

    def act(self, observation: Tree, random: np.random.Generator, state: Any = None) -> Acted:  # noqa: ARG002
        self.seen.append({name: leaf.copy() for name, leaf in observation.items()})
        return Acted(random.integers(2, size=len(observation["observation"])), {})
