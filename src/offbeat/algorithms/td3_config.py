"""The settings of TD3, with the check of the env's actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from offbeat.algorithms.replay_actor_critic_config import ReplayActorCriticConfig, require_bounded_box
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.fields import Bound, Count, NonNegative
from offbeat.core.types import EnvSpec
from offbeat.models.spec import PolicySpec


@dataclass(frozen=True)
class TD3Config(ReplayActorCriticConfig):
    """The settings of TD3. Noise is in units of half the width of the action's range.

    From arXiv:1802.09477, or where its authors' code (github.com/sfujim/TD3) is newer, from the code: `learning_rate`,
    `gamma`, `batch_size`, `capacity`, `ema_rate`, `hidden_sizes`, `activation`, `policy_delay`, `exploration_noise`,
    `target_policy_noise` and `target_noise_clip`. All other defaults, and those of the table [runtime], are offbeat's.
    """

    exploration_noise: NonNegative = 0.1
    """Standard deviation of the Gaussian noise that is added to the actions with which the env is explored."""
    target_policy_noise: NonNegative = 0.2
    """Standard deviation of the Gaussian noise that is added to the next actions in a target: target policy
    smoothing."""
    target_noise_clip: NonNegative = 0.5
    """Largest size of this noise in each component of an action."""
    policy_delay: Count = 2
    """The policy is changed only in every n-th update, and so are the ema networks."""
    ema_rate: Annotated[float, Bound(above=0, high=1)] = 0.005
    """Step of the ema critics towards the critics and of the ema policy towards the policy, in each update that changes
    the policy, as a fraction of the difference."""
    critics: Count = 2
    """Critics in the ensemble; a target uses the smallest of their values, the policy's loss the value of the first."""

    title: ClassVar[str] = "TD3"

    def without_effect(self, env: EnvSpec, runtime: RuntimeConfig) -> dict[str, str]:
        unused = super().without_effect(env, runtime)
        if not self.target_policy_noise:
            unused["target_noise_clip"] = (
                "while target_policy_noise is 0: pass --set target_policy_noise=0.2, or leave it out"
            )
        return unused

    def policy_spec(self, env: EnvSpec) -> PolicySpec:
        """Return the policy that these settings make for an env.

        Raises:
            ConfigError: these settings do not support the env's actions.
        """
        require_bounded_box(env, self.title)
        return PolicySpec(
            **self.spec_fields(env),
            distribution="deterministic",
            normalize=self.normalize_observations,
            uniform_start=True,
        )
