"""Who watches a run, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from offbeat.metrics.progress import Progress
from offbeat.metrics.recorder import Recorder
from offbeat.run_directory.directory import RunDirectory
from offbeat.runtime.callbacks import Callback
from offbeat.runtime.child import Child
from offbeat.runtime.signals import StopSignals
from offbeat.runtime.supervisor import Notify


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    state: Literal["finished", "interrupted"]
    reason: str
    exit_code: int
    bottleneck: str = ""
    """Who waited for whom, over the whole run."""


class Watchers(NamedTuple):
    """Who is told how a run goes, who may stop it, and where it is kept."""

    directory: RunDirectory
    recorder: Recorder
    progress: Progress
    notify: Notify
    warn: Callable[[str], None]
    """Tells of what could not be written, seldom enough."""
    show_evaluator: Callable[[Sequence[Child]], None]
    """Is given the evaluator's process, whenever it has changed."""
    signals: StopSignals
    callbacks: Sequence[Callback] = ()
