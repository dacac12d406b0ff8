"""The registries of algorithms and encoders, from names to code, and `register_runtime`.

A name is registered, or it is the path of the code: 'my_module:MyClass' (`importing.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from inspect import formatannotation
from itertools import count
from typing import Any

from offbeat.config.arguments import checked
from offbeat.config.importing import defer_signals, import_path, path_text
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.runtimes import OPTIONAL_KEYS, RUNTIMES, RuntimeEntry
from offbeat.config.settings import AlgorithmSettings
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.field_definitions import hints_of
from offbeat.core.fields import can_read
from offbeat.core.process.garbage import pause_collection
from offbeat.core.process.threads import forbid_spinning, is_own_process

TABLES = ("run", "env", "runtime", "policies", "league")
"""The tables of a config.toml, except the one of the algorithm, which has the algorithm's name."""


# --- algorithms ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AlgorithmEntry:
    """An algorithm, or the path of one. Its module imports torch, so it is imported only when the algorithm is used."""

    algorithm: type[Any] | str
    """The class, or 'module:Class'."""
    summary: str = ""

    def algorithm_class(self) -> type[Any]:
        """Return the class.

        Raises:
            ConfigError: it does not exist, or is not a class.
        """
        forbid_spinning()  # before torch is loaded for the first time
        with defer_signals(), pause_collection(freeze=is_own_process()):
            algorithm = import_path(self.algorithm) if isinstance(self.algorithm, str) else self.algorithm
        if not isinstance(algorithm, type):
            raise ConfigError(f"{self.algorithm} is {algorithm!r}, but a class is expected, such as offbeat's DQN")
        return algorithm

    def config_class(self) -> type[AlgorithmSettings]:
        """Return the class of the algorithm's settings.

        Raises:
            ConfigError: the algorithm has no valid `config_class`.
        """
        algorithm = self.algorithm_class()
        config = getattr(algorithm, "config_class", None)
        if not (isinstance(config, type) and issubclass(config, AlgorithmSettings)):
            raise ConfigError(
                f"{algorithm.__qualname__} has config_class {config!r}, but the class of its settings is expected: "
                "write `config_class = MyConfig` in it, a frozen dataclass that extends ReplayConfig or OnPolicyConfig"
            )
        own = vars(config).keys() & {field.name for field in fields(config)}
        own |= {key for key, kind in vars(config).get("__annotations__", {}).items() if "ClassVar" not in str(kind)}
        if own and "__dataclass_fields__" not in vars(config):  # only inherited: its own settings would not exist
            raise ConfigError(f"{config.__qualname__} is not a dataclass: write @dataclass(frozen=True) above it")
        _require_types(config)
        return config


def _require_types(config: type[AlgorithmSettings]) -> None:
    """Refuse settings with a type that cannot be read."""
    hints = hints_of(config)
    for name in (field.name for field in fields(config)):
        if not can_read(hints[name]):
            raise ConfigError(
                f"{config.__qualname__}.{name} has the type {formatannotation(hints[name])}, which no setting can "
                "have: write int, float, bool, str, Fraction, Literal['one', 'two'], or tuple[T, ...] of one of these; "
                "T | None and Annotated[T, Bound(...)] of these are possible too"
            )


ALGORITHMS: dict[str, AlgorithmEntry] = {
    "ppo": AlgorithmEntry("offbeat.algorithms.ppo:PPO", "Proximal Policy Optimization, arXiv:1707.06347"),
    "impala": AlgorithmEntry("offbeat.algorithms.impala:IMPALA", "Lagging actor-critic with V-trace, arXiv:1802.01561"),
    "a2c": AlgorithmEntry("offbeat.algorithms.a2c:A2C", "Synchronous advantage actor-critic, arXiv:1602.01783"),
    "sac": AlgorithmEntry("offbeat.algorithms.sac:SAC", "Soft actor-critic on a replay, arXiv:1812.05905"),
    "crossq": AlgorithmEntry("offbeat.algorithms.crossq:CrossQ", "SAC with batch normalisation, arXiv:1902.05605"),
    "td3": AlgorithmEntry("offbeat.algorithms.td3:TD3", "Twin delayed DDPG on a replay, arXiv:1802.09477"),
    "pearl": AlgorithmEntry("offbeat.algorithms.pearl:PEARL", "SAC for many tasks, which it infers, arXiv:1903.08254"),
    "dqn": AlgorithmEntry("offbeat.algorithms.dqn:DQN", "Deep Q-network on a replay, doi:10.1038/nature14236"),
}


@checked
def register_algorithm(name: str, algorithm: type[Any] | str, summary: str = "") -> None:
    """Register an algorithm under a name. The name is also that of its table of settings.

    Args:
        name: lower-case letters, digits and _.
        algorithm: a class with the methods of `ReplayAlgorithm` or `OnPolicyAlgorithm` (algorithms/base.py), `for_run`,
            and the class of its settings as `config_class`; or its path, 'my_module:MyAlgorithm', which is imported
            only when the algorithm is used.
        summary: one line for `offbeat list algorithms`.

    Raises:
        ConfigError: the name is taken or invalid, or `algorithm` is not an algorithm.
    """
    taken = ALGORITHMS[name].algorithm if name in ALGORITHMS else None
    _require_free("algorithm", name, algorithm, "a table of the config" if name in TABLES else taken)
    entry = AlgorithmEntry(algorithm, summary)
    if isinstance(algorithm, str):
        _require_path("algorithm", algorithm)
    else:
        entry.config_class()
    ALGORITHMS[name] = entry


def settings_classes() -> dict[str, type[AlgorithmSettings]]:
    """Return the class of the settings of each registered algorithm, by name, without those that cannot be loaded."""
    classes: dict[str, type[AlgorithmSettings]] = {}
    for name, entry in ALGORITHMS.items():
        with suppress(ConfigError):
            classes[name] = entry.config_class()
    return classes


_OTHER_NAMES = {
    "a3c": "A3C is a2c with --runtime hogwild",
    "dppo": "DPPO is ppo with --runtime hogwild",
    "appo": "APPO is ppo with --runtime processes",
    "ippo": "in a world with several agents, ppo is IPPO",
    "mappo": "a critic of all agents is not supported; in a world with several agents, ppo is IPPO",
    "poca": "a critic of all agents is not supported; in a world with several agents, ppo is IPPO",
}
"""Name of an algorithm in another library -> what to train with."""


def algorithm_entry(name: str) -> AlgorithmEntry:
    """Return the entry of an algorithm by its name or its path.

    Raises:
        ConfigError: the name is not registered.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if ":" in name:
        return AlgorithmEntry(name)
    own = "for your own algorithm pass my_module:MyAlgorithm, or --import my_module if that module registers it"
    remedy = f"There are {', '.join(ALGORITHMS)}: `offbeat list algorithms` shows them; {own}."
    if other := _OTHER_NAMES.get(name.lower()):
        raise ConfigError(f"unknown algorithm {name!r}: {other}. {remedy}")
    raise unknown("algorithm", name, ALGORITHMS, remedy, likeness=0.7)


# --- runtimes -----------------------------------------------------------------------------------------------


@checked
def register_runtime(name: str, entry: RuntimeEntry) -> None:
    """Register a runtime under a name for `--runtime`.

    Args:
        name: lower-case letters, digits and _.
        entry: the module that builds it, the keys of [runtime] that it supports, and its properties.

    Raises:
        ConfigError: the name is taken or invalid, or the entry names keys that [runtime] does not have.
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

EncoderFactory = Callable[..., Any]
"""Called with the leaves of the observation and the setting `encoder_kwargs`; returns a torch module whose
forward(observations) returns features."""

ENCODERS: dict[str, EncoderFactory | str] = {}
GIVEN_ENCODERS: dict[str, EncoderFactory] = {}
"""Encoders that the caller passed to `offbeat.load`, by the encoder's name in the policy."""
OUR_ENCODERS = ("flat", "simple_cnn", "nature_cnn", "impala_resnet")
"""Names of the encoders in models/image_encoders.py."""
INCLUDED_ENCODERS = ("auto", *OUR_ENCODERS)
"""Values of the setting `encoder` that are no code of the user."""


@checked
def register_encoder(name: str, encoder: EncoderFactory | str) -> None:
    """Register an encoder under a name.

    Args:
        name: lower-case letters, digits and _.
        encoder: a function or class that is called with the leaves of the observation, and with the setting
            `encoder_kwargs` as keyword arguments, and returns a new torch module; or its path, 'my_module:MyEncoder'.

    Raises:
        ConfigError: the name is taken or invalid, or `encoder` cannot create modules.
    """
    if name in INCLUDED_ENCODERS:
        raise ConfigError(
            f"{name!r} is the name of an encoder that offbeat includes: register yours under another name"
        )
    _require_free("encoder", name, encoder, ENCODERS.get(name))
    if isinstance(encoder, str):
        _require_path("encoder", encoder)
    else:
        _require_factory(name, encoder)
    ENCODERS[name] = encoder


def _require_factory(name: str, encoder: object) -> None:
    """Refuse an object that cannot create encoders."""
    if not callable(encoder) or (hasattr(encoder, "forward") and not isinstance(encoder, type)):
        raise ConfigError(
            f"the encoder {name} is {type(encoder).__name__} {encoder!r}, but a class or a function is expected, as "
            "each network needs its own module: pass the class, or a function that returns a new module"
        )


def encoder_factory(name: str) -> EncoderFactory:
    """Return the function or class that creates an encoder, by its name or its path.

    Raises:
        ConfigError: the name is not registered.
    """
    if name in GIVEN_ENCODERS:
        return GIVEN_ENCODERS[name]
    if name not in ENCODERS and ":" not in name:
        names = (*INCLUDED_ENCODERS, *ENCODERS)
        own = "for your own encoder pass my_module:MyEncoder, or --import my_module if that module registers it"
        raise unknown("encoder", name, names, f"There are {', '.join(names)}; {own}.")
    encoder = ENCODERS.get(name, name)
    factory: EncoderFactory = import_path(encoder) if isinstance(encoder, str) else encoder
    return factory


def encoder_path(name: str) -> str | None:
    """Return the path of an encoder, 'module:Name', by its name or its path.

    None for an encoder that offbeat includes, and for one that was passed to `offbeat.load`.
    """
    if name in INCLUDED_ENCODERS or name in GIVEN_ENCODERS:
        return None
    return path_text(ENCODERS.get(name, name))


def name_encoder(name: str, encoder: EncoderFactory) -> str:
    """Store an encoder that the caller passed for a policy, and return the name under which it is stored.

    No encoder can be registered under such a name, so an encoder that is passed for one policy is never used for
    another.

    Raises:
        ConfigError: `encoder` cannot create modules.
    """
    _require_factory(name, encoder)
    numbered = (f"{name}#{number}" for number in count(1))
    free = next(each for each in numbered if GIVEN_ENCODERS.get(each, encoder) is encoder)
    GIVEN_ENCODERS[free] = encoder
    return free


def own_encoder(name: str) -> EncoderFactory | str | None:
    """Return what the user has passed or registered under a name; None for other names."""
    return GIVEN_ENCODERS.get(name) or ENCODERS.get(name)


def restore_encoder(name: str, encoder: EncoderFactory | str) -> str:
    """Store the result of `own_encoder` of another process, and return the name under which it is stored here."""
    passed_for, numbered, _ = name.partition("#")
    if numbered and not isinstance(encoder, str):
        return name_encoder(passed_for, encoder)
    ENCODERS.setdefault(name, encoder)
    return name


# --- names --------------------------------------------------------------------------------------------------


def _require_free(kind: str, name: str, code: object, taken: object) -> None:
    """Refuse an invalid name, and one that is registered for other code. The same code may be registered again."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(
            f"{name!r} cannot be the name of the {kind}: pass a name of lower-case letters, digits and _, such as "
            f"'my_{kind}'"
        )
    if taken is not None and path_text(taken) != path_text(code):
        raise ConfigError(
            f"{name!r} is already the name of {path_text(taken)}: register {path_text(code)} under another name"
        )


def _require_path(kind: str, path: str) -> None:
    module, _, name = path.partition(":")
    if not (module and name):
        raise ConfigError(f"{path!r} is not the path of the {kind}: pass 'my_module:MyClass', or the class itself")


def algorithm_title(name: object) -> str:
    """Return the title of an algorithm: its class if it is one of offbeat or given by its place, else its name."""
    entry = ALGORITHMS.get(str(name))
    place = str(entry.algorithm) if entry else ""
    return (place if place.startswith("offbeat.algorithms.") else str(name)).rpartition(":")[2]
