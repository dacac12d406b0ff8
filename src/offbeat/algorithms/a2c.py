"""Advantage actor-critic (arXiv:1602.01783 in its synchronous form), config and algorithm.

It makes one update per batch, with the plain policy gradient. With max_lag = 0 the policy being learned has collected
the data, so there is no ratio to clip. A2C's n-step returns are GAE with lambda = 1 over unrolls of n env steps. With
max_lag > 0 an older policy has collected the data, and V-trace corrects for it; A2C is then the same as IMPALA.
"""

from __future__ import annotations

from dataclasses import dataclass

from offbeat.algorithms.on_policy import OnPolicy
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.core.fields import NonNegative, Positive, Share


@dataclass(frozen=True)
class A2CConfig(OnPolicyConfig):
    """The settings of A2C.

    From a2c of OpenAI Baselines: `learning_rate`, `learning_rate_schedule`, `gamma`, `gae_lambda`, `entropy_coef`,
    `value_coef` and `max_grad_norm`. But Baselines multiplies the squared error of the values by `value_coef`, and
    offbeat half of it, so the value loss of offbeat has half the weight. All other defaults, and those of the table
    [runtime], are offbeat's. Baselines has RMSProp, and batches of 5 env steps.
    """

    learning_rate: Positive = 7e-4
    """Adam's step size, times the factor of `learning_rate_schedule`."""
    gae_lambda: Share = 1.0
    """Decay of the trace in GAE and V-trace; 1 gives n-step returns, with n up to unroll_length."""
    entropy_coef: NonNegative = 0.01
    """Weight of the exploration bonus, see `exploration`."""


class A2C(OnPolicy[A2CConfig]):
    """See the module's docstring. All methods are those of the base class."""

    config_class = A2CConfig
