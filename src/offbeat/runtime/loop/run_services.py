"""What shows, stores and stops a run (recorder, progress view, callbacks, signals), and the ending of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from offbeat.metrics.expectation import Expectation
from offbeat.metrics.progress.status import Status
from offbeat.metrics.recorder import Recorder
from offbeat.run_directory.directory import RunDirectory
from offbeat.runtime.loop.observer import Observer
from offbeat.runtime.loop.signals import GracefulStop
from offbeat.runtime.reporting import Reporting


@dataclass(frozen=True)
class Ending:
    """How a run ended, or will end at the next boundary."""

    state: Literal["finished", "interrupted"]
    reason: str
    exit_code: int
    bottleneck: str = ""
    """The bottleneck report of the whole run, a sentence in each line."""


class RunServices(NamedTuple):
    """The objects that observe, show, store or stop a run; the training loop uses them."""

    directory: RunDirectory
    recorder: Recorder
    show_status: Callable[[Status], None]
    """Shows the status of the run; called often."""
    warn: Callable[[str], None]
    """Warns the user that something could not be written; repeated warnings are limited in rate."""
    reporting: Reporting
    """Notifies the user, and knows the processes of the run."""
    signals: GracefulStop
    observer: Observer
    """Passes on what happens to the callbacks of the user."""
    expectation: Expectation | None = None
    """What auto layout expects of the run; None if it did not choose the topology."""
