"""PPO's clipped losses and their derivatives in NumPy. The other derivatives are in ``actor_critic.py``.

For the mean loss L, the advantage A, the ratio r and the number of rows M:

    clipped surrogate   d L / d log pi = -A r / M, or 0 where r is clipped
    value loss          d L / d V = (V - target) / M, or 0 where V is clipped
"""

from __future__ import annotations

import numpy as np

from offbeat.algorithms.base import LossResult
from offbeat.algorithms.ppo import PPO
from offbeat.core.types import F32
from offbeat.fastpath.actor_critic import ActorCriticFastPath
from offbeat.models.mlp import MinibatchArrays


class PPOFastPath(ActorCriticFastPath[PPO]):
    """The fast path of PPO."""

    def policy_loss(self, log_prob: F32, advantages: F32, arrays: MinibatchArrays) -> tuple[LossResult, F32]:
        log_ratio = log_prob - arrays["reference_log_prob"]
        return clipped_surrogate(log_ratio, advantages, self.algorithm.clip)

    def value_loss(self, values: F32, arrays: MinibatchArrays) -> tuple[float, F32]:
        clip = self.algorithm.config.value_clip
        if clip is None:
            return super().value_loss(values, arrays)
        return clipped_value_loss(values, arrays["proximal_value"], arrays["value_target"], clip)


def clipped_surrogate(log_ratio: F32, advantages: F32, clip: float) -> tuple[LossResult, F32]:
    """Return the mean clipped surrogate loss with metrics of the ratio, and its derivative by log_prob, [M]."""
    rows = len(log_ratio)
    ratio_minus_1 = np.expm1(log_ratio)
    ratio = ratio_minus_1 + np.float32(1)
    surrogate = ratio * advantages
    clipped = np.minimum(np.maximum(ratio, 1 - clip), 1 + clip) * advantages
    derivative = (surrogate <= clipped) * surrogate
    derivative *= np.float32(-1 / rows)
    deviation = np.abs(ratio_minus_1)
    metrics = {
        "approx_kl": float(np.add.reduce(ratio_minus_1 - log_ratio)) / rows,
        "ratio_mean": float(np.add.reduce(ratio)) / rows,
        "clip_fraction": np.count_nonzero(deviation > clip) / rows,
    }
    outputs = {"ratio_deviation": float(np.maximum.reduce(deviation))}
    loss = -float(np.add.reduce(np.minimum(surrogate, clipped))) / rows
    return LossResult(loss, metrics, outputs), derivative


def clipped_value_loss(values: F32, proximal: F32, targets: F32, clip: float) -> tuple[float, F32]:
    """Return half the mean squared error, clipped, and its derivative by the values, [M]."""
    error = values - targets
    change = values - proximal
    beyond_clip = np.abs(change) > clip
    clipped_error = proximal + np.clip(change, -clip, clip) - targets
    square, clipped_square = error * error, clipped_error * clipped_error
    loss = 0.5 * float(np.maximum(square, clipped_square).mean())
    return loss, np.where(beyond_clip & (clipped_square > square), 0, error) * np.float32(1 / len(values))
