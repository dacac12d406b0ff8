"""Which package has the env of an id that Gymnasium does not know.

A package registers its envs when it is imported, so an id alone does not say which module to import. A table of
well-known ids does.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution
from typing import NamedTuple


class Known(NamedTuple):
    """A well-known package whose ids begin in one way."""

    start: str
    """Regular expression of the start of the ids."""
    module: str
    """The module that registers them."""
    package: str
    """What pip installs."""


KNOWN = (
    Known(r"MiniGrid-|BabyAI-", "minigrid", "minigrid"),
    Known(r"MiniWorld-", "miniworld", "miniworld"),
    Known(r"FlappyBird-v", "flappy_bird_gymnasium", "flappy-bird-gymnasium"),
    Known(r"Panda(Reach|Push|Slide|PickAndPlace|Stack|Flip)", "panda_gym", "panda-gym"),
    Known(r"\w+BulletEnv-v", "pybullet_envs_gymnasium", "pybullet-envs-gymnasium"),
    Known(r"(Fetch|Hand|Adroit|AntMaze|PointMaze|FrankaKitchen)", "gymnasium_robotics", "gymnasium-robotics"),
    Known(r"dm_control/", "shimmy", "shimmy[dm-control]"),
    Known(r"bsuite/", "shimmy", "shimmy[bsuite]"),
    Known(r"Vizdoom", "vizdoom.gymnasium_wrapper", "vizdoom"),
    Known(r"Meta-World/", "metaworld", "metaworld"),
    Known(r"popgym-", "popgym", "popgym"),
    Known(r"(highway|merge|roundabout|parking|intersection|racetrack)-", "highway_env", "highway-env"),
    Known(r"(stocks|forex)-v", "gym_anytrading", "gym-anytrading"),
    Known(r"(MiniHack-)", "minihack", "minihack"),
    Known(r"NetHack", "nle", "nle"),
    Known(r"gym_pusht/", "gym_pusht", "gym-pusht"),
    Known(r"gym_aloha/", "gym_aloha", "gym-aloha"),
    Known(r"PyFlyt/", "PyFlyt.gym_envs", "pyflyt"),
    Known(r"SuperMarioBros", "gym_super_mario_bros", "gym-super-mario-bros"),
    Known(r"(deep-sea-treasure|mo-|resource-gathering|fishwood)", "mo_gymnasium", "mo-gymnasium"),
)


def package_of(env_id: str) -> str:
    """Return what to type for an id without a module, as a sentence; '' if no package is known that has it."""
    for known in KNOWN:
        if re.match(known.start, env_id):
            if _is_installed(known.package):
                return f"It may be an env of the installed module {known.module}: type {known.module}:{env_id}."
            package = f'"{known.package}"' if "[" in known.package else known.package
            return (
                f"It may be an env of {known.package}, which is not installed: run pip install {package}, and type "
                f"{known.module}:{env_id}."
            )
    return ""


def pettingzoo_prefix(env_id: str) -> str:
    """Return what to type for an id such as those of PettingZoo, as a sentence; '' for any other id."""
    if re.fullmatch(r"([\w.]+/)?[a-z_0-9]+_v\d+", env_id):
        return " Envs of PettingZoo, with several agents, have a prefix, as in pettingzoo:mpe2/simple_spread_v3."
    return ""


def _is_installed(package: str) -> bool:
    try:
        distribution(package.partition("[")[0])
    except PackageNotFoundError:
        return False
    return True
