"""Starts a tracker's process, notifies it of each metrics line, and ends it within a time limit."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from offbeat.config.config import Config
from offbeat.config.ray import without_cluster
from offbeat.core.errors import ConfigError
from offbeat.core.files import remedy_for
from offbeat.core.importable import is_importable
from offbeat.metrics.sinks import Line
from offbeat.run_directory.directory import RunDirectory, RunState
from offbeat.run_directory.names import EXPERIMENT, TRIAL
from offbeat.runtime.board import POLL_INTERVAL_S
from offbeat.runtime.children.child import Child, start_child
from offbeat.tracking.follower import NEW_LINE, STATES
from offbeat.tracking.starters import START_S, TrackerLaunch
from offbeat.tracking.tracker_file import TrackerFile

END_S: dict[RunState, float] = {"finished": 30.0, "interrupted": 5.0, "failed": 5.0}
"""State in which the run ended -> seconds in which the tracker must send the remaining lines."""
_REMEDIES = {
    "wandb": "run wandb login, or set WANDB_MODE=offline to send it later, or pass --set tracker=none",
    "trackio": "solve this problem, or pass --set tracker=none",
}


def require_tracker(name: str | None) -> None:
    """Raise ConfigError if the package of a tracker is not installed."""
    if name is not None and not is_importable(name):
        raise ConfigError(
            f'tracker is {name}, which is not installed: run pip install "offbeat[{name}]", or pass --set tracker=none'
        )


class Tracker:
    """A sink whose lines are logged by a separate process; see `start_tracker`."""

    def __init__(self, name: str, child: Child, pipe: int, notify: Callable[[str], None]) -> None:
        self._name, self._child, self._pipe, self._notify = name, child, pipe, notify
        self._closed = False
        self.state: RunState = "failed"
        """State in which the run ended; interrupted: only by a signal, not by a limit. Set it before `close`."""

    def write(self, line: Line) -> None:  # noqa: ARG002 - the process reads it from metrics.jsonl
        """Notify the process of a line in metrics.jsonl. Never blocks."""
        if self._closed:
            return
        self._child.take_reports()
        if self._child.no_restart_reason or self._child.failure or not self._child.is_alive():
            self._end(f"{self._name} has failed ({_why_ended(self._child)}): the run continues without it")
        else:
            self._send(NEW_LINE)

    def close(self) -> None:
        """Send the state in which the run ended, and wait a limited time for the remaining lines to be logged."""
        if self._closed:
            return
        seconds = END_S[self.state]
        deadline = monotonic() + seconds
        _wait_for_room(self._pipe, seconds)
        self._send(STATES.index(self.state))
        os.close(self._pipe)
        self._pipe = -1
        if not _ended(self._child, max(0.0, deadline - monotonic())):
            self._end(f"{self._name} has not sent all lines within {seconds:.0f} seconds and was stopped")
        elif self._child.process.returncode:
            self._end(f"{self._name} has failed ({_why_ended(self._child)}): not all lines were sent")
        else:
            self._end("")

    def _send(self, number: int) -> None:
        # The pipe may be full, and the process will read all lines anyway; or the process has ended.
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._pipe, bytes([number]))

    def _end(self, text: str) -> None:
        """Kill the process, close the pipe, and notify the user if there is a message."""
        self._closed = True
        self._child.kill()
        if self._pipe >= 0:
            os.close(self._pipe)
        if text:
            self._notify(f"{text}. All lines are in metrics.jsonl")


def start_tracker(
    config: Config, directory: RunDirectory, notify: Callable[[str], None], metrics_size: int
) -> Tracker | None:
    """Start the tracker of a run; return None if it has none. A run that the tracker already has is continued.

    Args:
        config: Config of the run.
        directory: Directory of the run.
        notify: Called with messages for the user.
        metrics_size: Number of bytes of metrics.jsonl, those of the lines that a resume keeps.

    Raises:
        ConfigError: the tracker could not start, with its message; or the disk is full.
    """
    name = config.run.tracker
    if name is None:
        saved = TrackerFile.saved(directory.tracker_file)
        if saved is not None and saved.position > metrics_size:  # the lines after these are written anew
            _save(directory.tracker_file, saved.within(metrics_size))
        return None
    before = TrackerFile.read(directory.tracker_file, name).within(metrics_size)
    reports: list[Any] = []
    pipe = os.pipe()
    os.set_blocking(pipe[1], False)
    path = directory.folder.resolve()
    launch = TrackerLaunch(os.getpid(), path, _name_of(path), without_cluster(config.tables()), before, pipe[0])
    try:
        child = start_child("offbeat.tracking.follower", launch, [pipe[0]], on_report=reports.append)
    except BaseException:
        os.close(pipe[1])
        raise
    finally:
        os.close(pipe[0])
    try:
        _wait_for_start(child, reports, name)
        known, location = reports[0].content
        _save(directory.tracker_file, replace(before, known=known))
    except BaseException:
        child.kill()
        os.close(pipe[1])
        raise
    notify(f"tracked by {name}: {location}")
    return Tracker(name, child, pipe[1], notify)


def _wait_for_start(child: Child, reports: Sequence[Any], name: str) -> None:
    """Wait for the report that the tracker has started.

    Raises:
        ConfigError: it could not start.
    """
    deadline = monotonic() + START_S
    while not reports:
        if not child.is_alive():
            child.kill()  # reads its last reports
        child.take_reports(POLL_INTERVAL_S)
        late = not reports and (not child.is_alive() or monotonic() > deadline)
        if child.failure or late:
            raise ConfigError(f"tracker is {name}, which could not start ({_why_ended(child)}): {_REMEDIES[name]}")


def _why_ended(child: Child) -> str:
    """Return why a tracker's process has ended, or that it does not respond."""
    child.take_reports()
    if not child.is_alive():
        child.kill()
    elif not child.no_restart_reason:
        return "it does not respond"
    return child.no_restart_reason or child.failure or f"its process {child.exit_reason()}"


def _wait_for_room(pipe: int, seconds: float) -> None:
    """Wait, at most some seconds, while a pipe is full."""
    poll = select.poll()
    poll.register(pipe, select.POLLOUT)
    poll.poll(1000 * seconds)


def _ended(child: Child, seconds: float) -> bool:
    """Whether a process ends within some seconds."""
    if not child.exits_within(seconds):
        return False
    child.kill()
    return True


def _save(path: Path, run: TrackerFile) -> None:
    try:
        run.write(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written ({error.strerror}), so the run does not start: {remedy_for(error)}"
        ) from error


def _name_of(run: Path) -> str:
    """Return the name of a run directory, preceded by those of its experiment and trial, or of its population."""
    above = 2 if (run.parent / TRIAL).is_file() else 1 if (run.parent / EXPERIMENT).is_file() else 0
    return "/".join(run.parts[-1 - above :])
