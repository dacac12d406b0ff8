"""Sends the user's code to another process: an env's registration, so that `make_envs` makes the same env there, and
the encoders of the policies.

A new process has not imported the user's modules. It repeats the imports, and gets the env's entry in Gymnasium's
registry, which a program may have added while it ran. Code in an entry is pickled by reference (module and name), so
the other process must be able to import it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as RegisteredEnv

from offbeat.config.env import adapter_prefix, family_of
from offbeat.config.importing import accept, import_modules
from offbeat.config.registry import ENCODERS, encoder_path
from offbeat.core.argument_notation import as_shown
from offbeat.core.errors import ConfigError, RunFailed, type_and_text, without_full_stop
from offbeat.envs.registration import is_registered, maker_in, not_registered, register_atari, registry_entry


class NotSendable(ConfigError):
    """Another process cannot import some code. The message has the remedy, and that other runtimes need no process."""

    def __init__(self, reason: str) -> None:
        """Make the error; `reason`: what cannot be sent, why, and the remedy that holds in every runtime."""
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        """Return the reason and the other remedy."""
        return as_shown(f"{self.reason}; or pass --runtime threads or --runtime serial, which need no other process")


def package(
    env_id: str, imports: tuple[str, ...], wrappers: tuple[str, ...] = (), encoders: Iterable[str] = ()
) -> bytes:
    """Return the data from which `unpack` registers an env, and the encoders of its policies, in another process.

    Args:
        env_id: Id of the env, as for `make_envs`.
        imports: The user's modules, which the other process imports too.
        wrappers: Paths of the env's wrappers. The other process imports their modules too.
        encoders: Names or paths of the policies' encoders.

    Raises:
        ConfigError: there is no such env.
        NotSendable: its entry contains code or arguments that cannot be sent, or a wrapper or an encoder is defined in
            the program that was started.
    """
    for wrapper in wrappers:
        _require_in_module("wrapper", wrapper, "my_env:MyWrapper")
    modules = (*imports, *_module_of(env_id), *dict.fromkeys(wrapper.partition(":")[0] for wrapper in wrappers))
    entry = None if adapter_prefix(env_id) else _entry(env_id, modules)
    return pickle.dumps((env_id, modules, entry, _registered_encoders(encoders, modules)))


def _registered_encoders(names: Iterable[str], modules: tuple[str, ...]) -> dict[str, str]:
    """Return the paths of the registered encoders by name, without those that the other process registers itself."""
    paths = {name: path for name in names if (path := encoder_path(name))}
    registered = {name: path for name, path in paths.items() if not _is_imported(path.partition(":")[0], modules)}
    for path in registered.values():
        _require_in_module("encoder", path, "my_network:MyEncoder")
    return {name: path for name, path in registered.items() if name != path}


def _require_in_module(kind: str, path: str, example: str) -> None:
    """Refuse code at a path that another process cannot import."""
    module, _, name = path.partition(":")
    if module != MAIN and "<" not in name:
        return
    where = "in the program that was started" if module == MAIN else f"inside a function of {module}"
    raise NotSendable(
        f"the {kind} {path} cannot be sent to another process: it is defined {where}. Define it at the top level of a "
        f"module, {example.partition(':')[0]}, and pass {example}"
    )


def require_importable(name: str, code: type) -> None:
    """Refuse a class that another process cannot import.

    Args:
        name: Description of the class, for the message.
        code: The class.

    Raises:
        NotSendable: it cannot be imported.
    """
    try:
        _Pickler(io.BytesIO()).dump(code)
    except (_NotImportable, pickle.PicklingError) as error:
        raise NotSendable(
            f"{name} cannot be sent to another process: {without_full_stop(error)}. Move it into a module, my_module, "
            f"and pass my_module:{code.__name__}"
        ) from error


def unpack(data: bytes) -> None:
    """Import the user's modules, and register env and encoders as in the process that called `package`.

    Raises:
        ConfigError: a module cannot be imported.
        RunFailed: the imports do not register the env. No restart of the process would change that.
    """
    env_id, modules, sent, encoders = pickle.loads(data)  # noqa: S301 - from the process that started this one
    import_modules(modules)
    for name, path in encoders.items():
        ENCODERS.setdefault(name, path)
    accept(env_id)
    if family_of(env_id):
        register_atari()  # before the entry is added; otherwise Gymnasium warns about it
    if sent is not None:
        entry = _unpickled(env_id, sent)
        gym.registry[entry.id] = entry  # replaces an entry that an import registered under the same id
    elif not adapter_prefix(env_id) and not is_registered(env_id):
        raise RunFailed(not_registered(env_id, modules))


def _module_of(env_id: str) -> tuple[str, ...]:
    """Return the module of 'module:ID', which the other process imports."""
    module = "" if adapter_prefix(env_id) else env_id.rpartition(":")[0]
    return (module,) if module not in ("", MAIN) else ()


def _entry(env_id: str, modules: tuple[str, ...]) -> bytes | None:
    """Return an env's pickled entry; None if the other process finds the env after its imports."""
    entry = registry_entry(env_id)
    module, _, name = env_id.rpartition(":")
    if module != MAIN and maker_in(module, name) is not None:
        return None
    try:
        for part, value in _parts(entry):
            _require_sendable(part, value, _module_of_entry(entry))
    except _CannotSend as error:
        if _is_imported(error.module, modules):
            return None
        raise NotSendable(f"{env_id} cannot be sent to another process, because of {error}") from None
    return pickle.dumps(entry)


def _unpickled(env_id: str, sent: bytes) -> RegisteredEnv:
    try:
        entry: RegisteredEnv = pickle.loads(sent)  # noqa: S301 - as in `unpack`
    except Exception as error:
        raise ConfigError(
            f"{env_id} cannot be registered in another process ({type_and_text(error)}): "
            "put the folder of the module that defines it on PYTHONPATH"
        ) from error
    return entry


def _is_imported(module: str, modules: tuple[str, ...]) -> bool:
    """Return whether a fresh process imports `module` with the user's modules."""
    return any(f"{module}.".startswith(f"{imported}.") for imported in modules)


# --- code that cannot be sent -------------------------------------------------------------------------------

MAIN = "__main__"
"""The module of the program that was started. In another process this is another program."""


class _CannotSend(Exception):
    """A part of an entry cannot be sent, with the reason and a remedy."""

    def __init__(self, part: str, reason: str, module: str) -> None:
        own = "my_env" if module == MAIN else module
        super().__init__(
            f"its {part}: {reason}. Define it and register the env in a module, {own}, and pass --import {own}"
        )
        self.module = module


def _parts(entry: RegisteredEnv) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an entry that may contain the user's code, each with its name."""
    yield "entry_point", entry.entry_point
    yield "vector_entry_point", entry.vector_entry_point
    yield from ((f"argument {name!r}", value) for name, value in entry.kwargs.items())
    for wrapper in entry.additional_wrappers:
        yield f"wrapper {wrapper.name}", wrapper.entry_point
        for name, value in (wrapper.kwargs or {}).items():
            yield f"wrapper {wrapper.name}'s argument {name!r}", value


def _module_of_entry(entry: RegisteredEnv) -> str:
    """Return the module that defines the env."""
    point = entry.entry_point or entry.vector_entry_point
    return point.partition(":")[0] if isinstance(point, str) else getattr(point, "__module__", MAIN)


def _require_sendable(part: str, value: Any, module: str) -> None:
    if isinstance(value, str) and value.startswith(f"{MAIN}:"):
        raise _CannotSend(part, f"{value} is defined in the program that was started, not in a module", MAIN)
    try:
        _Pickler(io.BytesIO()).dump(value)
    except _NotImportable as error:
        raise _CannotSend(part, str(error), error.module) from None
    except Exception as error:
        reason = f"{type(value).__name__} cannot be pickled ({type_and_text(error)})"
        raise _CannotSend(part, reason, module) from error


class _NotImportable(Exception):
    """Code that another process cannot import by its name."""

    def __init__(self, code: type | FunctionType) -> None:
        self.module = str(code.__module__)
        kind = "class" if isinstance(code, type) else "function"
        named = "a lambda" if code.__name__ == "<lambda>" else f"the {kind} {code.__qualname__}"
        why = "the program that was started" if self.module == MAIN else "but cannot be imported by its name"
        super().__init__(f"{named} is defined in {self.module}, {why}")


class _Pickler(pickle.Pickler):
    """Refuses code that only this process can import. The default pickler accepts code of the started program."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type | FunctionType) and (value.__module__ == MAIN or "<" in value.__qualname__):
            raise _NotImportable(value)
        return NotImplemented
