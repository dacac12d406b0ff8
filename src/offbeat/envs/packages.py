"""Which installed package has the env of an id that Gymnasium does not know. No package is imported for it.

A package registers its envs when it is imported, so an id alone does not say which module to import. Two things do:
the ids in the source files of the installed packages that require Gymnasium, and a table of well-known ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import NamedTuple

MAX_FILE = 2**20
"""Bytes of a source file above which it is not read."""


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
    for module in _modules_with(env_id):
        return f"It is an env of the installed module {module}: type {module}:{env_id}."
    for known in KNOWN:
        if re.match(known.start, env_id):
            if _is_installed(known.package):
                return f"It may be an env of the installed module {known.module}: type {known.module}:{env_id}."
            package = f'"{known.package}"' if "[" in known.package else known.package
            return (
                f"It may be an env of {known.package}, which is not installed: run pip install {package}, and type "
                f"{known.module}:{env_id}."
            )
    if re.fullmatch(r"([\w.]+/)?[a-z_0-9]+_v\d+", env_id):
        return "Envs of PettingZoo, with several agents, have a prefix, as in pettingzoo:mpe2/simple_spread_v3."
    return ""


def _modules_with(env_id: str) -> Iterator[str]:
    """Yield the modules of installed packages whose source has the id in quotes, the outermost first."""
    quoted = re.compile(rf"""["']{re.escape(env_id)}["']""")
    found = {module for module, file in _source_files() if quoted.search(_text(file))}
    yield from sorted(found, key=lambda module: (module.count("."), module))


@cache
def _source_files() -> tuple[tuple[str, Path], ...]:
    """Return (module, file) of all modules that may register envs: they mention registration."""
    return tuple(
        (".".join(path.with_suffix("").parts).removesuffix(".__init__"), file)
        for each in distributions()
        if _has_envs(each)
        for path in each.files or ()
        if path.suffix == ".py" and all(part.isidentifier() for part in path.with_suffix("").parts)
        if "register" in _text(file := Path(str(each.locate_file(path))))
    )


def _has_envs(each: Distribution) -> bool:
    """Whether a package requires Gymnasium and is not one that offbeat knows already."""
    name = (each.metadata["Name"] or "").lower()
    requires = any(re.match(r"gymnasium\b", requirement, re.IGNORECASE) for requirement in each.requires or ())
    return requires and name not in ("offbeat", "gymnasium", "ale-py")


def _text(path: Path) -> str:
    """Return the text of a source file; '' if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.stat().st_size <= MAX_FILE else ""
    except OSError:
        return ""


def _is_installed(package: str) -> bool:
    try:
        distribution(package.partition("[")[0])
    except PackageNotFoundError:
        return False
    return True
