"""Names that users may type, and what they stand for."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from offbeat.errors import ConfigError, unknown
from offbeat.threads import forbid_spinning


@dataclass(frozen=True)
class AlgorithmEntry:
    """Where an algorithm lives; its module is imported only when it is used, as it imports torch."""

    module: str
    config: str
    algorithm: str
    summary: str

    def config_class(self) -> type[Any]:
        return self._load(self.config)

    def algorithm_class(self) -> type[Any]:
        return self._load(self.algorithm)

    def _load(self, name: str) -> type[Any]:
        forbid_spinning()  # here, as this is where torch is loaded first
        with _stops_held():
            loaded: type[Any] = getattr(import_module(self.module), name)
        return loaded


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


ALGORITHMS: Mapping[str, AlgorithmEntry] = {
    "ppo": AlgorithmEntry(
        "offbeat.algorithms.ppo", "PPOConfig", "PPO", "Proximal Policy Optimization, arXiv:1707.06347"
    ),
    "impala": AlgorithmEntry(
        "offbeat.algorithms.impala", "IMPALAConfig", "IMPALA", "Lagging actor-critic with V-trace, arXiv:1802.01561"
    ),
    "a2c": AlgorithmEntry(
        "offbeat.algorithms.a2c", "A2CConfig", "A2C", "Synchronous advantage actor-critic, arXiv:1602.01783"
    ),
    "sac": AlgorithmEntry(
        "offbeat.algorithms.sac", "SACConfig", "SAC", "Soft actor-critic on a replay, arXiv:1812.05905"
    ),
}


def algorithm_entry(name: str) -> AlgorithmEntry:
    """Return the entry of an algorithm.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS, "`offbeat list algorithms` shows them.")
    return ALGORITHMS[name]


def import_modules(names: tuple[str, ...]) -> None:
    """Import the user's modules, which may register envs; the current folder is searched too.

    Raises:
        ConfigError: one cannot be imported.
    """
    if names and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    for name in names:
        try:
            import_module(name)
        except Exception as error:
            raise ConfigError(
                f"--import {name} failed ({type(error).__name__}: {error}): "
                "check the name, and that the module's folder is on PYTHONPATH or is the current folder"
            ) from error
