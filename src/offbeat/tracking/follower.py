"""The main function of a tracker's process: it reads metrics.jsonl while the run writes it, and logs each line.

The tracker's threads, hooks, subprocesses and output are in this process, not in that of the training. The file is the
queue, so a slow or hanging tracker does not delay the run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from offbeat.core.errors import FAILURES, RunFailed, type_and_text
from offbeat.metrics.names import tag_of
from offbeat.metrics.sinks import Line
from offbeat.run_directory.directory import RunDirectory, RunState
from offbeat.runtime.children.child_main import ChildContext
from offbeat.tracking.starters import STARTERS, StartedRun, TrackerLaunch
from offbeat.tracking.tracker_file import TrackerFile

STATES: tuple[RunState, ...] = ("finished", "interrupted", "failed")
NEW_LINE = len(STATES)
"""Byte in the pipe that announces a new line. A smaller byte is an index in `STATES`: the run has ended."""


def main(launch: TrackerLaunch, child: ChildContext) -> None:
    """Log the lines of a run until the pipe is closed.

    Raises:
        RunFailed: with the tracker's message.
    """
    _redirect_output(launch.directory / "tracker.log")
    with _one_line_errors():
        tracked = STARTERS[launch.before.tracker](launch)
    child.report("started", (tracked.known, tracked.location))
    with _one_line_errors():
        track(launch, tracked)


def track(launch: TrackerLaunch, tracked: StartedRun) -> None:
    """Log the lines of a run that a tracker has started, until the pipe is closed, and finish the tracker's run."""
    state, position = _follow(launch, tracked)
    tracked.run.finish(**tracked.endings.get(state, {}))
    if tracked.has_lines == "after finish":
        _save(launch, tracked, position)


def _follow(launch: TrackerLaunch, tracked: StartedRun) -> tuple[RunState, int]:
    """Log the new lines whenever bytes arrive, until the pipe is closed.

    Returns:
        The state in which the run ended, and the position after the last line.
    """
    directory, position, last = RunDirectory(launch.directory), launch.before.position, NEW_LINE
    while received := os.read(launch.pipe, 4096):
        last = received[-1]
        lines, position = new_lines(directory.metrics_file, position)
        for line in lines:
            step = int(line["env_steps"] or 0)
            if step >= tracked.first_step:
                tracked.run.log({tag_of(name): value for name, value in line.items() if value is not None}, step=step)
        if lines and tracked.has_lines == "after log":
            _save(launch, tracked, position)
    return STATES[last] if last < NEW_LINE else "failed", position


def _save(launch: TrackerLaunch, tracked: StartedRun, position: int) -> None:
    """Save the position up to which the tracker has the lines."""
    with suppress(OSError):  # the disk is full: a resume logs these lines again
        file = RunDirectory(launch.directory).tracker_file
        TrackerFile(launch.before.tracker, tracked.known, position).write(file)


def new_lines(path: Path, position: int) -> tuple[list[Line], int]:
    """Return the complete lines after a byte position, and the position after these lines."""
    if not path.exists():
        return [], position
    with path.open("rb") as file:
        file.seek(position)
        complete = file.read().rpartition(b"\n")[:2]
    text = b"".join(complete)
    return [json.loads(line) for line in text.splitlines()], position + len(text)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Convert any exception of a tracker to a RunFailed with a message of one line."""
    try:
        yield
    except FAILURES as error:  # also of a tracker that calls sys.exit
        raise RunFailed(" ".join(type_and_text(error).split())) from error


def _redirect_output(path: Path) -> None:
    """Redirect stdout and stderr of this process and of its children to a file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
