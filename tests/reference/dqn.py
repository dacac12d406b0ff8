"""Slow twins of DQN: target and loss one transition at a time, and its update on plain modules with torch's Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tests.reference.actor_critic_twin import NetworkTwin, Rows, mean, rows_of
from tests.support.models import ACTIONS, leaves
from torch import Tensor

from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.core.types import EnvSpec


def new_dqn(config: DQNConfig, *, observation: str = "vector", seed: int = 0) -> DQN:
    env = EnvSpec("Test-v0", leaves(observation, ACTIONS["discrete"]), ACTIONS["discrete"], 4)
    return DQN(config, config.policy_spec(env), seed=seed)


def perturb(algorithm: DQN, scale: float, seed: int = 0) -> None:
    """Move all values that are learned, so that the ema network differs from the network."""
    generator = torch.Generator().manual_seed(seed)
    for name, view in algorithm.arrays().items():
        if name not in ("updates", "epsilon"):
            view.add_(torch.randn(view.shape, generator=generator), alpha=scale)


def target(reward: float, discount: float, next_values: Sequence[float], choosing: Sequence[float]) -> float:
    best = max(range(len(choosing)), key=lambda choice: choosing[choice])
    return reward + discount * next_values[best]


def loss_row(value: Any, goal: Any, weight: float) -> Any:
    """Return the loss of a value and its goal, which are numbers or tensors."""
    error = abs(value - goal)
    return weight * (error**2 / 2 if error <= 1 else error - 0.5)


def epsilon(config: DQNConfig, progress: float) -> float:
    """Return the point at `progress` on the line from (0, 1) to (exploration_fraction, final_epsilon), and its end."""
    points = [0.0, config.exploration_fraction] if config.exploration_fraction else [-1.0, 0.0]
    return float(np.interp(progress, points, [1.0, config.final_epsilon]))


class Twin(NetworkTwin):
    """DQN in float64, on ordinary modules and an optimizer of torch's."""

    def __init__(self, config: DQNConfig, weights: Mapping[str, Rows]) -> None:
        super().__init__(config, weights)
        self.config, self.made, self.ema = config, 0, self.policy_of(weights, "ema_")
        self.errors: list[float] = []

    def update(self, minibatch: Mapping[str, Tensor]) -> None:
        """Make an update from a prepared minibatch, one row after the other."""
        losses, self.errors = [], []
        for row in rows_of(minibatch):
            value = self.policy(row["observation"])[row["action"]]
            following = self.ema(row["next_observation"]).tolist()
            choosing = self.policy(row["next_observation"]).tolist() if self.config.double else following
            if "next_mask" in row:
                choosing = [v if allowed else -np.inf for v, allowed in zip(choosing, row["next_mask"], strict=True)]
            goal = target(float(row["reward"]), float(row["discount"]), following, choosing)
            self.errors.append(abs(value.item() - goal))
            losses.append(loss_row(value, goal, float(row.get("weight", 1.0))))
        self.step("policy", mean(losses), {"policy": self.config.learning_rate})
        self.made += 1
        if self.made % self.config.ema_every == 0:
            self.follow(self.ema, self.policy)

    def arrays(self) -> dict[str, Rows]:
        """Return its parameters under the names that a checkpoint gives them."""
        return self.policy_arrays(self.policy, "") | self.policy_arrays(self.ema, "ema_")
