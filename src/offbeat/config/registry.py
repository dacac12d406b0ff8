"""Names that users may type, and the code that they stand for.

A name is one of a registry's, or says where the code is: 'my_module:MyClass'.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import reduce
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.runtimes import OPTIONAL_KEYS, RUNTIMES, RuntimeEntry
from offbeat.config.settings import AlgorithmSettings
from offbeat.core.errors import ConfigError, suggestion, unknown, with_traceback_of
from offbeat.core.threads import forbid_spinning

TABLES = ("run", "env", "runtime")
"""The tables of a config.toml beside that of the algorithm, which is called as the algorithm is."""


# --- algorithms ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AlgorithmEntry:
    """An algorithm, or where it is: its module is imported only when it is used, as it imports torch."""

    algorithm: type[Any] | str
    """The class, or 'module:Class'."""
    summary: str = ""

    def algorithm_class(self) -> type[Any]:
        """Return the class.

        Raises:
            ConfigError: it is not there, or is no class.
        """
        forbid_spinning()  # here, as this is where torch is loaded first
        with _stops_held():
            algorithm = find(self.algorithm) if isinstance(self.algorithm, str) else self.algorithm
        if not isinstance(algorithm, type):
            raise ConfigError(f"{self.algorithm} is {algorithm!r}, but a class is expected, such as offbeat's DQN")
        return algorithm

    def config_class(self) -> type[AlgorithmSettings]:
        """Return the class of its settings.

        Raises:
            ConfigError: it names none.
        """
        algorithm = self.algorithm_class()
        config = getattr(algorithm, "config_class", None)
        if not (isinstance(config, type) and is_dataclass(config) and issubclass(config, AlgorithmSettings)):
            raise ConfigError(
                f"{algorithm.__qualname__} has config_class {config!r}, but the class of its settings is expected: "
                "write `config_class = MyConfig` in it, a frozen dataclass that extends ReplayConfig or OnPolicyConfig"
            )
        return config


@contextmanager
def _stops_held() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait: an exception raised inside torch, while it starts, would abort the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


ALGORITHMS: dict[str, AlgorithmEntry] = {
    "ppo": AlgorithmEntry("offbeat.algorithms.ppo:PPO", "Proximal Policy Optimization, arXiv:1707.06347"),
    "impala": AlgorithmEntry("offbeat.algorithms.impala:IMPALA", "Lagging actor-critic with V-trace, arXiv:1802.01561"),
    "a2c": AlgorithmEntry("offbeat.algorithms.a2c:A2C", "Synchronous advantage actor-critic, arXiv:1602.01783"),
    "sac": AlgorithmEntry("offbeat.algorithms.sac:SAC", "Soft actor-critic on a replay, arXiv:1812.05905"),
    "dqn": AlgorithmEntry("offbeat.algorithms.dqn:DQN", "Deep Q-network on a replay, doi:10.1038/nature14236"),
}


def register_algorithm(name: str, algorithm: type[Any] | str, summary: str = "") -> None:
    """Give an algorithm of your own a name, by which it is trained and as which its table of settings stands.

    Args:
        name: of small letters, digits and _.
        algorithm: a class with the methods of `ReplayAlgorithm` or `OnPolicyAlgorithm` (algorithms/base.py), `for_run`,
            and the class of its settings as `config_class`; or where it is, 'my_module:MyAlgorithm', so that it is
            imported only when it is used.
        summary: a line for `offbeat list algorithms`.

    Raises:
        ConfigError: there is one of that name, or what was given is no algorithm.
    """
    taken = ALGORITHMS[name].algorithm if name in ALGORITHMS else None
    _require_free("algorithm", name, algorithm, "a table of the config" if name in TABLES else taken)
    entry = AlgorithmEntry(algorithm, summary)
    if isinstance(algorithm, str):
        _require_place("algorithm", algorithm)
    else:
        entry.config_class()
    ALGORITHMS[name] = entry


def algorithm_entry(name: str) -> AlgorithmEntry:
    """Return the entry of an algorithm, by its name or by where it is.

    Raises:
        ConfigError: there is none of that name.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if ":" in name:
        return AlgorithmEntry(name)
    own = "for one of your own pass --import my_module, which registers it, or my_module:MyAlgorithm"
    raise unknown("algorithm", name, ALGORITHMS, f"`offbeat list algorithms` shows them; {own}.")


# --- runtimes -----------------------------------------------------------------------------------------------


def register_runtime(name: str, entry: RuntimeEntry) -> None:
    """Give a runtime of your own a name, by which `--runtime` chooses it.

    Args:
        name: of small letters, digits and _.
        entry: where it is built, which keys of [runtime] it supports, and what it does at the same time.

    Raises:
        ConfigError: there is one of that name, or the entry names keys that are none of [runtime].
    """
    if not isinstance(entry, RuntimeEntry):
        raise ConfigError(f"the runtime {name} is {entry!r}, but a RuntimeEntry is expected: see config/runtimes.py")
    taken = RUNTIMES[name].module if name in RUNTIMES else None
    _require_free("runtime", name, entry.module, taken)
    for key in entry.supports:
        if key not in OPTIONAL_KEYS:
            raise unknown("key", key, OPTIONAL_KEYS, f"The runtime {name} can support {', '.join(OPTIONAL_KEYS)}.")
    keys = [field.name for field in fields(RuntimeConfig) if field.name not in ("runtime", *OPTIONAL_KEYS)]
    for key in entry.refuses:
        if key not in keys:
            raise unknown("key", key, keys, f"The runtime {name} can refuse {', '.join(keys)}.")
    RUNTIMES[name] = replace(entry, name=name)


# --- encoders -----------------------------------------------------------------------------------------------

EncoderFactory = Callable[[Any], Any]
"""From what is observed to a torch module whose forward(observations) returns features."""

ENCODERS: dict[str, EncoderFactory | str] = {}
GIVEN_ENCODERS: dict[str, EncoderFactory] = {}
"""Those that the caller gave for a policy that is loaded, by the name that the policy has for its own."""
OUR_ENCODERS = ("auto", "flat", "nature_cnn", "impala_resnet")
"""Names that stand for what is in models/encoders.py."""


def register_encoder(name: str, encoder: EncoderFactory | str) -> None:
    """Give an encoder of your own a name.

    Args:
        name: of small letters, digits and _.
        encoder: a function, or a class, that is called with what is observed and returns a new torch module; or where
            it is, 'my_module:MyEncoder'.

    Raises:
        ConfigError: there is one of that name, or what was given makes no modules.
    """
    if name in OUR_ENCODERS:
        raise ConfigError(
            f"{name!r} is the name of an encoder of offbeat's, and cannot be that of another: give another"
        )
    _require_free("encoder", name, encoder, ENCODERS.get(name))
    if isinstance(encoder, str):
        _require_place("encoder", encoder)
    else:
        _require_factory(name, encoder)
    ENCODERS[name] = encoder


def _require_factory(name: str, encoder: object) -> None:
    """Refuse what makes no encoders."""
    if not callable(encoder) or (hasattr(encoder, "forward") and not isinstance(encoder, type)):
        raise ConfigError(
            f"the encoder {name} is {type(encoder).__name__} {encoder!r}, but what makes encoders is expected, as each "
            "network has its own: give the class, or a function that returns a new module"
        )


def encoder_factory(name: str) -> EncoderFactory:
    """Return what makes an encoder, by its name or by where it is.

    Raises:
        ConfigError: there is none of that name.
    """
    if name in GIVEN_ENCODERS:
        return GIVEN_ENCODERS[name]
    if name not in ENCODERS and ":" not in name:
        own = "for one of your own pass --import my_module, which registers it, or my_module:MyEncoder"
        raise unknown("encoder", name, (*OUR_ENCODERS, *ENCODERS), f"{own[0].upper()}{own[1:]}.")
    encoder = ENCODERS.get(name, name)
    factory: EncoderFactory = find(encoder) if isinstance(encoder, str) else encoder
    return factory


def name_encoder(name: str, encoder: EncoderFactory) -> str:
    """Let a name stand for an encoder that the caller gave for a policy; return the name, or the next free one.

    Raises:
        ConfigError: what was given makes no modules.
    """
    _require_factory(name, encoder)
    free = next(each for each in _numbered(name) if GIVEN_ENCODERS.get(each, encoder) is encoder)
    GIVEN_ENCODERS[free] = encoder
    return free


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}#{number}" for number in count(2))


# --- what this process was given ----------------------------------------------------------------------------

_ACCEPTED: set[str] = set()
"""Modules, and places 'module:Name', that the caller has named or accepted. What a file names is held against it."""


def accept(*names: str) -> None:
    """Note that the caller has named these modules and places, or has accepted them."""
    _ACCEPTED.update(names)


def is_accepted(name: str) -> bool:
    """Whether the caller has named this module or place, or has accepted it."""
    return name in _ACCEPTED


# --- names --------------------------------------------------------------------------------------------------


def _require_free(kind: str, name: str, code: object, taken: object) -> None:
    """Refuse a name that is none, or that stands for other code; the same may come again, as in a notebook."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(f"{name!r} names no {kind}: give a name of small letters, digits and _, such as 'my_{kind}'")
    if taken is not None and _place(taken) != _place(code):
        of = _place(taken)
        raise ConfigError(f"{name!r} is the name of {of}, and cannot be that of {_place(code)}: give another")


def _place(code: object) -> str:
    """Say where code is."""
    if isinstance(code, str):
        return code
    return f"{getattr(code, '__module__', None)}:{getattr(code, '__qualname__', None)}"


def _require_place(kind: str, place: str) -> None:
    module, _, name = place.partition(":")
    if not (module and name):
        raise ConfigError(f"{place!r} does not say where the {kind} is: write 'my_module:MyClass', or give it itself")


def find(place: str) -> Any:
    """Return what 'module:Name' says.

    Raises:
        ConfigError: the module cannot be imported, or has nothing of that name.
    """
    module, _, name = place.partition(":")
    accept(place)
    if module.partition(".")[0] != "offbeat":
        import_modules((module,))
    home = import_module(module)
    try:
        return reduce(getattr, name.split("."), home)
    except AttributeError:
        where = "the program that was started" if module == "__main__" else module
        near = suggestion(name, vars(home))
        raise ConfigError(f"{place} is not there: {where} has no {name}.{near}") from None


def place_of(code: object, remedy: str) -> str:
    """Return where a class or a function is, as 'module:Name', for others to find it there.

    Args:
        code: the class or function.
        remedy: what to write where that is not possible.

    Raises:
        ConfigError: it is nothing that is found under a name.
    """
    place = _place(code)
    try:
        found = find(place)
    except ConfigError:
        found = None
    if found is not code:
        raise ConfigError(
            f"{code!r} is no class or function at the top of a module, where it would be found again: put it there, or "
            f"write {remedy}"
        )
    return place


def import_modules(names: tuple[str, ...]) -> None:
    """Import modules that the caller has named, which may register what they bring; the current folder is searched too.

    Raises:
        ConfigError: one cannot be imported.
    """
    if any(name not in sys.modules for name in names) and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    for name in names:
        import_found(name)
    accept(*names)


def import_found(name: str) -> None:
    """Import a module from where Python searches by itself.

    Raises:
        ConfigError: it cannot be imported.
    """
    forbid_spinning()  # it may load torch
    try:
        import_module(name)
    except Exception as error:
        refused = ConfigError(
            f"the module {name} cannot be imported ({type(error).__name__}: {error}): check the name, and that its "
            "folder is on PYTHONPATH or is the current folder"
        )
        raise with_traceback_of(refused, error) from error
