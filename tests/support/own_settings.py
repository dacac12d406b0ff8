"""An algorithm with a setting of its own."""

from __future__ import annotations

from dataclasses import dataclass

from offbeat.algorithms.ppo import PPO, PPOConfig


@dataclass(frozen=True)
class OwnConfig(PPOConfig):
    """The settings of PPO, and one more."""

    courage: float = 2.5
    """How far it dares to go."""


class OwnPPO(PPO):
    """PPO with a setting of its own."""

    config_class = OwnConfig
