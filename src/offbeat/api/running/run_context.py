"""A run that is ready to start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from offbeat.api.running.messages import Messages
from offbeat.config.config import Config
from offbeat.core.errors import RunWarning
from offbeat.metrics.progress.views import View
from offbeat.run_directory.directory import RunDirectory
from offbeat.runtime.loop.signals import GracefulStop

if TYPE_CHECKING:
    from offbeat.api.callbacks.calls import Callbacks
    from offbeat.metrics.expectation import Expectation
    from offbeat.runtime.loop.training_loop import TrainingLoop
    from offbeat.runtime.parts import Parts


class StartMessages(NamedTuple):
    """What users are shown about a run that has started."""

    message: str
    """'' if there is none."""
    warnings: tuple[RunWarning, ...]


@dataclass
class RunContext:
    """A run that is ready to start: its parts, its directory, its progress view, and how to start it."""

    parts: Parts
    directory: RunDirectory
    view: View
    callbacks: Callbacks
    signals: GracefulStop
    start_acting: Callable[[Parts, TrainingLoop], StartMessages]
    """Sets the initial or restored state of the parts and starts acting."""
    commit: Callable[[], None]
    """Changes the files of the run directory. Called after acting has started, so that a refusal changes nothing.

    Raises OSError, with nothing changed."""
    roll_back: Callable[[], bool]
    """Called if the run fails before `commit`: undoes the changes to the directory. Returns whether this has removed
    every trace of the run."""
    learned: int = 0
    """Number of finished learning steps."""
    metrics_size: int = 0
    """Bytes of metrics.jsonl after `commit`."""
    resumed_at: int | None = None
    """Env steps of the checkpoint from which the run continues; None for a new run."""
    expectation: Expectation | None = None
    """What auto layout expects of the run; None if it did not choose the topology."""
    shows_end: bool = False
    """Whether the progress view shows how the run ended; the command line prints it itself."""
    summary: str = field(default="", init=False)
    """How the run ended, for the progress view."""
    committed: bool = field(default=False, init=False)
    """Whether `commit` has been called."""
    logged: BaseException | None = field(default=None, init=False)
    """The last error whose traceback is in the log."""

    @property
    def config(self) -> Config:
        return self.parts.config

    @property
    def resumed(self) -> bool:
        """Whether the run continues from a checkpoint."""
        return self.resumed_at is not None

    @property
    def messages(self) -> Messages:
        """Shows messages to the user, and writes them to the log."""
        return Messages(self.directory, self.view)
