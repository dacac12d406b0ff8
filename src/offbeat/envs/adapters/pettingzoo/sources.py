"""Finds the env of an id: in PettingZoo's registry, or in a package of envs that follows PettingZoo's layout.

PettingZoo's own ids are 'butterfly/knights_archers_zombies_v11' and the like; the prefix 'pettingzoo.' and the form
'-v11' are understood too. In the packages of `PACKAGES` each module 'NAME_vN' has `env` and, unless agents act by
turns, `parallel_env`.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from offbeat.core.errors import ConfigError, type_and_text, unknown, with_traceback_of
from offbeat.core.importable import is_importable

PREFIX = "pettingzoo:"
INSTALL = 'pip install "offbeat[agents]"'

PACKAGES = {"mpe2": INSTALL}
"""Packages of envs -> the command that installs them. Only these are imported: an id in a run directory runs no code of
others. For another package, the path of a function that makes the env is the id."""

_NAMESPACES = {
    "atari": ("multi_agent_ale_py",),
    "butterfly": ("pygame", "pymunk"),
    "classic": ("pygame",),
    "sisl": ("pygame", "pymunk", "scipy", "Box2D"),
}
"""Groups of envs in PettingZoo -> modules that they require."""

_REQUIREMENTS = {
    "classic/chess": ("chess",),
    "classic/hanabi": ("pyspiel", "shimmy"),
    "classic/leduc_holdem": ("rlcard",),
    "classic/texas_holdem": ("rlcard",),
}
"""Start of an id -> modules that the env requires in addition."""


@dataclass(frozen=True)
class Source:
    """How the env of an id is made."""

    create: Callable[..., Any]
    constructor: Callable[..., Any]
    """The class or function whose signature has the arguments."""


def installed_ids() -> list[str]:
    """Return the ids, prefixes included, of all envs whose requirements are installed."""
    if not is_importable("pettingzoo"):
        return []
    own = [name for name in _registered() if not _missing(name)]
    return [PREFIX + name for name in sorted(own) + sorted(_names_in_packages())]


def source_of(name: str) -> Source:
    """Return how the env of an id is made. `name` is the id without the prefix.

    Raises:
        ConfigError: there is no such env, or a package is missing.
    """
    if not is_importable("pettingzoo"):
        raise ConfigError(f"{PREFIX}{name} needs pettingzoo, which is not installed: run {INSTALL}")
    package, _, module = name.rpartition("/")
    if package in PACKAGES and not is_importable(package):
        raise ConfigError(f"{PREFIX}{name} needs {package}, which is not installed: run {PACKAGES[package]}")
    try:
        if name in _names_in_packages():
            return _source_in(import_module(f"{package}.{module}"))
        if (own := _own_name(name)) in _registered():
            return _registered_source(own)
    except ImportError as error:
        raise with_traceback_of(ConfigError(_cannot_import(name, error)), error) from error
    raise _unknown(name)


def _unknown(name: str) -> ConfigError:
    ids = [PREFIX + other for other in (*_registered(), *_names_in_packages())]
    given = PREFIX + _own_name(name)
    other_versions = [env_id for env_id in ids if _versionless(env_id) == _versionless(given)]
    remedy = "Run `offbeat list envs` for a list. For an env of another package, pass my_module:my_function"
    return unknown("env", given, other_versions or ids, remedy)


# --- PettingZoo's registry ----------------------------------------------------------------------------------


def _registered() -> dict[str, Any]:
    """Return PettingZoo's own envs: id 'group/name_vN' -> entry of its parallel API, or else of its AEC API."""
    import pettingzoo

    entries = {**pettingzoo.aec_registry, **pettingzoo.parallel_registry}
    return {_own_name(env_id): entry for env_id, entry in entries.items() if entry.namespace in _NAMESPACES}


def _own_name(name: str) -> str:
    """Return the id in the form 'group/name_vN'."""
    return re.sub(r"-(v\d+)$", r"_\1", name.removeprefix("pettingzoo."))


def _versionless(name: str) -> str:
    return re.sub(r"_v\d+$", "", name)


def _registered_source(name: str) -> Source:
    import pettingzoo

    if missing := _missing(name):
        group = name.partition("/")[0]
        raise ConfigError(
            f'{PREFIX}{name} needs {missing}, which is not installed: run pip install "pettingzoo[{group}]"'
        )
    entry = _registered()[name]
    module = import_module(entry.entry_point.partition(":")[0])
    parallel = entry.id in pettingzoo.parallel_registry
    make: Callable[..., Any] = pettingzoo.make
    return Source(partial(make, "parallel" if parallel else "aec", entry.id), _constructor(module))


def _missing(name: str) -> str:
    """Return a module that an env requires and that is not installed; '' if there is none."""
    required = _NAMESPACES[name.partition("/")[0]]
    extra = [modules for start, modules in _REQUIREMENTS.items() if name.startswith(start)]
    return next((module for module in (*required, *sum(extra, ())) if not is_importable(module)), "")


# --- packages of envs ---------------------------------------------------------------------------------------


def _names_in_packages() -> Iterator[str]:
    for package in PACKAGES:
        found = find_spec(package) if is_importable(package) else None
        for module in pkgutil.iter_modules(found.submodule_search_locations if found else []):
            if re.search(r"_v\d+$", module.name):
                yield f"{package}/{module.name}"


def _source_in(module: Any) -> Source:
    """Return the parallel env of a module, or its AEC env where agents act by turns."""
    metadata: Mapping[str, Any] = getattr(getattr(module, "raw_env", None), "metadata", {})
    parallel = hasattr(module, "parallel_env") and metadata.get("is_parallelizable", True)
    return Source(module.parallel_env if parallel else module.env, _constructor(module))


def _constructor(module: Any) -> Callable[..., Any]:
    """Return the class or function in a module that makes its env, without wrappers."""
    constructor: Callable[..., Any] = getattr(module, "raw_env", None) or module.env
    return constructor


def _cannot_import(name: str, error: ImportError) -> str:
    group = _own_name(name).partition("/")[0]
    install = PACKAGES.get(group, f'pip install "pettingzoo[{group}]"')
    return f"{PREFIX}{name} cannot be imported ({type_and_text(error)}): run {install}"
