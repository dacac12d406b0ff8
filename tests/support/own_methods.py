"""Subclasses of all algorithms, which replace the methods that users may replace, and note which of them ran."""

from __future__ import annotations

from typing import Any

from offbeat.algorithms.a2c import A2C
from offbeat.algorithms.crossq import CrossQ
from offbeat.algorithms.dqn import DQN
from offbeat.algorithms.impala import IMPALA
from offbeat.algorithms.ppo import PPO
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.td3 import TD3

ON_POLICY = (
    *("build_more", "make_network", "fields", "learning_rate", "targets", "estimate", "minibatches"),
    *("loss", "policy_loss", "value_loss", "exploration_loss", "after_update", "ratio_metrics", "cut"),
)
METHODS: dict[type[Any], tuple[str, ...]] = {
    PPO: ON_POLICY,
    A2C: ON_POLICY,
    IMPALA: ON_POLICY,
    SAC: ("targets", "critic_loss", "policy_loss", "temperature_loss", "make_policy", "minibatch", "cut"),
    TD3: ("targets", "critic_loss", "policy_loss", "make_policy", "minibatch", "cut"),
    CrossQ: ("targets", "critic_loss", "policy_loss", "temperature_loss", "make_policy", "minibatch"),
    DQN: ("targets", "loss", "values", "make_network", "minibatch", "cut"),
}
CALLED: list[str] = []
"""The methods that have run."""


def replaced(base: type[Any]) -> type[Any]:
    """Return a subclass whose methods do what they did, and note that they ran."""

    def own(method: str) -> Any:
        def noted(self: Any, *arguments: Any, **named: Any) -> Any:
            CALLED.append(method)
            return getattr(base, method)(self, *arguments, **named)

        return noted

    methods = {method: own(method) for method in METHODS[base]}
    return type(f"Own{base.__name__}", (base,), {**methods, "__module__": __name__})


CLASSES = {base: replaced(base) for base in METHODS}
globals().update({made.__name__: made for made in CLASSES.values()})
