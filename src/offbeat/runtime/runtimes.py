"""Finds the runtime of a run: each has a module, whose `RUNTIME` makes what differs between them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Protocol, cast

from offbeat.config.config import Config
from offbeat.runtime.acting import Acting
from offbeat.runtime.paced import PacedRuntime
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.supervisor import Reporting
from offbeat.runtime.training_loop import TrainingLoop
from offbeat.runtime.watchers import Watchers


class Runtime(Protocol):
    """What a runtime's module offers as `RUNTIME`."""

    def build(self, config: Config, notify: Callable[[str], None]) -> Any:
        """Make the parts of a run, after a few steps in the env.

        Args:
            config: all settings.
            notify: is given how much memory will be taken, where that is much.

        Raises:
            ConfigError: the env, its spaces or the device do not suit the settings, or memory does not suffice.
        """
        ...

    def loop(
        self, parts: Any, learned: int, watchers: Watchers, reporting: Reporting, closing: ExitStack
    ) -> TrainingLoop:
        """Make actors or workers from the parts, and the loop that waits for them.

        Args:
            parts: from `build`.
            learned: learning steps that are finished.
            watchers: of the run.
            reporting: who is told of worker processes.
            closing: what ends them is left to it.

        Raises:
            ConfigError: the env cannot be made, or cannot be sent to another process.
        """
        ...


def runtime_of(config: Config) -> Runtime:
    """Return the runtime that a config names."""
    runtime: Runtime = import_module(config.runtime.entry.module).RUNTIME
    return runtime


def build(config: Config, notify: Callable[[str], None] = lambda _news: None) -> Any:
    """Make the parts of a run in its runtime: see `Runtime.build`."""
    return runtime_of(config).build(config, notify)


def acting_of(parts: PacedParts, learned: int, reporting: Reporting) -> Acting:
    """Make only the actors' side of a run with one learner: see `PacedRuntime.acting`."""
    return cast(PacedRuntime, runtime_of(parts.config)).acting(parts, learned, reporting)
