"""Runs prepared parts until the run finishes, is interrupted or fails, and updates the run directory."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbeat.api.caller_warnings import warn_caller
from offbeat.api.running import no_updates
from offbeat.api.running.run_context import RunContext
from offbeat.config.arguments import no_attribute
from offbeat.core.argument_notation import as_shown
from offbeat.core.errors import ConfigError, type_and_text
from offbeat.core.files import remedy_for
from offbeat.core.process.threads import may_raise_niceness, pin, raise_niceness
from offbeat.metrics.rate_limited_warning import RateLimitedWarning
from offbeat.metrics.sinks import LateSink
from offbeat.metrics.text import in_repr
from offbeat.run_directory import versions
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.presence import RunDirectoryGone
from offbeat.runtime.loop.signals import StopImmediately
from offbeat.tracking.tracker import start_tracker

if TYPE_CHECKING:
    from offbeat.runtime.loop.run_services import Ending
    from offbeat.runtime.loop.training_loop import TrainingLoop


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    path: Path
    state: str
    """finished or interrupted."""
    reason: str
    exit_code: int
    metrics: dict[str, Any] = field(hash=False)
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
        shown = in_repr(self.metrics.get(name))
        return f"Run({str(self.path)!r}, {self.state!r}, env_steps={self.metrics.get('env_steps', 0)}, {name}={shown})"


def run_to_end(context: RunContext) -> Run:
    """Run until the run finishes or is interrupted, and write its final status.

    Raises:
        ConfigError: the run could not start; the directory is unchanged.
        RunFailed: the run failed.
    """
    directory = context.directory
    directory.write_status("running", phase="starting")
    directory.append_to_log(f"running, process {os.getpid()}")
    leaves_no_trace = False
    try:
        ending, line = _train(context)
    except StopImmediately:
        context.signals.disarm()
        leaves_no_trace = not context.committed and context.roll_back()
        ending, line = _end_before_learning(committed=context.committed, leaves_no_trace=leaves_no_trace), {}
    except BaseException as error:
        context.signals.disarm()
        reason = _record_failure(context, error)
        _end_callbacks_of_failed(context, reason, error)
        context.logged = None  # its traceback refers to the run, whose memory would wait for the garbage collector
        raise
    if not leaves_no_trace:
        directory.write_status(ending.state, ending.reason)
        directory.append_to_log("\n".join(filter(None, (f"{ending.state}: {ending.reason}", ending.bottleneck))))
    context.signals.restore()  # a callback may take long, and ends at Ctrl-C as any code of the caller
    try:
        context.callbacks.end(ending.state, as_shown(ending.reason))
    except BaseException as error:
        _record_failure(context, error, finished=ending.state == "finished")
        raise
    return Run(directory.path, ending.state, as_shown(ending.reason), ending.exit_code, line)


def _end_before_learning(*, committed: bool, leaves_no_trace: bool) -> Ending:
    """Return how a run has ended that was stopped while it started."""
    from offbeat.runtime.loop.run_services import Ending

    reason = "stopped before its first learning step" if committed else "stopped before its actors had started"
    return Ending("interrupted", reason + ": nothing was written or changed" * leaves_no_trace, 130)


def _record_failure(context: RunContext, error: BaseException, *, finished: bool = False) -> str:
    """Write the error to the log and the status. If the run had not started yet, restore the directory.

    Args:
        context: the run.
        error: the error.
        finished: whether the training had finished, so that nothing is left to resume.

    Returns:
        The reason of the failure, as in the status.
    """
    directory, reason = context.directory, context.callbacks.failure or str(error) or type(error).__name__
    if isinstance(error, RunDirectoryGone):
        return reason
    is_logged = _log_error(context, error)
    if not context.committed and context.roll_back():
        return reason
    resume = f", and `{directory.next_command('resume')}` resumes from the latest checkpoint"
    log = "log.txt has the traceback" if is_logged else "log.txt could not be written"
    note = f"The run is in {directory.path}: {log}{'' if finished else resume}"
    error.add_note(as_shown(note))
    directory.write_status("failed", reason)
    return reason


def _log_error(context: RunContext, error: BaseException) -> bool:
    """Write the traceback of an error to the log, unless it is there; return whether it is there now."""
    if error is not context.logged:
        text = "".join(traceback.format_exception(error))
        if context.directory.append_to_log(text if context.committed else f"could not start: {text}"):
            context.logged = error
    return error is context.logged


@contextmanager
def _errors_logged(context: RunContext) -> Iterator[None]:
    """Write an error of this context to the log before the envs are closed: one of them may hang then.

    From then on stop signals are ignored: they could interrupt the end of worker processes, and replace the error.
    """
    try:
        yield
    except BaseException as error:
        context.signals.disarm()
        if not isinstance(error, (StopImmediately, RunDirectoryGone)):
            _log_error(context, error)
        raise


def _end_callbacks_of_failed(context: RunContext, reason: str, error: BaseException) -> None:
    """End the callbacks of a run that has failed; what they raise is added to its error, which is raised."""
    context.signals.restore()
    try:
        context.callbacks.end("failed", reason)
    except Exception as another:  # noqa: BLE001 - the error of the run is raised
        text = f"a callback failed at the end of the run: {type_and_text(another)}"
        error.add_note(text)
        context.directory.append_to_log("".join(traceback.format_exception(another)))


def _train(context: RunContext) -> tuple[Ending, dict[str, Any]]:
    """Connect the parts with the loggers and the training loop, and run.

    Returns:
        How the run ended, and its last metrics line. Signals are disarmed then.
    """
    from offbeat.api.running.run_loop import about_run, make_loop, make_sinks

    with ExitStack() as closing, _errors_logged(context):
        closing.callback(lambda: context.view.close(context.summary))
        context.view.start(about_run(context.config, context.directory.path))
        context.parts.main_thread.has_log = True
        tracker = start_tracker(context.config, context.directory, context.messages.notify, context.metrics_size)
        if tracker is not None:
            closing.callback(tracker.close)
        warn = RateLimitedWarning(context.messages.notify)
        sinks = make_sinks(context, tracker, warn)
        loop = make_loop(closing, context, sinks, warn)
        _start_and_commit(context, loop, sinks)
        ending = _run_loop(context, loop)
        if tracker is not None:
            tracker.state = ending.state if ending.exit_code else "finished"  # a limit that was reached is no failure
        if context.shows_end:
            context.summary = _summary(ending, context.directory)
    return ending, loop.metrics.line


def _run_loop(context: RunContext, loop: TrainingLoop) -> Ending:
    """Run the loop to its end. If an error ends it, save what was learned since the last checkpoint."""
    from offbeat.runtime.loop.run_services import Ending

    try:
        notify = context.messages.notify
        context.callbacks.start(context.parts, context.directory, loop, notify, resumed=context.resumed)
        context.parts.timings.seconds.clear()  # work before the clock starts does not count
        loop.metrics.start_clock()
        _set_learner_affinity(context)
        before = loop.counters
        loop.run()
        ending = loop.close()
        context.signals.disarm()
        nothing = no_updates.found(before, loop.counters, context.parts, resumed=context.resumed)
        if ending.state == "finished" and nothing:
            ending = replace(ending, reason=nothing)
    except StopImmediately as reason:
        context.signals.disarm()
        ending = Ending("interrupted", f"{reason}, so {loop.saving.lost(loop.counters)}", 130)
    except RunDirectoryGone:
        raise
    except BaseException as error:  # also asyncio's CancelledError, and other errors of envs that are no `Exception`
        if isinstance(error, KeyboardInterrupt) and not context.callbacks.failure:
            raise  # it may have interrupted an update
        context.signals.disarm()
        loop.salvage()
        raise
    return ending


def _summary(ending: Ending, directory: RunDirectory) -> str:
    """Return how the run ended; for one that can be resumed, with the call that does so."""
    resumable = ending.state == "interrupted" and directory.has_checkpoint
    remedy = f"; `{directory.next_command('resume')}` continues it" if resumable else ""
    return as_shown(f"{ending.state}: {ending.reason}{remedy}")


def _start_and_commit(context: RunContext, loop: TrainingLoop, sinks: Sequence[LateSink]) -> None:
    """Start acting, and only then change files.

    Raises:
        ConfigError: the disk is full, or the directory is not writable.
        RunDirectoryGone: the directory has been deleted.
    """
    try:
        messages = context.start_acting(context.parts, loop)
        for warning in messages.warnings:  # before `commit`: it raises if the caller has made warnings errors
            warn_caller(str(warning), type(warning))
        with context.signals.suspend_deadline():
            context.commit()
            context.committed = True
    except OSError as error:
        loop.saving.presence.require(at_once=True)
        remedy = remedy_for(error, "" if context.resumed else "pass another directory with --run-dir")
        raise ConfigError(
            f"the run directory {context.directory.path} cannot be written to ({error.strerror or error}), so the run "
            f"does not start: {remedy}"
        ) from error
    for sink in sinks:
        sink.open()
    _record_versions(context.directory)
    for shown in context.parts.build_messages:
        context.directory.append_to_log(shown)
    if messages.message:
        context.messages.notify(messages.message)
    for warning in messages.warnings:
        context.messages.show_warning(warning)


def _record_versions(directory: RunDirectory) -> None:
    """Write the versions of packages and machine to versions.json; log the changes since the run was last started."""
    try:
        changes = versions.write_versions(directory.folder)
    except OSError as error:
        directory.append_to_log(f"versions.json could not be written ({error}): the run continues")
        return
    if changes:
        directory.append_to_log(f"versions have changed since the run was last started: {'; '.join(changes)}")


def _set_learner_affinity(context: RunContext) -> None:
    """Set the CPU affinity and the niceness of this thread, as in the settings."""
    cores, nice = context.config.runtime.cores_of_learner(0), context.config.runtime.learner_nice
    if nice is not None and not may_raise_niceness():
        context.messages.notify(
            f"learner_nice is {nice}, but this process could not restore its niceness at the end of the run, so it is "
            "not changed: train with the command line, in a separate process"
        )
        nice = None
    pin(cores)
    raise_niceness(nice)
