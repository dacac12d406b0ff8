"""What trains speaks to a tracker here: it begins its process, rings for each line, and ends it in time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

from offbeat.config.config import Config
from offbeat.core.errors import ConfigError
from offbeat.core.strict_json import LARGEST_RECORD, read_json
from offbeat.metrics.sinks import Line
from offbeat.run_directory.directory import RunDirectory, RunState
from offbeat.runtime.board import NAP_S
from offbeat.runtime.child import Child, start_child
from offbeat.tracking.follower import RING, STATES
from offbeat.tracking.services import BEGIN_S, LaunchSpec

END_S: dict[RunState, float] = {"finished": 30.0, "interrupted": 5.0, "failed": 5.0}
"""Seconds that a tracker gets to send the rest, by how the run has ended."""
_REMEDIES = {
    "wandb": "run wandb login, or set WANDB_MODE=offline to send it later, or leave tracker out",
    "trackio": "put that right, or leave tracker out",
}


def require_package(name: str | None) -> None:
    """Refuse a tracker whose package is missing.

    Raises:
        ConfigError: with what to type.
    """
    if name is not None and not is_installed(name):
        raise ConfigError(
            f'tracker is {name}, which is not installed: run pip install "offbeat[{name}]", or leave tracker out'
        )


def is_installed(package: str) -> bool:
    """Whether a package can be imported; a folder of its name, such as wandb leaves behind, is none."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


class Tracker:
    """A sink whose lines are sent on by a process of its own; see `begin`."""

    def __init__(self, name: str, child: Child, bell: int, notify: Callable[[str], None]) -> None:
        self._name, self._child, self._bell, self._notify = name, child, bell, notify
        self._over = False
        self.state: RunState = "failed"
        """How the run has ended; set it before `close`."""

    def write(self, line: Line) -> None:  # noqa: ARG002 - the process reads it from metrics.jsonl
        """Ring for a line that has been written to metrics.jsonl; takes no time, whatever the tracker does."""
        if self._over:
            return
        self._child.listen()
        if self._child.gave_up or self._child.failure or not self._child.alive():
            self._end(f"{self._name} has failed ({why(self._child)}): the run goes on without it")
        else:
            self._ring(RING)

    def close(self) -> None:
        """Say how the run has ended, and wait until the tracker has sent the rest, but not for ever."""
        if self._over:
            return
        self._ring(STATES.index(self.state))
        os.close(self._bell)
        self._bell = -1
        seconds = END_S[self.state]
        if not _ended(self._child, seconds):
            self._end(f"{self._name} has not sent the rest within {seconds:.0f} seconds, and was stopped")
        elif self._child.process.returncode:
            self._end(f"{self._name} has failed ({why(self._child)}): not all was sent")
        else:
            self._end("")

    def _ring(self, number: int) -> None:
        with suppress(BlockingIOError, BrokenPipeError):  # it has rung often enough; nobody listens any more
            os.write(self._bell, bytes([number]))

    def _end(self, text: str) -> None:
        """Let nothing of it be left, and say what there is to say, once."""
        self._over = True
        self._child.kill()
        if self._bell >= 0:
            os.close(self._bell)
        if text:
            self._notify(f"{text}. All lines are in metrics.jsonl")


def begin(
    config: Config, directory: RunDirectory, notify: Callable[[str], None], metrics_size: int = 0
) -> Tracker | None:
    """Begin the run's tracker, if it has one, and go on with the run that it knows, if it does.

    Args:
        config: all settings.
        directory: of the run.
        notify: tells the user.
        metrics_size: bytes of metrics.jsonl that a tracker which knows the run has been sent.

    Raises:
        ConfigError: it could not begin, with its own words.
    """
    name = config.run.tracker
    if name is None:
        return None
    saved = directory.tracker
    known = _known(saved, name)
    heard, bell = _Heard(), os.pipe()
    os.set_blocking(bell[1], False)
    position = metrics_size if known else 0
    path = directory.path.resolve()
    launch = LaunchSpec(name, os.getpid(), path, _name_of(path), config.tables(), known, position, bell[0])
    child = start_child("offbeat.tracking.follower", launch, [bell[0]], heard=heard)
    os.close(bell[0])
    try:
        _wait_for_begin(child, heard, name)
    except BaseException:
        child.kill()
        os.close(bell[1])
        raise
    known, where = heard.begun
    saved.write_text(json.dumps({"tracker": name, **known}, indent=1) + "\n")
    notify(f"tracked by {name}: {where}")
    return Tracker(name, child, bell[1], notify)


class _Heard:
    """Keeps what the process says when its tracker has begun."""

    def __init__(self) -> None:
        self.begun: Any = None

    def __call__(self, report: Any) -> None:
        self.begun = report.content


def _wait_for_begin(child: Child, heard: _Heard, name: str) -> None:
    deadline = monotonic() + BEGIN_S
    while heard.begun is None:
        if not child.alive():
            child.kill()  # which takes in its last reports
        child.listen(NAP_S)
        late = heard.begun is None and (not child.alive() or monotonic() > deadline)
        if child.failure or late:
            raise ConfigError(f"tracker is {name}, which could not begin ({why(child)}): {_REMEDIES[name]}")


def why(child: Child) -> str:
    """Say in words why a tracker's process has ended, or seems to hang."""
    child.listen()
    if not child.alive():
        child.kill()
    elif not child.gave_up:
        return "it does not answer"
    return child.gave_up or child.failure or f"its process {child.how_it_ended()}"


def _ended(child: Child, seconds: float) -> bool:
    """Whether a process ends in time."""
    if not child.ends_within(seconds):
        return False
    child.kill()
    return True


def _known(path: Path, name: str) -> dict[str, str]:
    """Return what this tracker calls the run; empty for a run that is new to it."""
    with suppress(OSError, ValueError):
        known = read_json(path, LARGEST_RECORD)
        if known.pop("tracker", None) == name:
            return known
    return {}


def _name_of(run: Path) -> str:
    """Return the name of a run's directory; of a session of an experiment, with those of its trial and experiment."""
    return "/".join(run.parts[-3:]) if (run.parent / "trial.toml").is_file() else run.name
