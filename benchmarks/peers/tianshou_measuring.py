"""What the scripts of Tianshou share: envs, networks, and a collector that remembers the returns."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
from measuring import ACTIVATIONS, Curve
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net

QUIET = {"verbose": False, "show_progress": False}
"""Settings of a trainer without output; without a collector for tests there are none."""


class ScoringCollector(Collector):
    """Gives the returns of training episodes to a curve."""

    def __init__(self, curve: Curve, *arguments: Any) -> None:
        """Collect as usual.

        Args:
            curve: gets the returns.
            arguments: those of a collector.
        """
        super().__init__(*arguments)
        self._curve = curve

    def collect(self, *arguments: Any, **settings: Any) -> Any:
        """Collect, and pass on the returns of the episodes that ended."""
        stats = super().collect(*arguments, **settings)
        self._curve.returns.extend(stats.returns.tolist())
        return stats


def make_envs(work: dict[str, Any]) -> DummyVectorEnv:
    """Return the envs in this process: worker processes are slower with envs as cheap as these."""
    make = partial(gymnasium.make, work["env"], disable_env_checker=True)
    envs = DummyVectorEnv([make] * work["envs"])
    envs.seed(work["seed"])
    return envs


def layers(work: dict[str, Any], env: Any, *, with_action: bool = False) -> Net:
    """Return the hidden layers of a network, for observations or for observations and actions."""
    action = {"action_shape": env.action_space.shape, "concat": True} if with_action else {}
    return Net(
        state_shape=env.observation_space.shape,
        hidden_sizes=work["hidden_sizes"],
        activation=ACTIVATIONS[work["activation"]],
        **action,
    )


def adam(work: dict[str, Any]) -> AdamOptimizerFactory:
    """Return the optimizer of the work."""
    return AdamOptimizerFactory(lr=work["learning_rate"], eps=work["adam_eps"])
