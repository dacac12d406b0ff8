"""Registers offbeat's own envs with Gymnasium when it is imported.

    gymnasium.make("offbeat.envs.own:offbeat/Recall-v0")

Gymnasium has no plugins: an env is known after the module that registers it was imported. Commands and functions of
offbeat import this one.
"""

from __future__ import annotations

import gymnasium as gym

from offbeat.envs.testing.known_values import CHAIN, WALKS

_WALK = "testing.known_values:Walk"
_LIMITED = {
    "offbeat/ChainTruncates-v0": (_WALK, 5),
    "offbeat/ChainTerminates-v0": (_WALK, None),
    "offbeat/FailsOnLastStep-v0": (_WALK, CHAIN),
    "offbeat/OneStep-v0": (_WALK, None),
    "offbeat/PointRobot-v0": ("meta.point_robot:PointRobot", 20),
    "offbeat/SparsePointRobot-v0": ("meta.point_robot:SparsePointRobot", 20),
    "offbeat/HalfCheetahVelocity-v0": ("meta.locomotion:HalfCheetahVelocity", 200),
    "offbeat/HalfCheetahDirection-v0": ("meta.locomotion:HalfCheetahDirection", 200),
    "offbeat/AntGoal-v0": ("meta.locomotion:AntGoal", 200),
}
"""id -> (class in this package, time limit in env steps)."""
_VECTORIZED = {
    "offbeat/Recall-v0": "testing.recall:Recall",
    "offbeat/Bandit-v0": "testing.bandit:Bandit",
    "offbeat/Pixels-v0": "testing.pixels:Pixels",
    "offbeat/PixelsMotion-v0": "testing.pixels:PixelsMotion",
    "offbeat/PixelsGoal-v0": "testing.pixels:PixelsGoal",
}
"""id -> class in this package. That of its vector env has the same name with 'VectorEnv'."""

for _id, (_path, _limit) in _LIMITED.items():
    gym.register(_id, f"offbeat.envs.{_path}", max_episode_steps=_limit, kwargs=WALKS.get(_id, {}))
for _id, _path in _VECTORIZED.items():
    gym.register(_id, f"offbeat.envs.{_path}", vector_entry_point=f"offbeat.envs.{_path}VectorEnv")
