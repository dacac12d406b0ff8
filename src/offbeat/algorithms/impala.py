"""IMPALA (arXiv:1802.01561), config and algorithm: an actor-critic whose data may lag, corrected by V-trace.

The gradients are those of section 4.2: of ``rho_t (r_t + gamma v_{t+1} - V(x_t)) log pi(a_t|x_t)`` for the policy,
with v of equation 1, of half the squared error ``(v_t - V(x_t))^2`` for the values, and of the entropy; with
gae_lambda = 1 ``losses.advantages.vtrace`` is exactly this. Two things differ from the paper: losses are means over
the batch's rows where the paper sums (so its max_grad_norm of 40 and weights are in other units), and the optimizer
is Adam, as the learner's always is, where the paper's was RMSProp.

One update per batch, as in the paper: after an update the weights of V-trace are those of an older policy. With
max_lag = 0 all ratios are 1, and V-trace gives the n-step returns of A2C (section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from offbeat.algorithms.base import Batch
from offbeat.algorithms.on_policy import OnPolicy, vtrace_targets
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.core.fields import NonNegative, Positive, Share
from offbeat.losses.advantages import Targets


@dataclass(frozen=True)
class IMPALAConfig(OnPolicyConfig):
    """The settings of IMPALA; the defaults are those of arXiv:1802.01561 for Atari, appendix G, unless noted."""

    learning_rate: Positive = 6e-4
    """Adam's step size, at the start."""
    learning_rate_schedule: Literal["constant", "linear"] = "linear"
    """linear: down to 0 over `steps`."""
    gae_lambda: Share = 1.0
    """Decay of V-trace; 1 is the paper's main form, less is its remark 2."""
    entropy_coef: NonNegative = 0.01
    """Weight of the exploration bonus, see `exploration`."""
    max_grad_norm: Positive = 0.5
    """Gradients of all parameters together are scaled down to this norm; not the paper's, whose losses are sums."""
    rho_clip: Positive = 1.0
    """V-trace's bound on the weight of an error: decides which policy's value is learned."""
    c_clip: Positive = 1.0
    """V-trace's bound on the weight of later errors: trades variance for speed."""

    not_lock_free: ClassVar[str] = (
        "its correction needs the age of the acting weights, which is unknown without a lock; with workers that act "
        "and learn in turn it would be the same as A2C"
    )


class IMPALA(OnPolicy[IMPALAConfig]):
    """See the module's docstring."""

    config_class = IMPALAConfig

    def estimate(self, batch: Batch, values: Tensor) -> Targets:
        """Return the targets of V-trace, [T, B] each, also if the data has no lag."""
        return vtrace_targets(self.config, batch, values)
