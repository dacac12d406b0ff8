"""Runs what has been prepared to its end, whatever that is, and leaves the run directory in order."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from offbeat import versions
from offbeat.caller_state import may_be_nicer
from offbeat.config import Config
from offbeat.errors import ConfigError
from offbeat.metrics.progress import About, Progress
from offbeat.run_directory import RunDirectory, RunDirectoryGone
from offbeat.runtime.signals import StopSignals, TooLate
from offbeat.threads import place
from offbeat.tracking.tracker import begin as begin_tracking

if TYPE_CHECKING:
    from offbeat.metrics.sinks import Line, Sink
    from offbeat.runtime.callbacks import Callback
    from offbeat.runtime.child import Child
    from offbeat.runtime.conductor import Conductor, Ending, Watchers
    from offbeat.runtime.crew import LockFreeParts
    from offbeat.runtime.wiring import Parts

    AnyParts = Parts | LockFreeParts

WARN_EVERY_S = 60.0
"""Seconds between warnings that something could not be written."""


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    path: Path
    state: str
    """finished or interrupted."""
    reason: str
    exit_code: int
    metrics: dict[str, Any]
    """The last metrics line."""


@dataclass
class Launch:
    """A run that is ready to go: its parts, where it is kept, who is told of it, and how it begins."""

    parts: AnyParts
    directory: RunDirectory
    progress: Progress
    callbacks: Sequence[Callback]
    signals: StopSignals
    begin: Callable[[AnyParts, Conductor], str]
    """Puts the parts into the state that the run goes on from, and lets acting begin; returns a message."""
    commit: Callable[[], None]
    """Changes what the run directory says of the run. Called once acting has begun, so that a refusal changes nothing.

    Raises OSError, with nothing changed."""
    take_back: Callable[[], bool]
    """Called where the run fails before that: leaves the directory as it was, and returns whether nothing is kept."""
    learned: int = 0
    """Learning steps that are finished."""
    metrics_size: int = 0
    """Bytes of metrics.jsonl once `commit` has been called."""
    begun: bool = field(default=False, init=False)

    @property
    def config(self) -> Config:
        return self.parts.config

    def tell(self, text: str, details: str = "", /) -> None:
        """Tell the user, and the log; `details` are for the log alone."""
        self.directory.note("\n".join(filter(None, (text, details.rstrip()))))
        self.progress.message(text)


def run_to_end(launch: Launch) -> Run:
    """Run to the end, whatever it is, and leave the directory in order.

    Raises:
        ConfigError: the run could not begin; the directory is as it was.
        RunFailed: it could not go on.
    """
    directory = launch.directory
    directory.write_status("running")
    directory.note(f"running, process {os.getpid()}")
    try:
        ending, line = _conduct(launch)
    except TooLate:
        ending, line = _stopped_early(launch), {}
    except BaseException as error:
        launch.signals.disarm()
        _broken_off(launch, error)
        raise
    if launch.begun:
        directory.write_status(ending.state, ending.reason)
        directory.note("; ".join(filter(None, (f"{ending.state}: {ending.reason}", ending.verdict))))
    return Run(directory.path, ending.state, ending.reason, ending.exit_code, line)


def _stopped_early(launch: Launch) -> Ending:
    """End a run that was stopped before its actors had begun."""
    from offbeat.runtime.conductor import Ending

    launch.signals.disarm()
    if launch.begun:
        return Ending("interrupted", "stopped before its first learning step", 130)
    reason = "stopped before its actors had begun"
    if launch.take_back():
        return Ending("interrupted", f"{reason}: nothing was made or changed", 130)
    launch.begun = True
    return Ending("interrupted", reason, 130)


def _broken_off(launch: Launch, error: BaseException) -> None:
    """Keep what was learned, and why it ended; a run that could not even begin leaves the directory as it was."""
    directory = launch.directory
    if isinstance(error, RunDirectoryGone):
        return
    told = "".join(traceback.format_exception(error))
    directory.note(told if launch.begun else f"could not begin: {told}")
    if not launch.begun and launch.take_back():
        return
    error.add_note(
        f"The run is kept in {directory.path}: log.txt has the traceback, and `offbeat resume {directory.path}` "
        "goes on from what was learned"
    )
    directory.write_status("failed", str(error) or type(error).__name__)


def _conduct(launch: Launch) -> tuple[Ending, dict[str, Any]]:
    """Join the parts with what watches them, and run until the end; signals are disarmed from then on."""
    from offbeat.runtime.conductor import Ending

    with ExitStack() as closing:
        closing.callback(launch.progress.close, "")
        launch.progress.start(_about(launch))
        tracker = begin_tracking(launch.config, launch.directory, launch.tell, launch.metrics_size)
        if tracker is not None:
            closing.callback(tracker.close)
        warn = Seldom(launch.tell)
        sinks = _sinks(launch, tracker, warn)
        conductor = _joined(closing, launch, sinks, warn)
        _begin(launch, conductor, sinks)
        try:
            conductor.begin()
            _place_learner(launch)
            conductor.run()
            ending = conductor.close()
            launch.signals.disarm()
        except TooLate:
            launch.signals.disarm()
            ending = Ending("interrupted", conductor.lost(), 130)
        except RunDirectoryGone:
            launch.signals.disarm()
            raise
        except Exception:
            launch.signals.disarm()
            conductor.salvage()
            raise
        if tracker is not None:
            tracker.state = ending.state
    return ending, conductor.line


def _begin(launch: Launch, conductor: Conductor, sinks: Sequence[LateSink]) -> None:
    """Let acting begin; only then change what is on the disk.

    Raises:
        ConfigError: the disk is full, or the directory cannot be written to.
        RunDirectoryGone: the directory is not there any more.
    """
    try:
        message = launch.begin(launch.parts, conductor)
        with launch.signals.patience():
            launch.commit()
            launch.begun = True
    except OSError as error:
        conductor.require_directory()
        raise ConfigError(
            f"the run directory {launch.directory.path} cannot be written to ({error.strerror or error}), so the run "
            "does not begin: make room, or give another with --run-dir"
        ) from error
    for sink in sinks:
        sink.open()
    _record_versions(launch.directory)
    if message:
        launch.tell(message)


def _record_versions(directory: RunDirectory) -> None:
    """Write down what this part of the run is made with; the log is told what differs from the part before."""
    try:
        changes = versions.record(directory.path)
    except OSError as error:
        directory.note(f"versions.json could not be written ({error}): the run goes on")
        return
    if changes:
        directory.note(f"made with other versions than the part before: {'; '.join(changes)}")


def _place_learner(launch: Launch) -> None:
    """Pin this thread, and make it nicer, as the settings say."""
    cores, nice = launch.config.runtime.learner_cores, launch.config.runtime.learner_nice
    if nice is not None and not may_be_nicer():
        launch.tell(
            f"learner_nice is {nice}, but this system would not let it be put back when the run ends, so the learner "
            "stays as it is: train with the command line, in a process of its own"
        )
        nice = None
    place(cores, nice)


# --- who is told --------------------------------------------------------------------------------------------


class LateSink:
    """A sink that is made when the run has begun. What it cannot write costs the line, not the run."""

    def __init__(self, make: Callable[[], Sink], warn: Callable[[str], None]) -> None:
        self._make, self._warn = make, warn
        self._sink: Sink | None = None

    def open(self) -> None:
        """Make the sink; where there is no room for it, the next line tries again."""
        try:
            self._sink = self._make()
        except OSError as error:
            self._warn(f"metrics cannot be written ({error}): the run goes on")

    def write(self, line: Line) -> None:
        if self._sink is None:
            self.open()
        if self._sink is not None:
            try:
                self._sink.write(line)
            except OSError as error:
                self._warn(f"a metrics line could not be written ({error}): the run goes on")

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()


class Seldom:
    """Passes on one warning a minute at most, and says how many there were meanwhile."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell, self._next, self._left_out = tell, 0.0, 0

    def __call__(self, text: str) -> None:
        if monotonic() < self._next:
            self._left_out += 1
            return
        more = f"; {self._left_out} more since the last warning" if self._left_out else ""
        self._next, self._left_out = monotonic() + WARN_EVERY_S, 0
        self._tell(f"{text}{more}")


def _sinks(launch: Launch, tracker: Sink | None, warn: Callable[[str], None]) -> list[LateSink]:
    from offbeat.metrics.sinks import JsonLines, TensorBoard

    metrics, tensorboard = launch.directory.metrics, launch.directory.tensorboard
    makers: list[Callable[[], Sink]] = [partial(JsonLines, metrics), partial(TensorBoard, tensorboard)]
    if tracker is not None:  # last: it is told when a line has been written
        makers.append(lambda: tracker)
    return [LateSink(make, warn) for make in makers]


# --- joining the parts --------------------------------------------------------------------------------------


def _joined(closing: ExitStack, launch: Launch, sinks: Sequence[Sink], warn: Callable[[str], None]) -> Conductor:
    """Make the other side, of actors or workers, and the conductor; leave to `closing` what must be closed at last."""
    from offbeat.metrics.memory import Memory
    from offbeat.metrics.recorder import Recorder
    from offbeat.runtime.conductor import Watchers
    from offbeat.runtime.wiring import layout_of

    parts, directory, config = launch.parts, launch.directory, launch.config
    role = "worker" if config.runtime.runtime == "hogwild" else "actor"

    memory, roles = Memory(), {role: list[int](), "evaluator": []}

    def show(role: str, children: Sequence[Child]) -> None:
        roles[role] = [child.process.pid for child in children]
        memory.watch(role, roles[role])
        directory.write_status("running", children=roles)

    recorder = Recorder(
        sinks,
        layout_of(config, parts.threads),
        launch.tell,
        episodes_window=config.run.episodes_window,
        info=config.env.info_metrics,
        memory=memory.read,
    )
    closing.callback(recorder.close)
    watchers = Watchers(
        directory,
        recorder,
        launch.progress,
        launch.tell,
        warn,
        partial(show, "evaluator"),
        launch.signals,
        launch.callbacks,
    )
    conductor = _conductor(closing, parts, launch.learned, watchers, partial(show, role))
    closing.callback(conductor.end_evaluations)
    return conductor


def _conductor(
    closing: ExitStack,
    parts: AnyParts,
    learned: int,
    watchers: Watchers,
    show: Callable[[Sequence[Child]], None],
) -> Conductor:
    """Make the conductor that suits the parts, and those whom it conducts."""
    from offbeat.runtime.crew import Crew, LockFreeParts

    if isinstance(parts, LockFreeParts):
        from offbeat.runtime.hogwild import HogwildConductor

        crew = Crew(parts, watchers.tell, show)
        closing.callback(crew.close)
        return HogwildConductor(parts, crew, watchers)
    from offbeat.runtime.paced import PacedConductor
    from offbeat.runtime.wiring import acting_of

    acting = acting_of(parts, learned, watchers.tell, show)
    closing.callback(acting.close)
    return PacedConductor(parts, acting, watchers)


def _about(launch: Launch) -> About:
    from offbeat.runtime.wiring import device_of

    config = launch.config
    return About(
        algorithm=config.run.algorithm,
        env=config.run.env,
        runtime=config.runtime.runtime,
        actors=config.workers if config.runtime.runtime == "hogwild" else config.runtime.actors,
        envs_per_actor=config.runtime.envs_per_actor,
        lead=_lead(config),
        device=device_of(config),
        run_dir=launch.directory.path,
        lag=config.runtime.lag,
    )


def _lead(config: Config) -> str:
    """Say how far the sides may be apart."""
    if config.runtime.runtime == "hogwild":
        return f"{config.runtime.hogwild or 'shared'}, moments {config.runtime.hogwild_moments or 'shared'}"
    return f"{config.settings.lead.strip('-').replace('-', '_')} {config.memory.pace.versions - 1}"
