"""Gymnasium's registry: `register_env` for envs of your own, and the entry that belongs to an env's id."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import reduce
from importlib import import_module
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as RegisteredEnv

import offbeat.envs.own  # noqa: F401 - registers offbeat's own envs
from offbeat.config.arguments import checked
from offbeat.config.env import family_of
from offbeat.config.importing import (
    IN_ANOTHER_PROGRAM,
    accept,
    import_modules,
    is_code_of,
    module_of_file,
    names_of_code,
)
from offbeat.core.argument_notation import as_shown
from offbeat.core.errors import ConfigError, suggestion, unknown
from offbeat.core.importable import is_importable
from offbeat.envs.packages import package_of, pettingzoo_prefix

MUJOCO_MODULES = ("gymnasium.envs.mujoco.", "offbeat.envs.meta.locomotion")
"""Starts of the modules of Gymnasium's and offbeat's MuJoCo envs, which have no state besides that of MuJoCo and the
number of their task."""

_REQUIREMENTS = {
    **dict.fromkeys(MUJOCO_MODULES, ("mujoco", 'pip install "offbeat[mujoco]"')),
    "gymnasium.envs.box2d": ("Box2D", 'pip install "offbeat[box2d]"'),
    "ale_py": ("ale_py", 'pip install "offbeat[atari]"'),
    "gymnasium.envs.phys2d": ("jax", 'pip install "gymnasium[jax]"'),
}
"""Start of an env's entry point -> the module that it requires, and the command that installs it."""

_UNUSABLE = (
    "gymnasium.envs.tabular",  # needs JAX, and is not tested
    "gymnasium.envs.mujoco.pusher_v4",  # needs an older MuJoCo than the other envs
)
"""Starts of the entry points of envs that are never listed."""

_REGISTRATION_KEYS = tuple(inspect.signature(gym.register).parameters)[2:]
"""Arguments of `gymnasium.register` after the id and the entry point."""

SHOWN_IDS = 6
"""Ids of a package that a message names at most."""

# --- registering an env -------------------------------------------------------------------------------------


@checked
def register_env(
    env_id: str, entry_point: Callable[..., Any] | str, *, max_episode_steps: int | None = None, **registration: Any
) -> None:
    """Register an env of your own with Gymnasium. Mistakes that would fail only later are refused here.

    Args:
        env_id: 'MyEnv-v0' or 'namespace/MyEnv-v0'.
        entry_point: The env's class, a function that makes one env, or the path of either, 'my_module:MyEnv'. Actor
            processes can use it only if it is at the top level of a module; see docs/reference/envs.md.
        max_episode_steps: Env steps after which an episode is truncated; None: no limit.
        registration: Other arguments of `gymnasium.register`: kwargs (of the constructor), ...

    Raises:
        ConfigError: the id is invalid or belongs to another env, or an argument is invalid.
    """
    for key in registration:
        if key not in _REGISTRATION_KEYS:
            raise unknown("argument", key, _REGISTRATION_KEYS, "See `help(gymnasium.register)`.")
    _require_entry_point(env_id, entry_point)
    if max_episode_steps is not None and max_episode_steps < 1:
        raise ConfigError(
            f"{env_id} has max_episode_steps {max_episode_steps!r}, but a whole number of at least 1 is expected"
        )
    if env_id in gym.registry:
        registered_point = gym.registry[env_id].entry_point
        if not _same(registered_point, entry_point):
            raise ConfigError(
                f"{env_id} is already registered, with entry_point {registered_point}: use another id for your env"
            )
        del gym.registry[env_id]  # otherwise Gymnasium warns that the env is registered twice
    try:
        gym.register(env_id, entry_point, max_episode_steps=max_episode_steps, **registration)
    except gym.error.Error as error:
        raise ConfigError(
            f"{env_id!r} is not a valid env id ({error}): use an id such as 'MyEnv-v0' or 'my_env/MyEnv-v0'"
        ) from None


def _require_entry_point(env_id: str, entry_point: Any) -> None:
    """Refuse an entry point that cannot make an env."""
    if isinstance(entry_point, str):
        if not all(entry_point.partition(":")):
            raise ConfigError(f"{env_id} has entry_point {entry_point!r}: pass 'my_module:MyEnv' or the class itself")
    elif not callable(entry_point):
        raise ConfigError(
            f"{env_id} has entry_point {entry_point!r}, but an env's class, or a function that makes an env, is "
            "expected, because each actor makes several envs"
        )
    elif isinstance(entry_point, type) and not issubclass(entry_point, gym.Env):
        raise ConfigError(f"{env_id} has the class {entry_point.__name__}, which must extend gymnasium.Env")


def _same(one: Any, other: Any) -> bool:
    """Whether both are the same code, for example when a notebook cell is run again."""
    names = [
        code if isinstance(code, str) else (getattr(code, "__module__", None), getattr(code, "__qualname__", code))
        for code in (one, other)
    ]
    return bool(names[0] == names[1])


# --- finding an env -----------------------------------------------------------------------------------------


def registry_entry(env_id: str) -> RegisteredEnv:
    """Return an env's entry in Gymnasium's registry; for 'module:Class' a new entry.

    Raises:
        ConfigError: the env is unknown, or its module cannot be imported.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        import_modules((module,))
        accept(env_id)
    if (maker := maker_in(module, name)) is not None:
        return RegisteredEnv(env_id, maker)
    try:
        return _find(name)
    except gym.error.Error as error:
        if family_of(env_id) and not is_importable("ale_py"):
            raise ConfigError(
                f'{env_id} needs the Arcade Learning Environment: run pip install "offbeat[atari]"'
            ) from error
        raise _unknown(env_id, module, name) from error


def _unknown(env_id: str, module: str, name: str) -> ConfigError:
    """Return the error for an env that is neither registered nor in the module that its id names."""
    if not module:
        return _unknown_id(env_id)
    if not name:
        return ConfigError(f"{env_id} names only a module: pass {module}:MyEnv, the class or function in it")
    if hasattr(sys.modules[module], name):
        return ConfigError(
            f"{env_id} is not a class or function: pass the class of an env, or a function that returns an env"
        )
    if _is_of_gym(name):
        return ConfigError(
            f"{env_id} is registered with gym, the predecessor of Gymnasium: pass shimmy:GymV26Environment-v0 --import "
            f'{module} --env-kwargs env_id={name}, after pip install "shimmy[gym-v26]". If its step() returns four '
            "values, write a class that extends gymnasium.Env and calls it"
        )
    ids = _ids_of(module)
    has = f"It registers {', '.join(ids[:SHOWN_IDS])}{', ...' * (len(ids) > SHOWN_IDS)}." if ids else ""
    by_name = {_without_namespace(each): each for each in (*names_of_code(module), *ids)}
    nearest = get_close_matches(_without_namespace(name), by_name, n=1, cutoff=0.5)
    meant = f" Did you mean '{module}:{by_name[nearest[0]]}'?" if nearest else ""
    has_not = f"The module {module} has no class, function or env of this name."
    if not (ids or module == "__main__" or name.replace(".", "").isidentifier()):  # it can only be an id
        has_not = not_registered(name, (module,))
    other = IN_ANOTHER_PROGRAM if module == "__main__" else ""
    return ConfigError(f"unknown env {env_id!r}.{meant} {' '.join(filter(None, (has_not, has, other)))}")


def _unknown_id(env_id: str) -> ConfigError:
    """Return the error for an id without a module that is not registered."""
    if env_id.endswith(".py"):
        own, where = module_of_file(env_id)
        return ConfigError(
            f"{env_id} is a file, but an env is expected: pass {own}:MyEnv, the class of the env in it{where}"
        )
    if package := package_of(env_id):
        return ConfigError(f"unknown env {env_id!r}. {package}")
    nearest = suggestion(env_id, registered_ids(), likeness=0.7)
    if not nearest and (prefix := pettingzoo_prefix(env_id)):
        return ConfigError(f"unknown env {env_id!r}.{prefix}")
    return UnknownEnv(env_id, nearest)


class UnknownEnv(ConfigError):
    """No env is registered under an id without a module."""

    def __init__(self, env_id: str, nearest: str) -> None:
        """Make the error; `nearest`: a sentence with what was probably meant, or ''."""
        super().__init__(env_id, nearest)
        self.nearest, self.problem = nearest, f"unknown env {env_id!r}.{nearest}"

    def __str__(self) -> str:
        """Return the problem and the remedies."""
        return as_shown(f"{self.problem} {REMEDIES}")


REMEDIES = (
    "Run `offbeat list envs` for a list. For an env of another package, type its module too: module:ID. For an env of "
    "your own, pass --import my_module, which registers it, or my_module:MyEnv"
)
"""What to do about an unknown env."""


@contextmanager
def naming_imports(env_id: str, imports: Sequence[str]) -> Iterator[None]:
    """While entered, say of an unknown env that the user's modules do not register it, unless an id is near.

    Args:
        env_id: the env that is made.
        imports: the modules that the user has imported.

    Raises:
        ConfigError: the env is unknown.
    """
    try:
        yield
    except UnknownEnv as error:
        if not imports or error.nearest:
            raise
        raise ConfigError(f"{error.problem} {not_registered(env_id, imports)}. {REMEDIES}") from error


def not_registered(name: str, modules: Iterable[str]) -> str:
    """Return what is wrong and what to do if importing the user's modules does not register an env."""
    return (
        f"{name} is not registered by importing {', '.join(modules)}: call gymnasium.register at the top level of the "
        "module, not in a function"
    )


def _is_of_gym(name: str) -> bool:
    """Whether gym, which a package has imported, has this id. Before version 0.26 its registry was no dict."""
    registry = getattr(getattr(sys.modules.get("gym"), "envs", None), "registry", ())
    return name in getattr(registry, "env_specs", registry)


def _without_namespace(env_id: str) -> str:
    return env_id.rpartition("/")[2].lower()


def _ids_of(module: str) -> list[str]:
    """Return the registered ids of the envs in a module or its submodules."""
    return sorted(env_id for env_id, entry in gym.registry.items() if is_code_of(entry.entry_point, module))


def _find(name: str) -> RegisteredEnv:
    try:
        return gym.spec(name)
    except gym.error.Error:
        register_atari()  # only when needed: the import is slow
        return gym.spec(name)


def register_atari() -> None:
    """Register Atari's games with Gymnasium if ale-py is installed: importing it registers them."""
    if is_importable("ale_py"):
        import_module("ale_py")


def is_registered(env_id: str) -> bool:
    """Whether an env exists, after its modules have been imported."""
    module, _, name = env_id.rpartition(":")
    return name in gym.registry or maker_in(module, name) is not None


def maker_in(module: str, name: str) -> Callable[..., Any] | None:
    """Return the class or function of this name in a module, unless an env is registered under the name."""
    if name in gym.registry or module not in sys.modules:
        return None
    try:
        maker = reduce(getattr, name.split("."), sys.modules[module])
    except AttributeError:
        return None
    return maker if callable(maker) else None


def own_maker(env_id: str) -> Callable[..., Any] | None:
    """Return the class or function of 'module:name', after its import; None for an id of Gymnasium's registry.

    Raises:
        ConfigError: the module cannot be imported, or there is no such env.
    """
    module, _, name = env_id.rpartition(":")
    if not module:
        return None
    registry_entry(env_id)
    return maker_in(module, name)


# --- installed envs -----------------------------------------------------------------------------------------


def registered_ids() -> list[str]:
    """Return the ids in Gymnasium's registry whose requirements are installed."""
    register_atari()
    return sorted(env_id for env_id, entry in gym.registry.items() if _is_usable(entry))


def missing_package(env_id: str) -> str:
    """Return a message that names the package that an env needs and that is not installed; '' if there is none."""
    entry = gym.registry.get(env_id)
    for module, command in _requirements(entry) if entry else ():
        if not is_importable(module):
            return f"{env_id} needs {module}, which is not installed: run {command}"
    return ""


def _is_usable(entry: RegisteredEnv) -> bool:
    if not isinstance(entry.entry_point, str):
        # Gymnasium registers functions for envs that it no longer has: they only raise.
        return entry.entry_point is None or entry.entry_point.__module__ != "gymnasium.envs"
    missing = any(not is_importable(module) for module, _ in _requirements(entry))
    return not missing and not entry.entry_point.startswith(_UNUSABLE)


def _requirements(entry: RegisteredEnv) -> Iterator[tuple[str, str]]:
    """Yield the modules that an env requires, each with the command that installs it."""
    for start, requirement in _REQUIREMENTS.items():
        if isinstance(entry.entry_point, str) and entry.entry_point.startswith(start):
            yield requirement
