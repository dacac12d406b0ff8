"""The interface of a runtime, and how the runtime of a config is found: as `RUNTIME` in the module of its entry."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol, cast

from offbeat.config.config import Config
from offbeat.core.messages import ignore
from offbeat.core.process.threads import set_thread_count
from offbeat.runtime.acting import Acting
from offbeat.runtime.loop.paced import PacedRuntime
from offbeat.runtime.loop.run_services import RunServices
from offbeat.runtime.loop.training_loop import TrainingLoop
from offbeat.runtime.parts import PacedParts, Parts
from offbeat.runtime.reporting import Reporting


class Runtime(Protocol):
    """A runtime: builds a run and its training loop. Each runtime's module has one as `RUNTIME`."""

    def build(self, config: Config, notify: Callable[[str], None]) -> Any:
        """Build the parts of a run, after a few test steps in the env.

        Args:
            config: all settings.
            notify: is called with a message if the run needs much memory, or a call of the tested env takes too long.

        Raises:
            ConfigError: the env, its spaces or the device do not suit the settings, or there is not enough memory.
        """
        ...

    def loop(self, parts: Any, learned: int, services: RunServices, closing: ExitStack) -> TrainingLoop:
        """Make the actors or workers, and the training loop.

        Args:
            parts: the parts from `build`.
            learned: number of finished learning steps.
            services: recorder, progress view, callbacks and signals of the run; `reporting` is notified of worker
                processes and their restarts.
            closing: the callback that ends the actors or workers is added to it.

        Raises:
            ConfigError: the env cannot be made, or cannot be sent to another process.
        """
        ...


def runtime_of(config: Config) -> Runtime:
    """Return the runtime that a config names."""
    runtime: Runtime = import_module(config.runtime.entry.module).RUNTIME
    return runtime


def build(config: Config, notify: Callable[[str], None] = ignore) -> Any:
    """Build the parts of a run with the runtime of its config: see `Runtime.build`.

    Then torch and BLAS use as many threads in this process as the learner may have (`Parts.blas_threads`). While the
    parts are built they use one: algorithms that divide their updates among threads start them there.
    """
    set_thread_count(1)
    shown: list[str] = []

    def show(message: str) -> None:
        notify(message.partition("\n")[0])  # further lines are details for the log
        shown.append(message)

    parts: Parts = runtime_of(config).build(config, show)
    set_thread_count(parts.blas_threads)
    return replace(parts, build_messages=tuple(shown))


def acting_of(parts: PacedParts, learned: int, reporting: Reporting) -> Acting:
    """Make only the actors of a run with one learner: see `PacedRuntime.acting`."""
    return cast(PacedRuntime, runtime_of(parts.config)).acting(parts, learned, reporting)
