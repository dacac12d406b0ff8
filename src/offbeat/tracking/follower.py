"""What a tracker's process does: it reads metrics.jsonl as the run writes it, and sends each line on.

Whatever a tracker does besides, threads, hooks, services, prints, it does here and not in the process that trains. The
file is the queue: a tracker that is slow, or hangs, holds up nobody.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from offbeat.core.errors import RunFailed
from offbeat.metrics.sinks import Line, tag_of
from offbeat.run_directory.directory import RunState
from offbeat.runtime.child import Report
from offbeat.tracking.services import BEGIN, LaunchSpec, Tracked

STATES: tuple[RunState, ...] = ("finished", "interrupted", "failed")
RING = len(STATES)
"""On the bell: there is a line. Smaller numbers: the run has ended, in that one of `STATES`."""


def main(launch: LaunchSpec, connection: Connection[Report, Any]) -> None:
    """Follow the run until the bell is closed.

    Raises:
        RunFailed: in the tracker's words.
    """
    _print_to(launch.directory / "tracker.log")
    with _in_words():
        tracked = BEGIN[launch.tracker](launch)
    connection.send(Report("begun", (tracked.known, tracked.where)))
    with _in_words():
        state = _follow(launch, tracked)
        tracked.run.finish(**tracked.endings.get(state, {}))


def _follow(launch: LaunchSpec, tracked: Tracked) -> RunState:
    """Send lines on as the bell rings; return how the run has ended."""
    metrics, position, last = launch.directory / "metrics.jsonl", launch.position, RING
    while rung := os.read(launch.bell, 4096):
        last = rung[-1]
        lines, position = new_lines(metrics, position)
        for line in lines:
            values = {tag_of(name): value for name, value in line.items() if value is not None}
            tracked.run.log(values, step=int(line["env_steps"] or 0))
    return STATES[last] if last < RING else "failed"


def new_lines(path: Path, position: int) -> tuple[list[Line], int]:
    """Return the whole lines that begin at a byte of the file or after it, and where they end."""
    if not path.exists():
        return [], position
    with path.open("rb") as file:
        file.seek(position)
        whole = file.read().rpartition(b"\n")[:2]
    text = b"".join(whole)
    return [json.loads(line) for line in text.splitlines()], position + len(text)


@contextmanager
def _in_words() -> Iterator[None]:
    """Let whatever a tracker raises be one error in one line."""
    try:
        yield
    except Exception as error:
        raise RunFailed(" ".join(f"{type(error).__name__}: {error}".split())) from error


def _print_to(path: Path) -> None:
    """Let all that is printed here, also by processes started from here, go to a file: the terminal is the run's."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
