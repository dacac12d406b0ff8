"""The ids of the envs with tasks."""

from __future__ import annotations

import gymnasium as gym

_ENVS = {
    "offbeat/PointRobot-v0": ("point_robot:PointRobot", 20),
    "offbeat/SparsePointRobot-v0": ("point_robot:SparsePointRobot", 20),
    "offbeat/HalfCheetahVelocity-v0": ("locomotion:HalfCheetahVelocity", 200),
    "offbeat/HalfCheetahDirection-v0": ("locomotion:HalfCheetahDirection", 200),
    "offbeat/AntGoal-v0": ("locomotion:AntGoal", 200),
}
"""id -> (class in this package, time limit in env steps)."""


def register() -> None:
    """Register the envs with Gymnasium. A second call does nothing."""
    for env_id, (entry_point, limit) in _ENVS.items():
        if env_id not in gym.registry:
            gym.register(env_id, f"offbeat.envs.meta.{entry_point}", max_episode_steps=limit)
