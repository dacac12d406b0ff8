"""Subclasses of all algorithms, each of which replaces one method by its own, and notes that it ran."""

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
    *("register", "make_network", "fields", "learning_rate", "targets", "estimate", "minibatches"),
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
"""The names of the classes whose methods have run."""


def replaced(base: type[Any], method: str) -> type[Any]:
    """Return a subclass whose method does what it did, and notes that it ran."""
    name = f"{base.__name__}{method.title().replace('_', '')}"

    def own(self: Any, *arguments: Any, **named: Any) -> Any:
        CALLED.append(name)
        return getattr(base, method)(self, *arguments, **named)

    return type(name, (base,), {method: own, "__module__": __name__})


CLASSES = {made.__name__: made for base, methods in METHODS.items() for made in (replaced(base, m) for m in methods)}
globals().update(CLASSES)
