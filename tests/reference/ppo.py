"""Slow twins of ``offbeat.losses.ppo``: one row at a time, each formula by its cases."""

from __future__ import annotations

from math import exp


def surrogate_row(log_ratio: float, advantage: float, clip: float) -> float:
    """Return the negated objective: a gain counts up to the clip, a harm counts in full."""
    ratio = exp(log_ratio)
    if advantage >= 0:
        return -min(ratio, 1 + clip) * advantage
    return -max(ratio, 1 - clip) * advantage


def value_row(value: float, proximal: float, target: float, clip: float) -> float:
    """Return half the larger of the squared errors with and without the clip."""
    held = min(max(value, proximal - clip), proximal + clip)
    return max((value - target) ** 2, (held - target) ** 2) / 2
