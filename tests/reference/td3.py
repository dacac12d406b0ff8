"""Slow twins of TD3: its targets one transition at a time, and its update on separate modules with torch's Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from tests.reference.actor_critic_twin import ActorCriticTwin, Rows, mean, rows_of
from tests.reference.sac import bounded_spec
from torch import Tensor

from offbeat.algorithms.td3 import TD3
from offbeat.algorithms.td3_config import TD3Config


def new_td3(action: str, config: TD3Config, *, observation: str = "vector", seed: int = 0) -> TD3:
    return TD3(config, bounded_spec(action, config, observation), seed=seed)


# --- targets, one transition at a time ----------------------------------------------------------------------


def smoothed(action: Sequence[float], noise: Sequence[float], std: float, clip: float) -> list[float]:
    """Return an action with clipped noise, component by component."""
    within = [max(-clip, min(clip, std * number)) for number in noise]
    return [max(-1.0, min(1.0, number + extra)) for number, extra in zip(action, within, strict=True)]


def target(reward: float, discount: float, values: Sequence[float]) -> float:
    return reward + discount * min(values)


# --- the update ---------------------------------------------------------------------------------------------


class TD3Twin(ActorCriticTwin):
    """TD3 in float64: ordinary modules, and an optimizer of torch's for critics and policy."""

    def __init__(self, config: TD3Config, weights: Mapping[str, Rows]) -> None:
        super().__init__(config, weights)
        self.config, self.ema_policy = config, self.policy_of(weights, "ema_")

    def update(self, number: int, minibatch: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        """Make an update from a prepared minibatch, one row after the other."""
        rows = rows_of(minibatch)
        self.step("critic", mean([self._critic_loss(row) for row in rows]), rates)
        if number % self.config.policy_delay:
            return
        first = self.critics[0]
        observations = [row["observation"] for row in rows]
        losses = [-first(torch.cat([each, self.policy(each).tanh()]))[0] for each in observations]
        self.step("policy", mean(losses), rates)
        self.follow(self.ema, self.critics)
        self.follow(self.ema_policy, self.policy)

    def _critic_loss(self, row: Mapping[str, Tensor]) -> Tensor:
        following, config = row["next_observation"], self.config
        with torch.no_grad():
            action = self.ema_policy(following).tanh().tolist()
            noise = row["next_noise"].tolist()
            acted = smoothed(action, noise, config.target_policy_noise, config.target_noise_clip)
            seen = torch.cat([following, torch.tensor(acted, dtype=torch.float64)])
            values = [critic(seen).item() for critic in self.ema]
        goal = target(row["reward"].item(), row["discount"].item(), values)
        pair = torch.cat([row["observation"], row["action"]])
        errors = torch.cat([critic(pair) for critic in self.critics]) - goal
        return (errors**2 / 2).sum() * row.get("weight", torch.ones(()))

    def arrays(self) -> dict[str, Rows]:
        return {**super().arrays(), **self.policy_arrays(self.ema_policy, "ema_")}
