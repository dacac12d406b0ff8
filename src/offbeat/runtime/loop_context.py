"""What a training loop is given: the parts of the run, and who watches it; and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from offbeat.config.config import Config
from offbeat.core.types import EnvSpec, Tree
from offbeat.metrics.progress import Progress
from offbeat.metrics.recorder import Recorder
from offbeat.metrics.timings import Timings
from offbeat.models.spec import PolicySpec
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


class LoopParts(Protocol):
    """What a training loop needs to know of the parts of a run."""

    @property
    def config(self) -> Config: ...

    @property
    def env(self) -> EnvSpec: ...

    @property
    def policy(self) -> PolicySpec: ...

    def snapshot(self) -> Tree:
        """Return all that has been learned so far, as a checkpoint keeps it; copy what is to last."""
        ...

    @property
    def timings(self) -> Timings:
        """Of this process."""
        ...
