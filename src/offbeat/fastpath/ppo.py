"""PPO's clipped losses and their derivatives in NumPy; ``actor_critic.py`` does the rest.

With A the advantage, r the ratio, M the rows, d the derivative of the mean loss:

    clipped surrogate   d / d log pi = -A r / M, or 0 where the clip holds r
    value loss          d / d V = (V - target) / M, or 0 where the clip holds V
"""

from __future__ import annotations

import numpy as np

from offbeat.algorithms.base import LossResult
from offbeat.algorithms.ppo import PPO
from offbeat.fastpath.actor_critic import ActorCriticFastPath, Rows
from offbeat.fastpath.mlp import F32


class PPOFastPath(ActorCriticFastPath[PPO]):
    """The fast path of PPO."""

    def policy_loss(self, log_prob: F32, advantages: F32, rows: Rows) -> tuple[LossResult, F32]:
        log_ratio = log_prob - rows["proximal_log_prob"]
        return clipped_surrogate(log_ratio, advantages, self.algorithm.clip)

    def value_loss(self, values: F32, rows: Rows) -> tuple[float, F32]:
        clip = self.algorithm.config.value_clip
        if clip is None:
            return super().value_loss(values, rows)
        return clipped_value_loss(values, rows["proximal_value"], rows["value_target"], clip)


def clipped_surrogate(log_ratio: F32, advantages: F32, clip: float) -> tuple[LossResult, F32]:
    """Return the clipped surrogate's mean with metrics of the ratio, and its derivative by log_prob, [M]."""
    rows = len(log_ratio)
    moved = np.expm1(log_ratio)
    ratio = moved + np.float32(1)
    gain, clipped = ratio * advantages, np.minimum(np.maximum(ratio, 1 - clip), 1 + clip) * advantages
    derivative = (gain <= clipped) * gain
    derivative *= np.float32(-1 / rows)
    deviation = np.abs(moved)
    metrics = {
        "approx_kl": float(np.add.reduce(moved - log_ratio)) / rows,
        "ratio_mean": float(np.add.reduce(ratio)) / rows,
        "clip_fraction": np.count_nonzero(deviation > clip) / rows,
    }
    outputs = {"ratio_deviation": float(np.maximum.reduce(deviation))}
    loss = -float(np.add.reduce(np.minimum(gain, clipped))) / rows
    return LossResult(loss, metrics, outputs), derivative


def clipped_value_loss(values: F32, proximal: F32, targets: F32, clip: float) -> tuple[float, F32]:
    """Return half the mean squared error, clipped, and its derivative by the values [M]."""
    error = values - targets
    moved = values - proximal
    held = np.abs(moved) > clip
    clipped = proximal + np.clip(moved, -clip, clip) - targets
    square, clipped_square = error * error, clipped * clipped
    loss = 0.5 * float(np.maximum(square, clipped_square).mean())
    return loss, np.where(held & (clipped_square > square), 0, error) * np.float32(1 / len(values))
