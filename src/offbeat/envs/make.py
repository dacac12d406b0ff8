"""`make_envs`: from what the user typed to the columns of one actor; `register_env`: what else may be typed."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as RegisteredEnv

from offbeat.config.env import ENVPOOL, UNSET, EnvConfig, family_of
from offbeat.config.registry import accept, import_modules
from offbeat.core.errors import ConfigError, OffbeatError, unknown, with_traceback_of
from offbeat.core.seeding import derive_seed
from offbeat.envs.adapters import ale, envpool
from offbeat.envs.adapters.gymnasium import make_gymnasium
from offbeat.envs.contract import Envs
from offbeat.envs.limits import Limits
from offbeat.envs.spaces import stacked
from offbeat.envs.testing import known_values

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
    settings: EnvConfig = UNSET,
    kwargs: Mapping[str, Any] | None = None,
    info_mask: bool = False,
    cut_after: int | None = None,
) -> Envs:
    """Make the envs of one actor; what they look like is in `.spec`.

    Every column has a random stream named by (seed, role, actor, origin, column), except that the columns
    of a group share one where the env brings a vector env of its own (CartPole).

    Args:
        env_id: 'envpool:ID', any id of Gymnasium, 'module:ID' included, or 'module:Class', an env's class there (or a
            function that makes one).
        columns: envs of this actor, N.
        seed: of the run.
        actor: whose envs these are.
        origin: the ticket at which they begin: 0, or the cut of a resume, whose episodes are new ones.
        groups: parts of equal size that are stepped in turn.
        role: what they are for; evaluation has streams of its own.
        settings: how the env is played; those that are none follow from its id.
        kwargs: for the env's constructor.
        info_mask: whether a leaf 'action_mask' is read from the env's infos; `preflight` finds out.
        cut_after: env steps after which an evaluation cuts an episode, where the env's own limit is longer or unknown.
            A vector env that cannot be limited does without it.

    Returns:
        Envs, which are `Snapshots` too where the whole state is known.

    Raises:
        ConfigError: there is no such env, something it needs is missing, its spaces are not supported, or a setting
            is not supported by it.
    """
    settings = settings.completed(env_id)
    slices = _groups(columns, groups)
    seeds = [derive_seed(seed, role, actor, origin, column) for column in range(columns)]
    arguments = dict(kwargs or {})
    try:
        limits = Limits(settings.max_episode_steps, cut_after)
        envs = _made(env_id, slices, seeds, settings, limits, arguments, info_mask=info_mask)
    except OffbeatError:
        raise
    except Exception as error:
        raise with_traceback_of(ConfigError(_cannot_make(env_id, arguments, error)), error) from error
    envs.spec = stacked(envs.spec, settings.frame_stack or 1)
    return envs


def _made(
    env_id: str,
    groups: Sequence[slice],
    seeds: Sequence[int],
    settings: EnvConfig,
    limits: Limits,
    arguments: Mapping[str, Any],
    *,
    info_mask: bool,
) -> Envs:
    """Make the envs by the adapter that suits them."""
    if env_id.startswith(ENVPOOL):
        _refuse_curriculum(env_id, settings)
        return envpool.make_envpool(env_id, env_id.removeprefix(ENVPOOL), groups, seeds, settings, limits, arguments)
    entry = registered(env_id)
    if ale.is_atari(entry, env_id):
        _refuse_curriculum(env_id, settings)
        return ale.make_atari(env_id, entry, groups, seeds, settings, limits, arguments)
    return make_gymnasium(env_id, entry, groups, seeds, settings, limits, arguments, info_mask=info_mask)


def _refuse_curriculum(env_id: str, settings: EnvConfig) -> None:
    """Refuse to set what is compiled."""
    if settings.curriculum:
        raise ConfigError(f"curriculum is given, but nothing in {env_id} can be set: leave it out")


def list_envs() -> list[str]:
    """Return the ids that can be used here: registered, and with all that they need installed."""
    known_values.register()
    ale.register()
    here = (env_id for env_id, entry in gym.registry.items() if _usable(entry))
    return sorted(here) + [ENVPOOL + name for name in envpool.ids()]


def register_env(env_id: str, entry_point: Callable[..., Any] | str, **registration: Any) -> None:
    """Register an env of your own with Gymnasium, where all that could go wrong later is refused at once.

    Args:
        env_id: 'MyEnv-v0', or 'namespace/MyEnv-v0'.
        entry_point: the env's class, a function that makes one env, or where either is, 'my_module:MyEnv'. For actor
            processes it must be at the top of a module; see docs/reference/envs.md.
        registration: what else `gymnasium.register` takes: max_episode_steps, kwargs (for the constructor), ...

    Raises:
        ConfigError: the id is none or stands for another env, or what was given makes no env.
    """
    for key in registration:
        if key not in _REGISTRATION:
            raise unknown("argument", key, _REGISTRATION, "`help(gymnasium.register)` explains them.")
    _require_maker(env_id, entry_point)
    _require_limit(env_id, registration.get("max_episode_steps"))
    if env_id in gym.registry:
        there = gym.registry[env_id].entry_point
        if not _same(there, entry_point):
            raise ConfigError(f"{env_id} is registered already, with {there}: give yours another id")
        del gym.registry[env_id]  # Gymnasium would warn of it
    try:
        gym.register(env_id, entry_point, **registration)
    except gym.error.Error as error:
        raise ConfigError(
            f"{env_id!r} cannot be the id of your env ({error}): give one such as 'MyEnv-v0' or 'my_env/MyEnv-v0'"
        ) from None


_REGISTRATION = tuple(inspect.signature(gym.register).parameters)[2:]
"""What `gymnasium.register` takes beside id and entry point."""


def _require_maker(env_id: str, entry_point: Any) -> None:
    """Refuse what makes no env."""
    if isinstance(entry_point, str):
        if not all(entry_point.partition(":")):
            raise ConfigError(f"{env_id} has entry_point {entry_point!r}: write 'my_module:MyEnv', or give the class")
    elif not callable(entry_point):
        raise ConfigError(
            f"{env_id} has entry_point {entry_point!r}, but the class of an env, or a function that makes one, is "
            "expected, as each column has an env of its own"
        )
    elif isinstance(entry_point, type) and not issubclass(entry_point, gym.Env):
        raise ConfigError(f"{env_id} is of the class {entry_point.__name__}, which must extend gymnasium.Env")


def _require_limit(env_id: str, steps: Any) -> None:
    if steps is not None and (not isinstance(steps, int) or steps < 1):
        raise ConfigError(f"{env_id} has max_episode_steps {steps!r}, but a whole number of at least 1 is expected")


def _same(one: Any, other: Any) -> bool:
    """Whether both are the same code, as when the cell of a notebook runs again."""
    places = [
        code if isinstance(code, str) else (getattr(code, "__module__", None), getattr(code, "__qualname__", code))
        for code in (one, other)
    ]
    return bool(places[0] == places[1])


def _found(name: str) -> RegisteredEnv:
    try:
        return gym.spec(name)
    except gym.error.Error:
        ale.register()  # only now, as importing it takes a moment
        return gym.spec(name)


def registered(env_id: str) -> RegisteredEnv:
    """Return an env's entry in Gymnasium's registry, or for 'module:Class' a new one.

    Raises:
        ConfigError: it has none, or its module cannot be imported.
    """
    if env_id.startswith("offbeat/"):
        known_values.register()
    module, _, name = env_id.rpartition(":")
    if module:
        import_modules((module,))
        accept(env_id)
    if (maker := _maker_in(module, name)) is not None:
        return RegisteredEnv(env_id, maker)
    try:
        return _found(name)
    except gym.error.Error as error:
        if family_of(env_id) and find_spec("ale_py") is None:
            raise ConfigError(
                f'{env_id} needs the Arcade Learning Environment: pip install "offbeat[atari]"'
            ) from error
        remedy = (
            "`offbeat list envs` shows them; for one of your own pass --import my_module, which registers it, or "
            "my_module:MyEnv"
        )
        raise unknown("env", env_id, list_envs(), remedy) from error


def is_known(env_id: str) -> bool:
    """Whether there is such an env, once its modules have been imported."""
    module, _, name = env_id.rpartition(":")
    return name in gym.registry or _maker_in(module, name) is not None


def _maker_in(module: str, name: str) -> Callable[..., Any] | None:
    """Return what makes an env of this name in a module, unless the name is that of a registered one."""
    if name in gym.registry or module not in sys.modules:
        return None
    try:
        maker = reduce(getattr, name.split("."), sys.modules[module])
    except AttributeError:
        return None
    return maker if callable(maker) else None


def _groups(columns: int, groups: int) -> tuple[slice, ...]:
    if columns < 1 or groups < 1 or columns % groups:
        raise ConfigError(
            f"{columns} envs per actor cannot be cut into {groups} groups of equal size: "
            "pass a number of envs per actor that the number of groups divides, both at least 1"
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
            return f"{env_id} needs {module}, which is not installed: run {command}"
    given = f" with the arguments {dict(arguments)}" if arguments else ""
    return (
        f"{env_id} cannot be made{given} ({type(error).__name__}: {error}): "
        f"gymnasium.make({env_id!r}) in Python shows where"
    )
