"""The settings of SAC, and those that it shares with CrossQ, with the checks of actions and target entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from offbeat.algorithms.replay_actor_critic_config import ReplayActorCriticConfig, refuse_infinite_bounds
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.checks import Example
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Bound, Count, NonNegative, Positive
from offbeat.core.types import EnvSpec
from offbeat.models.spec import PolicySpec

TARGET_ENTROPY_FRACTION = 0.7
"""Default target entropy for choices, as a fraction of the uniform policy's entropy. arXiv:1910.07207 has 0.98, but
with two choices a good policy cannot keep so much entropy. The paper's author later used less, and so does
github.com/toshikwa/sac-discrete.pytorch/issues/10."""


@dataclass(frozen=True)
class SoftActorCriticConfig(ReplayActorCriticConfig):
    """The settings of a policy that maximises its entropy too, with the weight of the entropy, the temperature."""

    temperature_learning_rate: Annotated[Positive | None, Example("0.0003")] = None
    """Adam's step size for the logarithm of the temperature; none: learning_rate."""
    temperature: Annotated[NonNegative | None, Example("0.2")] = None
    """Fixed weight of the entropy, in units of reward; none: learned, so that the entropy reaches its target."""
    initial_temperature: Positive = 1.0
    """Initial value of a learned temperature."""
    target_entropy: Annotated[float | None, Example("-6")] = None
    """Target of the entropy in nats, for box actions in [-1, 1]. None: for box actions, -1 per dimension; for choices,
    0.7 of the largest possible entropy, with masks over the allowed choices."""
    policy_delay: Count = 1
    """Policy and temperature are changed only in every n-th update."""
    max_grad_norm: Positive | None = None
    """Largest norm of the gradients of policy, critics and temperature, each separately; larger gradients are scaled
    down to it; none: no limit."""

    network_keys: ClassVar[tuple[str, ...]] = (*ReplayActorCriticConfig.network_keys, "initial_temperature")

    def policy_spec(self, env: EnvSpec) -> PolicySpec:
        """Return the policy that these settings make for an env.

        Raises:
            ConfigError: these settings do not support the env's actions.
        """
        self.check_actions(env)
        spec = PolicySpec(
            **self.spec_fields(env),
            distribution="tanh_gaussian" if env.action.kind == "box" else "categorical",
            normalize=self.normalize_observations,
            uniform_start=True,
        )
        self._check_target_entropy(env, spec)
        return spec

    def check_actions(self, env: EnvSpec) -> None:
        """Check that the algorithm supports the actions of an env.

        Raises:
            ConfigError: it does not; the message has the actions.
        """
        raise NotImplementedError

    def without_effect(self, env: EnvSpec, runtime: RuntimeConfig) -> dict[str, str]:
        unused = super().without_effect(env, runtime)
        if self.temperature is not None:
            fixed = f"while temperature is fixed at {self.temperature:g}: pass --set temperature=none, or leave it out"
            unused |= dict.fromkeys(("initial_temperature", "target_entropy", "temperature_learning_rate"), fixed)
        elif self.temperature_learning_rate is None:
            unused.pop("learning_rate", None)
        return unused

    def reason_against_value(self, key: str, old: object, new: object) -> str:
        if key == "temperature" and "none" in (old, new):
            return "a learned temperature is among the saved arrays, and a fixed one is not"
        return super().reason_against_value(key, old, new)

    def entropy_target_of(self, spec: PolicySpec) -> float:
        """Return the target of the entropy in nats, without masks."""
        return self._default_target(spec) if self.target_entropy is None else self.target_entropy

    def _check_target_entropy(self, env: EnvSpec, spec: PolicySpec) -> None:
        """Check that a policy can reach the target. Otherwise the temperature would grow without limit.

        Raises:
            ConfigError: no policy can reach it; the message has the largest possible entropy.
        """
        largest, target = _largest_entropy(spec), self.target_entropy
        if self.temperature is None and target is not None and target >= largest:
            raise ConfigError(
                f"target_entropy is {target:g}, but it must be less than {largest:.4g} nats, the entropy of a uniform "
                f"policy over the actions of {env.id}: pass --set target_entropy={self._default_target(spec):.4g}"
            )

    def _default_target(self, spec: PolicySpec) -> float:
        if spec.action.kind == "discrete":
            return TARGET_ENTROPY_FRACTION * _largest_entropy(spec)
        return -float(spec.action_size)  # arXiv:1812.05905, appendix D


@dataclass(frozen=True)
class SACConfig(SoftActorCriticConfig):
    """The settings of SAC.

    From arXiv:1812.05905, appendix D: `learning_rate`, `gamma`, `batch_size`, `capacity`, `ema_rate`, `hidden_sizes`,
    `activation`, and for box actions `target_entropy`. All other defaults, and those of the table [runtime], are
    offbeat's.
    """

    ema_rate: Annotated[float, Bound(above=0, high=1)] = 0.005
    """Step of the ema critics towards the critics after each update, as a fraction of the difference."""

    title: ClassVar[str] = "SAC"

    def check_actions(self, env: EnvSpec) -> None:
        action = env.action
        if action.kind in ("multidiscrete", "mixed"):
            boxes = f" and {len(action.low)} numbers" if action.low else ""
            raise ConfigError(
                f"{env.id} has {action.space} actions of {list(action.nvec)} choices{boxes}, but {self.title} expects "
                f"a bounded box or one discrete action: run `{env.train_command('ppo')}`"
            )
        refuse_infinite_bounds(env, self.title)


def _largest_entropy(spec: PolicySpec) -> float:
    """Return the entropy of the uniform policy in nats; box actions are in [-1, 1] in each dimension."""
    return spec.action_size * math.log(spec.action.nvec[0] if spec.action.kind == "discrete" else 2)
