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

from offbeat.config.config import Config
from offbeat.core.caller_state import may_raise_niceness
from offbeat.core.errors import ConfigError
from offbeat.core.threads import set_affinity
from offbeat.metrics.progress import About, Progress
from offbeat.run_directory import versions
from offbeat.run_directory.directory import RunDirectory, RunDirectoryGone
from offbeat.runtime.signals import StopSignals, TooLate
from offbeat.tracking.tracker import start_tracker

if TYPE_CHECKING:
    from offbeat.metrics.sinks import Line, Sink
    from offbeat.runtime.callbacks import Callback
    from offbeat.runtime.child import Child
    from offbeat.runtime.parts import Parts
    from offbeat.runtime.training_loop import TrainingLoop
    from offbeat.runtime.watchers import Ending

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
class RunContext:
    """A run that is ready to go: its parts, where it is kept, who is told of it, and how it begins."""

    parts: Parts
    directory: RunDirectory
    progress: Progress
    callbacks: Sequence[Callback]
    signals: StopSignals
    start: Callable[[Parts, TrainingLoop], str]
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

    def notify(self, text: str, details: str = "", /) -> None:
        """Tell the user, and the log; `details` are for the log alone."""
        self.directory.note("\n".join(filter(None, (text, details.rstrip()))))
        self.progress.message(text)


def run_to_end(context: RunContext) -> Run:
    """Run to the end, whatever it is, and leave the directory in order.

    Raises:
        ConfigError: the run could not begin; the directory is as it was.
        RunFailed: it could not go on.
    """
    directory = context.directory
    directory.write_status("running")
    directory.note(f"running, process {os.getpid()}")
    try:
        ending, line = _train(context)
    except TooLate:
        ending, line = _stopped_early(context), {}
    except BaseException as error:
        context.signals.disarm()
        _broken_off(context, error)
        raise
    if context.begun:
        directory.write_status(ending.state, ending.reason)
        directory.note("; ".join(filter(None, (f"{ending.state}: {ending.reason}", ending.bottleneck))))
    return Run(directory.path, ending.state, ending.reason, ending.exit_code, line)


def _stopped_early(context: RunContext) -> Ending:
    """End a run that was stopped before its actors had begun."""
    from offbeat.runtime.watchers import Ending

    context.signals.disarm()
    if context.begun:
        return Ending("interrupted", "stopped before its first learning step", 130)
    reason = "stopped before its actors had begun"
    if context.take_back():
        return Ending("interrupted", f"{reason}: nothing was made or changed", 130)
    context.begun = True
    return Ending("interrupted", reason, 130)


def _broken_off(context: RunContext, error: BaseException) -> None:
    """Keep what was learned, and why it ended; a run that could not even begin leaves the directory as it was."""
    directory = context.directory
    if isinstance(error, RunDirectoryGone):
        return
    text = "".join(traceback.format_exception(error))
    directory.note(text if context.begun else f"could not begin: {text}")
    if not context.begun and context.take_back():
        return
    error.add_note(
        f"The run is kept in {directory.path}: log.txt has the traceback, and `offbeat resume {directory.path}` "
        "goes on from what was learned"
    )
    directory.write_status("failed", str(error) or type(error).__name__)


def _train(context: RunContext) -> tuple[Ending, dict[str, Any]]:
    """Join the parts with what watches them, and run until the end; signals are disarmed from then on."""
    from offbeat.runtime.watchers import Ending

    with ExitStack() as closing:
        closing.callback(context.progress.close, "")
        context.progress.start(_about(context))
        tracker = start_tracker(context.config, context.directory, context.notify, context.metrics_size)
        if tracker is not None:
            closing.callback(tracker.close)
        warn = Seldom(context.notify)
        sinks = _sinks(context, tracker, warn)
        loop = _joined(closing, context, sinks, warn)
        _start(context, loop, sinks)
        try:
            loop.metrics.start_clock()
            _place_learner(context)
            loop.run()
            ending = loop.close()
            context.signals.disarm()
        except TooLate:
            context.signals.disarm()
            ending = Ending("interrupted", loop.saving.lost(loop.counters), 130)
        except RunDirectoryGone:
            context.signals.disarm()
            raise
        except Exception:
            context.signals.disarm()
            loop.salvage()
            raise
        if tracker is not None:
            tracker.state = ending.state
    return ending, loop.metrics.line


def _start(context: RunContext, loop: TrainingLoop, sinks: Sequence[LateSink]) -> None:
    """Let acting begin; only then change what is on the disk.

    Raises:
        ConfigError: the disk is full, or the directory cannot be written to.
        RunDirectoryGone: the directory is not there any more.
    """
    try:
        message = context.start(context.parts, loop)
        with context.signals.patience():
            context.commit()
            context.begun = True
    except OSError as error:
        loop.saving.presence.require(at_once=True)
        raise ConfigError(
            f"the run directory {context.directory.path} cannot be written to ({error.strerror or error}), so the run "
            "does not begin: make room, or give another with --run-dir"
        ) from error
    for sink in sinks:
        sink.open()
    _record_versions(context.directory)
    if message:
        context.notify(message)


def _record_versions(directory: RunDirectory) -> None:
    """Write down what this part of the run is made with; the log is told what differs from the part before."""
    try:
        changes = versions.record(directory.path)
    except OSError as error:
        directory.note(f"versions.json could not be written ({error}): the run goes on")
        return
    if changes:
        directory.note(f"made with other versions than the part before: {'; '.join(changes)}")


def _place_learner(context: RunContext) -> None:
    """Pin this thread, and make it nicer, as the settings say."""
    cores, nice = context.config.runtime.learner_cores, context.config.runtime.learner_nice
    if nice is not None and not may_raise_niceness():
        context.notify(
            f"learner_nice is {nice}, but this system would not let it be put back when the run ends, so the learner "
            "stays as it is: train with the command line, in a process of its own"
        )
        nice = None
    set_affinity(cores, nice)


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

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify, self._next, self._left_out = notify, 0.0, 0

    def __call__(self, text: str) -> None:
        if monotonic() < self._next:
            self._left_out += 1
            return
        more = f"; {self._left_out} more since the last warning" if self._left_out else ""
        self._next, self._left_out = monotonic() + WARN_EVERY_S, 0
        self._notify(f"{text}{more}")


def _sinks(context: RunContext, tracker: Sink | None, warn: Callable[[str], None]) -> list[LateSink]:
    from offbeat.metrics.sinks import JsonLines, TensorBoard

    metrics, tensorboard = context.directory.metrics, context.directory.tensorboard
    makers: list[Callable[[], Sink]] = [partial(JsonLines, metrics), partial(TensorBoard, tensorboard)]
    if tracker is not None:  # last: it is told when a line has been written
        makers.append(lambda: tracker)
    return [LateSink(make, warn) for make in makers]


# --- joining the parts --------------------------------------------------------------------------------------


def _joined(
    closing: ExitStack, context: RunContext, sinks: Sequence[Sink], warn: Callable[[str], None]
) -> TrainingLoop:
    """Make actors or workers, and the training loop; leave to `closing` what must be closed at last."""
    from offbeat.metrics.memory import Memory
    from offbeat.metrics.recorder import Recorder
    from offbeat.runtime.assembly import topology_of
    from offbeat.runtime.runtimes import runtime_of
    from offbeat.runtime.supervisor import Reporting
    from offbeat.runtime.watchers import Watchers

    parts, directory, config = context.parts, context.directory, context.config
    role = config.runtime.entry.role

    memory, roles = Memory(), {role: list[int](), "evaluator": []}

    def show(role: str, children: Sequence[Child]) -> None:
        roles[role] = [child.process.pid for child in children]
        memory.watch(role, roles[role])
        directory.write_status("running", children=roles)

    recorder = Recorder(
        sinks,
        topology_of(config, parts.threads),
        context.notify,
        episodes_window=config.run.episodes_window,
        info=config.env.info_metrics,
        memory=memory.read,
    )
    closing.callback(recorder.close)
    watchers = Watchers(
        directory,
        recorder,
        context.progress,
        context.notify,
        warn,
        partial(show, "evaluator"),
        context.signals,
        context.callbacks,
    )
    reporting = Reporting(context.notify, partial(show, role))
    loop = runtime_of(config).loop(parts, context.learned, watchers, reporting, closing)
    closing.callback(loop.evaluations.close)
    return loop


def _about(context: RunContext) -> About:
    from offbeat.runtime.assembly import device_of

    config = context.config
    return About(
        algorithm=config.run.algorithm,
        env=config.run.env,
        runtime=config.runtime.entry,
        actors=config.actors,
        envs_per_actor=config.runtime.envs_per_actor,
        lag_label=_lag_label(config),
        device=device_of(config),
        run_dir=context.directory.path,
        lag=config.runtime.lag,
    )


def _lag_label(config: Config) -> str:
    """Say how far the sides may be apart."""
    if config.runtime.entry.workers_learn:
        return f"{config.runtime.hogwild or 'shared'}, moments {config.runtime.hogwild_moments or 'shared'}"
    return f"{config.settings.lag_flag.strip('-').replace('-', '_')} {config.memory.pace.versions - 1}"
