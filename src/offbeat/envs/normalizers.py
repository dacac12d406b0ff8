"""Finds wrappers of Gymnasium that normalise with running statistics of their own.

Each env has such statistics for itself, and no checkpoint has them. So evaluations and loaded policies would get other
observations than the training, and returns would not be those of the env.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium as gym
from gymnasium import wrappers

OF_OBSERVATIONS = wrappers.NormalizeObservation, wrappers.vector.NormalizeObservation
OF_REWARDS = wrappers.NormalizeReward, wrappers.vector.NormalizeReward


def normalizers_of(env: Any) -> tuple[str, ...]:
    """Return what the wrappers of an env, or of a vector env, normalise with statistics that still change."""
    found = []
    while isinstance(env, gym.Wrapper | gym.vector.VectorWrapper):
        if isinstance(env, OF_OBSERVATIONS + OF_REWARDS) and env.update_running_mean:
            found.append("observations" if isinstance(env, OF_OBSERVATIONS) else "rewards")
        env = env.env
    return tuple(found)


def normalizer_notes(normalized: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield a problem and a remedy for each item of `normalizers_of`."""
    if "observations" in normalized:
        problem = (
            "the env is wrapped in NormalizeObservation, whose running statistics are not shared by the envs and not "
            "saved: evaluations and a loaded policy get other observations than the training"
        )
        remedy = (
            "leave it out; --set normalize_observations=true, which ppo has by default, does the same with statistics "
            "that are shared and saved"
        )
        yield problem, remedy
    if "rewards" in normalized:
        problem = (
            "the env is wrapped in NormalizeReward, whose running statistics are not shared by the envs and not saved: "
            "returns are not those of the env, and change with the statistics"
        )
        remedy = (
            "leave it out; --set normalize_returns=true, which ppo has by default, a2c and impala accept too: it "
            "scales only what the critic learns"
        )
        yield problem, remedy
