"""A mixture of policies: one of them is drawn for each episode of a world, and plays all of it.

So the snapshots of a league can be evaluated together, as their average policy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import F32, Acted, Array, Policy, Tree
from offbeat.league.average import draw_snapshot


class Mixture:
    """Policies for the same agents, one of which is drawn per episode. `draw_snapshot` is the draw."""

    def __init__(self, policies: Sequence[Policy], weights: Sequence[float] | None = None) -> None:
        """Mix policies.

        Args:
            policies: the policies, with the same observations and actions, and their weights loaded.
            weights: weight of each, not negative; None: all are equal.
        """
        self.policies = tuple(policies)
        self.weights = tuple(weights) if weights is not None else (1.0,) * len(self.policies)


class SeatedMixture:
    """A mixture in the columns of one side, or of one policy, in an evaluation; those of a world next to each other."""

    def __init__(self, mixture: Mixture, worlds: int, agents: int, seed: int) -> None:
        """Draw the first policy of each world.

        Args:
            mixture: the policies.
            worlds: number of worlds.
            agents: number of columns in each world.
            seed: seed of the draws.
        """
        self._mixture, self._agents, self._seed = mixture, agents, seed
        self.state_size = max(policy.state_size for policy in mixture.policies)
        self._episode = np.zeros(worlds, np.int64)
        self.drawn = np.zeros(worlds, np.int64)
        """[W]: index of the policy that plays in each world."""
        self._draw(range(worlds))

    def _draw(self, worlds: Sequence[int]) -> None:
        for world in worlds:
            self.drawn[world] = draw_snapshot(
                self._mixture.weights, seed=self._seed, world=world, episode=int(self._episode[world])
            )

    def end_episodes(self, over: NDArray[np.bool_]) -> None:
        """Draw the next policy of the worlds whose episode has ended, [W]."""
        self._episode += over
        self._draw(np.flatnonzero(over).tolist())

    def act(self, observation: Tree, random: np.random.Generator, state: F32 | None = None) -> Acted:
        """Sample an action of the env for each column, one policy after the other."""
        return Acted(self._choose(observation, random, state), {})

    def greedy(self, observation: Tree, state: F32 | None = None) -> Array:
        """Return the most likely action of the env for each column."""
        return self._choose(observation, None, state)

    def to_env(self, action: Array) -> Array:
        """Return the actions as they are: `act` and `greedy` return actions of the env."""
        return action

    def _choose(self, observation: Tree, random: np.random.Generator | None, state: F32 | None) -> Array:
        """Return the actions of all columns: sampled with a generator, else the most likely ones."""
        by_column = np.repeat(self.drawn, self._agents)
        actions: Array | None = None
        for index in np.unique(by_column).tolist():
            rows = np.flatnonzero(by_column == index)
            own = {name: leaf[rows] for name, leaf in observation.items()}
            policy = self._mixture.policies[index]
            states = None if state is None else np.ascontiguousarray(state[rows, : policy.state_size])
            chosen = policy.greedy(own, states) if random is None else policy.act(own, random, states).action
            if state is not None:
                state[rows, : policy.state_size] = states
            chosen = policy.to_env(chosen)  # policies may convert actions in different ways
            if actions is None:
                actions = np.zeros((len(by_column), *chosen.shape[1:]), chosen.dtype)
            actions[rows] = chosen
        assert actions is not None
        return actions
