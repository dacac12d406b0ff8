"""IMPALA (arXiv:1802.01561), config and algorithm: an actor-critic on data of older policies, corrected by V-trace.

The gradients are those of section 4.2: of ``rho_t (r_t + gamma v_{t+1} - V(x_t)) log pi(a_t|x_t)`` for the policy, with
v as in equation 1, of half the squared error ``(v_t - V(x_t))^2`` for the values, and of the entropy. With gae_lambda =
1, ``losses.advantages.vtrace`` computes exactly these v and rho.

There are two differences from the paper. Losses are means over the rows of a batch, where the paper has sums, so
max_grad_norm (40 in the paper) and the weights of the losses are in other units. The optimizer is Adam, not RMSProp.

There is one update per batch, as in the paper: V-trace is computed for the policy before the update. With max_lag = 0
all ratios are 1, and V-trace gives the n-step returns of A2C (section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from offbeat.algorithms.base import Batch
from offbeat.algorithms.on_policy import OnPolicy, vtrace_targets
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.fields import NonNegative, Positive, Share
from offbeat.core.types import EnvSpec
from offbeat.losses.advantages import Targets


@dataclass(frozen=True)
class IMPALAConfig(OnPolicyConfig):
    """The settings of IMPALA.

    From arXiv:1802.01561, appendix G (Atari): `learning_rate`, `learning_rate_schedule`, `gamma`, `entropy_coef`,
    `value_coef`, `rho_clip` and `c_clip`. All other defaults, and those of the table [runtime], are offbeat's. The
    paper has RMSProp, unrolls of 20 env steps and batches of 32 unrolls.
    """

    learning_rate: Positive = 6e-4
    """Adam's step size, times the factor of `learning_rate_schedule`."""
    gae_lambda: Share = 1.0
    """Decay of the trace in V-trace; 1 as in the paper's definition, lower values as in its remark 2."""
    entropy_coef: NonNegative = 0.01
    """Weight of the exploration bonus, see `exploration`."""
    max_grad_norm: Positive = 0.5
    """Largest norm of all gradients together; larger gradients are scaled down to it. Not from the paper, where losses
    are sums."""
    rho_clip: Positive = 1.0
    """V-trace's bound on the weight of a TD error; it determines which policy's value function is learned."""
    c_clip: Positive = 1.0
    """V-trace's bound on the weight of later TD errors; a smaller bound reduces the variance and slows propagation."""

    no_hogwild: ClassVar[str] = (
        "its correction needs the age of the acting weights, which is unknown without a lock; with workers that act "
        "and learn in turn it would be the same as A2C"
    )

    def without_effect(self, env: EnvSpec, runtime: RuntimeConfig) -> dict[str, str]:
        unused = super().without_effect(env, runtime)
        for key in ("rho_clip", "c_clip"):
            if getattr(self, key) < 1:  # V-trace is always computed, and such a bound cuts ratios of 1 too
                unused.pop(key, None)
        return unused


class IMPALA(OnPolicy[IMPALAConfig]):
    """See the module's docstring."""

    config_class = IMPALAConfig

    def estimate(self, batch: Batch, values: Tensor) -> Targets:
        """Return the targets of V-trace, [T, B] each, also with max_lag = 0."""
        return vtrace_targets(self.config, batch, values)
