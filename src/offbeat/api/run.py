"""Runs prepared parts until the run finishes, is interrupted or fails, and updates the run directory."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import TYPE_CHECKING, Any

from offbeat.api import no_updates
from offbeat.config.arguments import no_attribute
from offbeat.config.config import Config
from offbeat.core.argument_notation import as_shown
from offbeat.core.caller_state import may_raise_niceness
from offbeat.core.errors import ConfigError
from offbeat.core.threads import set_affinity
from offbeat.metrics.progress import Progress
from offbeat.metrics.status import About
from offbeat.run_directory import versions
from offbeat.run_directory.directory import RunDirectory, RunDirectoryGone
from offbeat.runtime.signals import StopImmediately, StopSignals
from offbeat.tracking.tracker import start_tracker

if TYPE_CHECKING:
    from offbeat.api.called_callbacks import Callbacks
    from offbeat.metrics.expectation import Expectation
    from offbeat.metrics.sinks import Line, Sink
    from offbeat.runtime.parts import Parts
    from offbeat.runtime.supervisor import Supervised
    from offbeat.runtime.training_loop import TrainingLoop
    from offbeat.runtime.watchers import Ending

WARN_EVERY_S = 60.0
"""Minimum seconds between two warnings about failed writes."""


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

    def __fspath__(self) -> str:
        """Return the run directory, so that a run is accepted where a run directory is."""
        return os.fspath(self.path)

    def __getattr__(self, name: str) -> Any:
        """Refuse an attribute that does not exist."""
        raise no_attribute(self, name)

    def __repr__(self) -> str:
        """Return one line: where the run is, how it ended, and what it reached."""
        evaluated = self.metrics.get("eval_return_mean")
        name = "episode_return_mean" if evaluated is None else "eval_return_mean"
        reached = self.metrics.get(name)
        shown = "None" if reached is None else f"{reached:.6g}"
        return f"Run({str(self.path)!r}, {self.state!r}, env_steps={self.metrics.get('env_steps', 0)}, {name}={shown})"


@dataclass
class RunContext:
    """A run that is ready to start: its parts, its directory, its progress view, and how to start it."""

    parts: Parts
    directory: RunDirectory
    progress: Progress
    callbacks: Callbacks
    signals: StopSignals
    start: Callable[[Parts, TrainingLoop], str]
    """Sets the initial or restored state of the parts and starts acting; returns a message."""
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
    resumed: bool = False
    """Whether the run continues from a checkpoint."""
    expectation: Expectation | None = None
    """What auto layout expects of the run; None if it did not choose the topology."""
    tells_end: bool = False
    """Whether the progress view tells how the run ended; the command line prints it itself."""
    summary: str = field(default="", init=False)
    """What the progress view tells at its end."""
    started: bool = field(default=False, init=False)
    """Whether `commit` has been called."""

    @property
    def config(self) -> Config:
        return self.parts.config

    def notify(self, text: str, details: str = "", /) -> None:
        """Show a message to the user and write it to the log; `details` are only written to the log."""
        self.directory.note("\n".join(filter(None, (text, details.rstrip()))))
        self.progress.message(text)


def run_to_end(context: RunContext) -> Run:
    """Run until the run finishes or is interrupted, and write its final status.

    Raises:
        ConfigError: the run could not start; the directory is unchanged.
        RunFailed: the run failed.
    """
    directory = context.directory
    directory.write_status("running")
    directory.note(f"running, process {os.getpid()}")
    try:
        ending, line = _train(context)
    except StopImmediately:
        ending, line = _end_before_learning(context), {}
    except BaseException as error:
        context.signals.disarm()
        reason = _record_failure(context, error)
        _end_callbacks_of_failed(context, reason, error)
        raise
    if context.started:
        directory.write_status(ending.state, ending.reason)
        directory.note("; ".join(filter(None, (f"{ending.state}: {ending.reason}", ending.bottleneck))))
    context.signals.restore()  # a callback may take long, and ends at Ctrl-C as any code of the caller
    try:
        context.callbacks.end(ending.state, as_shown(ending.reason))
    except BaseException as error:
        _record_failure(context, error)
        raise
    return Run(directory.path, ending.state, as_shown(ending.reason), ending.exit_code, line)


def _end_before_learning(context: RunContext) -> Ending:
    """End a run that was stopped while it started."""
    from offbeat.runtime.watchers import Ending

    context.signals.disarm()
    if context.started:
        return Ending("interrupted", "stopped before its first learning step", 130)
    reason = "stopped before its actors had started"
    if context.roll_back():
        return Ending("interrupted", f"{reason}: nothing was written or changed", 130)
    context.started = True
    return Ending("interrupted", reason, 130)


def _record_failure(context: RunContext, error: BaseException) -> str:
    """Write the error to the log and the status. If the run had not started yet, restore the directory.

    Returns:
        The reason of the failure, as in the status.
    """
    directory, reason = context.directory, context.callbacks.failure or str(error) or type(error).__name__
    if isinstance(error, RunDirectoryGone):
        return reason
    text = "".join(traceback.format_exception(error))
    directory.note(text if context.started else f"could not start: {text}")
    if not context.started and context.roll_back():
        return reason
    note = (
        f"The run is saved in {directory.path}: log.txt has the traceback, and `offbeat resume "
        f"{quote(str(directory.path))}` resumes from the latest checkpoint"
    )
    error.add_note(as_shown(note))
    directory.write_status("failed", reason)
    return reason


def _end_callbacks_of_failed(context: RunContext, reason: str, error: BaseException) -> None:
    """End the callbacks of a run that has failed; what they raise is added to its error, which is raised."""
    context.signals.restore()
    try:
        context.callbacks.end("failed", reason)
    except Exception as another:  # noqa: BLE001 - the error of the run is raised
        text = f"a callback failed at the end of the run: {type(another).__name__}: {another}"
        error.add_note(text)
        context.directory.note("".join(traceback.format_exception(another)))


def _train(context: RunContext) -> tuple[Ending, dict[str, Any]]:
    """Connect the parts with the loggers and the training loop, and run. Signals are disarmed when this returns."""
    from offbeat.runtime.watchers import Ending

    with ExitStack() as closing:
        closing.callback(lambda: context.progress.close(context.summary))
        context.progress.start(_about(context))
        tracker = start_tracker(context.config, context.directory, context.notify, context.metrics_size)
        if tracker is not None:
            closing.callback(tracker.close)
        warn = RateLimitedWarning(context.notify)
        sinks = _sinks(context, tracker, warn)
        loop = _make_loop(closing, context, sinks, warn)
        _start(context, loop, sinks)
        try:
            context.callbacks.start(context.parts, context.directory, loop, resumed=context.resumed)
            context.parts.timings.seconds.clear()  # work before the clock starts does not count
            loop.metrics.start_clock()
            _set_learner_affinity(context)
            updates, env_steps = loop.counters.updates, loop.counters.env_steps
            loop.run()
            ending = loop.close()
            context.signals.disarm()
            updates, env_steps = loop.counters.updates - updates, loop.counters.env_steps - env_steps
            if ending.state == "finished" and (nothing := no_updates.found(updates, env_steps)):
                context.notify(nothing)
        except StopImmediately:
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
        if context.tells_end:
            context.summary = _summary(ending, context.directory)
    return ending, loop.metrics.line


def _summary(ending: Ending, directory: RunDirectory) -> str:
    """Return how the run ended; for one that can be resumed, with the call that does so."""
    resumable = ending.state == "interrupted" and (directory.checkpoints / "latest").exists()
    remedy = f'; offbeat.resume("{directory.path}") continues it' if resumable else ""
    return f"{ending.state}: {ending.reason}{remedy}"


def _start(context: RunContext, loop: TrainingLoop, sinks: Sequence[LateSink]) -> None:
    """Start acting, and only then change files.

    Raises:
        ConfigError: the disk is full, or the directory is not writable.
        RunDirectoryGone: the directory has been deleted.
    """
    try:
        message = context.start(context.parts, loop)
        with context.signals.suspend_deadline():
            context.commit()
            context.started = True
    except OSError as error:
        loop.saving.presence.require(at_once=True)
        raise ConfigError(
            f"the run directory {context.directory.path} cannot be written to ({error.strerror or error}), so the run "
            "does not start: free some disk space, or pass another directory with --run-dir"
        ) from error
    for sink in sinks:
        sink.open()
    _record_versions(context.directory)
    if message:
        context.notify(message)


def _record_versions(directory: RunDirectory) -> None:
    """Write the versions of packages and machine to versions.json; log the changes since the run was last started."""
    try:
        changes = versions.record(directory.path)
    except OSError as error:
        directory.note(f"versions.json could not be written ({error}): the run continues")
        return
    if changes:
        directory.note(f"versions have changed since the run was last started: {'; '.join(changes)}")


def _set_learner_affinity(context: RunContext) -> None:
    """Set the CPU affinity and the niceness of this thread, as in the settings."""
    cores, nice = context.config.runtime.cores_of_learner(0), context.config.runtime.learner_nice
    if nice is not None and not may_raise_niceness():
        context.notify(
            f"learner_nice is {nice}, but this process could not restore its niceness at the end of the run, so it is "
            "not changed: train with the command line, in a separate process"
        )
        nice = None
    set_affinity(cores, nice)


# --- metrics and warnings -----------------------------------------------------------------------------------


class LateSink:
    """A sink that is created after the run has started. If it cannot write, the line is lost; the run continues."""

    def __init__(self, make: Callable[[], Sink], warn: Callable[[str], None]) -> None:
        self._make, self._warn = make, warn
        self._sink: Sink | None = None

    def open(self) -> None:
        """Create the sink. If this fails, the next line tries again."""
        try:
            self._sink = self._make()
        except OSError as error:
            self._warn(f"metrics cannot be written ({error}): the run continues")

    def write(self, line: Line) -> None:
        if self._sink is None:
            self.open()
        if self._sink is not None:
            try:
                self._sink.write(line)
            except OSError as error:
                self._warn(f"a metrics line could not be written ({error}): the run continues")

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()


class RateLimitedWarning:
    """Shows at most one warning per minute, with the number of warnings that were suppressed since the last one."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify, self._next, self._suppressed = notify, 0.0, 0

    def __call__(self, text: str) -> None:
        if monotonic() < self._next:
            self._suppressed += 1
            return
        more = f"; {self._suppressed} more since the last warning" if self._suppressed else ""
        self._next, self._suppressed = monotonic() + WARN_EVERY_S, 0
        self._notify(f"{text}{more}")


def _sinks(context: RunContext, tracker: Sink | None, warn: Callable[[str], None]) -> list[LateSink]:
    from offbeat.metrics.sinks import JsonLines, TensorBoard

    metrics, tensorboard = context.directory.metrics, context.directory.tensorboard
    makers: list[Callable[[], Sink]] = [partial(JsonLines, metrics), partial(TensorBoard, tensorboard)]
    if tracker is not None:  # last: the files must have a line before the tracker gets it
        makers.append(lambda: tracker)
    return [LateSink(make, warn) for make in makers]


# --- the training loop --------------------------------------------------------------------------------------


def _make_loop(
    closing: ExitStack, context: RunContext, sinks: Sequence[Sink], warn: Callable[[str], None]
) -> TrainingLoop:
    """Create the training loop with its actors or workers; add to `closing` what must be closed at the end."""
    from offbeat.metrics.process_memory import ProcessMemory
    from offbeat.metrics.recorder import Recorder
    from offbeat.runtime.assembly import topology_of
    from offbeat.runtime.runtimes import runtime_of
    from offbeat.runtime.supervisor import Reporting
    from offbeat.runtime.watchers import Watchers

    parts, directory, config = context.parts, context.directory, context.config
    memory, roles = ProcessMemory(), {config.runtime.entry.role: dict[int, int](), "learner": {}, "evaluator": {}}

    def show(role: str, children: Sequence[Supervised]) -> None:
        roles[role] = {child.index: child.pid for child in children if child.pid is not None}
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
        show,
        context.signals,
        context.callbacks,
        context.expectation,
    )
    reporting = Reporting(context.notify, show)
    loop = runtime_of(config).loop(parts, context.learned, watchers, reporting, closing)
    closing.callback(loop.evaluations.close)
    return loop


def _about(context: RunContext) -> About:
    from offbeat.runtime.devices import device_text

    config = context.config
    return About(
        algorithm=config.run.algorithm,
        env=config.run.env,
        runtime=config.runtime.entry,
        actors=config.actors,
        envs_per_actor=config.runtime.envs_per_actor,
        lag_label=_lag_label(config),
        device=device_text(config),
        run_dir=context.directory.path,
        lag=config.runtime.lag,
        inference_workers=config.runtime.inference_processes,
        preset=config.run.preset,
    )


def _lag_label(config: Config) -> str:
    """Return the bound on the lag as a short text; for lock-free workers, what they share."""
    if config.runtime.entry.workers_learn:
        return f"{config.runtime.hogwild or 'shared'}, moments {config.runtime.hogwild_moments or 'shared'}"
    return f"{config.settings.lag_flag.strip('-').replace('-', '_')} {config.memory.pace.versions - 1}"
