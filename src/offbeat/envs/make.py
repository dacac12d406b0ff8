"""`make_envs`: from what the user typed to the columns of one actor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as RegisteredEnv

from offbeat.envs import envpool, known_values
from offbeat.envs.contract import Envs
from offbeat.envs.gymnasium import make_gymnasium
from offbeat.errors import ConfigError, OffbeatError, unknown
from offbeat.registry import import_modules
from offbeat.seeding import derive_seed

ENVPOOL = "envpool:"
"""The prefix of EnvPool's ids."""

_NEEDS = {
    "gymnasium.envs.mujoco": ("mujoco", 'pip install "offbeat[mujoco]"'),
    "gymnasium.envs.box2d": ("Box2D", 'pip install "offbeat[box2d]"'),
    "ale_py": ("ale_py", 'pip install "offbeat[atari]"'),
    "gymnasium.envs.phys2d": ("jax", 'pip install "gymnasium[jax]"'),
}
"""Where an env's code begins with this, it needs that module, and this brings it."""

_UNUSABLE = (
    "gymnasium.envs.tabular",  # in JAX, and untried
    "gymnasium.envs.mujoco.pusher_v4",  # needs a MuJoCo older than the one that the others need
)
"""What registered envs' code begins with that cannot be used, whatever is installed."""


def make_envs(
    env_id: str,
    columns: int,
    *,
    seed: int,
    actor: int = 0,
    origin: int = 0,
    groups: int = 1,
    role: str = "env",
    kwargs: Mapping[str, Any] | None = None,
    info_mask: bool = False,
) -> Envs:
    """Make the envs of one actor; what they look like is in `.spec`.

    Every column has a random stream named by (seed, role, actor, origin, column), except that the columns
    of a group share one where the env brings a vector env of its own (CartPole).

    Args:
        env_id: 'envpool:ID', or any id of Gymnasium, 'module:ID' included.
        columns: envs of this actor, N.
        seed: of the run.
        actor: whose envs these are.
        origin: the ticket at which they begin: 0, or the cut of a resume, whose episodes are new ones.
        groups: parts of equal size that are stepped in turn.
        role: what they are for; evaluation has streams of its own.
        kwargs: for the env's constructor.
        info_mask: whether a leaf 'action_mask' is read from the env's infos; `preflight` finds out.

    Returns:
        Envs, which are `Snapshots` too where the whole state is known.

    Raises:
        ConfigError: there is no such env, something it needs is missing, or its spaces are not supported.
    """
    slices = _groups(columns, groups)
    seeds = [derive_seed(seed, role, actor, origin, column) for column in range(columns)]
    arguments = dict(kwargs or {})
    try:
        if env_id.startswith(ENVPOOL):
            return envpool.make_envpool(env_id, env_id.removeprefix(ENVPOOL), slices, seeds, arguments)
        return make_gymnasium(env_id, registered(env_id), slices, seeds, arguments, info_mask=info_mask)
    except OffbeatError:
        raise
    except Exception as error:
        raise ConfigError(_cannot_make(env_id, arguments, error)) from error


def list_envs() -> list[str]:
    """Return the ids that can be used here: registered, and with all that they need installed."""
    known_values.register()
    here = (env_id for env_id, entry in gym.registry.items() if _usable(entry))
    return sorted(here) + [ENVPOOL + name for name in envpool.ids()]


def registered(env_id: str) -> RegisteredEnv:
    """Return an env's entry in Gymnasium's registry.

    Raises:
        ConfigError: it has none, or its module cannot be imported.
    """
    if env_id.startswith("offbeat/"):
        known_values.register()
    module, _, name = env_id.rpartition(":")
    if module:
        import_modules((module,))
    try:
        return gym.spec(name)
    except gym.error.Error as error:
        if name.startswith("ALE/") or "NoFrameskip" in name:
            raise ConfigError(
                f'{env_id} needs the Arcade Learning Environment: pip install "offbeat[atari]"'
            ) from error
        remedy = "`offbeat list envs` shows them; for one of your own type --import my_module, which registers it"
        raise unknown("env", env_id, list_envs(), remedy) from error


def _groups(columns: int, groups: int) -> tuple[slice, ...]:
    if columns < 1 or groups < 1 or columns % groups:
        raise ConfigError(
            f"{columns} envs per actor cannot be cut into {groups} groups of equal size: "
            "type a number of envs per actor that the number of groups divides, both at least 1"
        )
    size = columns // groups
    return tuple(slice(first, first + size) for first in range(0, columns, size))


def _usable(entry: RegisteredEnv) -> bool:
    if not isinstance(entry.entry_point, str):
        # Functions of Gymnasium's own stand for envs that it no longer has: they only raise.
        return entry.entry_point is None or entry.entry_point.__module__ != "gymnasium.envs"
    missing = any(find_spec(module) is None for module, _ in _needed(entry))
    return not missing and not entry.entry_point.startswith(_UNUSABLE)


def _needed(entry: RegisteredEnv) -> Iterator[tuple[str, str]]:
    """Yield the modules that an env needs, each with the command that installs it."""
    for prefix, needed in _NEEDS.items():
        if isinstance(entry.entry_point, str) and entry.entry_point.startswith(prefix):
            yield needed


def _cannot_make(env_id: str, arguments: Mapping[str, Any], error: Exception) -> str:
    entry = gym.registry.get(env_id)
    for module, command in _needed(entry) if entry else ():
        if find_spec(module) is None:
            return f"{env_id} needs {module}, which is not installed: type {command}"
    given = f" with the arguments {dict(arguments)}" if arguments else ""
    return (
        f"{env_id} cannot be made{given} ({type(error).__name__}: {error}): "
        f"gymnasium.make({env_id!r}) in Python shows where"
    )
