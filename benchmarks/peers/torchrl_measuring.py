"""What the scripts of TorchRL share: envs, and the returns that a batch of steps holds."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torchrl.envs import DoubleToFloat, RewardSum, TransformedEnv, VecNorm
from torchrl.envs.libs.gym import GymWrapper

NORMALIZED = {"normalize_observations": "observation", "normalize_returns": "reward"}
"""Settings of the work, and what TorchRL normalises then: rewards in place of returns."""


def make_envs(work: dict[str, Any]) -> TransformedEnv:
    """Return Gymnasium's own vector env, or a single env; returns are summed before rewards are normalised."""
    make = partial(gymnasium.make, work["env"], disable_env_checker=True)
    envs: Any = make()
    if work["envs"] > 1:
        envs = SyncVectorEnv([make] * work["envs"], autoreset_mode=AutoresetMode.DISABLED)
    envs = TransformedEnv(GymWrapper(envs, categorical_action_encoding=True), RewardSum())
    keys = [key for setting, key in NORMALIZED.items() if work.get(setting)]
    if keys:
        envs.append_transform(VecNorm(in_keys=keys, decay=0.99999, eps=1e-2))
    if envs.observation_spec["observation"].dtype == torch.float64:
        envs.append_transform(DoubleToFloat(in_keys=["observation"]))
    envs.set_seed(work["seed"])
    return envs


def returns_in(steps: Any) -> list[float]:
    """Return the returns of the episodes that end in a batch of steps."""
    returns: list[float] = steps["next", "episode_reward"][steps["next", "done"]].tolist()
    return returns
