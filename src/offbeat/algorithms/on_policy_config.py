"""The settings that all on-policy actor-critics have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from offbeat.algorithms.network import NetworkConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError
from offbeat.core.fields import NonNegative, Positive, Share
from offbeat.core.pace import OnPolicyPace
from offbeat.core.types import EnvSpec
from offbeat.memory.unrolls import UnrollShape
from offbeat.models.spec import Distribution, PolicySpec

HIDDEN_SIZES = (64, 64)
"""Units of each hidden layer, unless the settings say otherwise."""


@dataclass(frozen=True)
class OnPolicyConfig(NetworkConfig):
    """The settings that all on-policy actor-critics have."""

    learning_rate: Positive = 3e-4
    """Adam's step size, at the start."""
    learning_rate_schedule: str = "linear"
    """constant; linear: down to 0 over `steps`; or what an algorithm adds."""
    gamma: Share = 0.99
    """Discount per env step."""
    gae_lambda: Share = 0.95
    """Decay of the trace in GAE and V-trace; 1 is the full return."""
    value_coef: NonNegative = 0.5
    """Weight of the value loss, which is half the squared error."""
    entropy_coef: NonNegative = 0.0
    """Weight of the exploration bonus, see `exploration`."""
    exploration: Literal["entropy", "symmetric_kl"] = "entropy"
    """entropy: reward entropy; symmetric_kl: punish the symmetric KL to the uniform policy (discrete actions)."""
    max_grad_norm: Positive = 0.5
    """Gradients of all parameters together are scaled down to this norm."""
    normalize_advantages: bool = False
    """Mean 0 and standard deviation 1 over each minibatch."""
    rho_clip: Positive = 1.0
    """V-trace's bound on the weight of an error; used with max_lag > 0."""
    c_clip: Positive = 1.0
    """V-trace's bound on the weight of later errors; used with max_lag > 0."""
    shared_trunk: bool | None = None
    """One body for policy and critic instead of one each; none: where there are images or a core."""
    action_distribution: Literal["auto", "squashed"] = "auto"
    """auto: categorical or Gaussian, as the actions are; squashed: a Gaussian through tanh (bounded boxes)."""
    log_std_init: float = 0.0
    """Logarithm of the Gaussian's first standard deviation, in units of half the action's range."""
    normalize_observations: bool = False
    """Shift and scale observations by running statistics."""
    normalize_returns: bool = False
    """The critic learns returns divided by their running standard deviation."""
    adam_eps: Positive = 1e-5
    """Adam's epsilon; 1e-5 as in PPO's first implementation."""

    learns_from: ClassVar[Literal["unrolls", "replay"]] = "unrolls"

    def memory(self, runtime: RuntimeConfig, history: int = 0) -> UnrollShape:  # noqa: ARG002 - their fields say it
        """Return the unrolls that a run holds, and the pace on them; `history` is for algorithms on a replay.

        Raises:
            ConfigError: the settings cannot work together.
        """
        pace = OnPolicyPace(runtime.batch_unrolls, runtime.max_lag)
        return UnrollShape(pace, runtime.unroll_length, runtime.envs_per_actor)

    def check(self, runtime: RuntimeConfig) -> None:
        """Refuse settings that cannot work together.

        Raises:
            ConfigError: with the arithmetic and the remedy.
        """
        capacity = self.memory(runtime).pace.in_flight
        if runtime.actors > capacity:
            raise ConfigError(
                f"actors is {runtime.actors}, but at most (max_lag + 1) x unrolls_per_batch = "
                f"({runtime.max_lag} + 1) x {runtime.batch_unrolls} = {capacity} tickets can be in flight: "
                f"pass --actors {capacity} or fewer, or raise unrolls_per_batch or max_lag"
            )

    def policy_spec(self, env: EnvSpec) -> PolicySpec:
        """Return the policy that these settings make for an env.

        Raises:
            ConfigError: the env's actions do not suit these settings.
        """
        boxes, choices = bool(env.action.low), bool(env.action.nvec)
        if not boxes and self.action_distribution == "squashed":
            raise ConfigError(
                f"action_distribution is squashed, which supports only box actions, but {env.id} has {env.action.kind} "
                "actions: pass --set action_distribution=auto"
            )
        if boxes and self.exploration == "symmetric_kl":
            what = "actions with boxes in them" if choices else "box actions"
            raise ConfigError(
                f"exploration is symmetric_kl, which is not supported for {env.id}, because it has {what}, and no "
                "policy is uniform over these: pass --set exploration=entropy"
            )
        if self.action_distribution == "squashed" and not np.isfinite([*env.action.low, *env.action.high]).all():
            raise ConfigError(
                f"action_distribution is squashed, but {env.id} has actions without bounds: "
                "pass --set action_distribution=auto"
            )
        if self.core != "none" and self.shared_trunk is False:
            raise ConfigError(
                f"shared_trunk is false, which is not supported with core={self.core}, because a critic of its own "
                "would have no core: leave shared_trunk out"
            )
        gaussian: Distribution = "squashed" if self.action_distribution == "squashed" else "gaussian"
        return PolicySpec(
            **self.network(env, HIDDEN_SIZES),
            distribution=gaussian if boxes else "categorical",
            normalize=self.normalize_observations,
        )

    def shares_trunk(self, spec: PolicySpec) -> bool:
        """Whether policy and critic have one body."""
        return bool(spec.encoded or spec.recurrent) if self.shared_trunk is None else self.shared_trunk
