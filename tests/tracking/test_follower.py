"""Which lines a tracker is sent, and which of them a resume sends again. The tracker is a fake in this process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

import pytest

from offbeat.core.errors import RunFailed
from offbeat.tracking.follower import _one_line_errors, track
from offbeat.tracking.starters import StartedRun, TrackerLaunch
from offbeat.tracking.tracker_file import TrackerFile


class FakeRun:
    """A run of a tracker, which may fail at its end."""

    def __init__(self, *, fails: bool = False) -> None:
        self.steps, self._fails = list[int](), fails

    def log(self, _metrics: dict[str, Any], step: int) -> None:
        self.steps.append(step)

    def finish(self) -> None:
        if self._fails:
            raise ConnectionError


def tracked_position(folder: Path, tracked: StartedRun) -> int:
    """Let a tracker follow a run of three lines; return the position up to which a resume takes it to have them."""
    (folder / "metrics.jsonl").write_text("".join(json.dumps({"env_steps": step}) + "\n" for step in (64, 128, 192)))
    reader, pipe = os.pipe()
    os.write(pipe, b"\0")
    os.close(pipe)
    launch = TrackerLaunch(os.getpid(), folder, "run", {}, TrackerFile("wandb"), reader)
    try:
        track(launch, tracked)
    except ConnectionError:
        pass
    finally:
        os.close(reader)
    return TrackerFile.read(folder / "tracker.json", "wandb").position


@pytest.mark.parametrize(
    ("has_lines", "fails", "sent"),
    [
        ("after log", True, True),
        ("after finish", True, False),
        ("after finish", False, True),
        ("never", False, False),
    ],
)
def test_lines_count_as_sent_when_the_tracker_has_them_for_sure(
    tmp_path, has_lines: Literal["after log", "after finish", "never"], fails: bool, sent: bool
):
    run = FakeRun(fails=fails)
    position = tracked_position(tmp_path, StartedRun(run, {}, "here", has_lines=has_lines))
    assert run.steps == [64, 128, 192]
    assert position == ((tmp_path / "metrics.jsonl").stat().st_size if sent else 0)


def test_lines_of_steps_that_the_tracker_has_are_not_sent_again(tmp_path):
    run = FakeRun()
    tracked_position(tmp_path, StartedRun(run, {}, "here", first_step=128))
    assert run.steps == [128, 192]


def test_an_exit_that_a_tracker_calls_is_a_failure_of_one_line():
    with pytest.raises(RunFailed, match=r"^SystemExit: 3$"), _one_line_errors():
        raise SystemExit(3)
