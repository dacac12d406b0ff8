"""What the trackers are started with; none of them is."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offbeat.tracking.starters import STARTERS, StartedRun, TrackerLaunch
from offbeat.tracking.tracker_file import TrackerFile


class FakeWandb:
    """A stand-in for W&B, which notes the arguments of `init`."""

    def __init__(self, *, disabled: bool = False) -> None:
        self.started, self._disabled = list[dict[str, Any]](), disabled

    def Settings(self, **_settings: Any) -> None: ...  # noqa: N802 - W&B's name

    def init(self, **arguments: Any) -> Any:
        self.started.append(arguments)
        config = SimpleNamespace(update=lambda *_, **__: None)
        entity = arguments.get("entity", "team")  # that of WANDB_ENTITY, or of the account
        names = {"project": "offbeat", "name": "run", "id": "abc", "entity": entity}
        return SimpleNamespace(**names, url="there", disabled=self._disabled, starting_step=641, config=config)


def started_by(fake: FakeWandb, before: TrackerFile, monkeypatch: pytest.MonkeyPatch) -> StartedRun:
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return STARTERS["wandb"](TrackerLaunch(1, Path("run"), "run", {}, before, pipe=-1))


def test_a_resume_continues_the_run_under_the_entity_of_its_first_start(tmp_path, monkeypatch):
    fake, file = FakeWandb(), tmp_path / "tracker.json"
    for _ in range(2):
        tracked = started_by(fake, TrackerFile.read(file, "wandb"), monkeypatch)
        TrackerFile("wandb", tracked.known).write(file)
    assert [arguments.get("entity") for arguments in fake.started] == [None, "team"]
    assert fake.started[1]["id"] == "abc"


def test_wandb_has_the_lines_only_when_it_has_finished_and_is_not_sent_the_steps_that_it_has(monkeypatch):
    tracked = started_by(FakeWandb(), TrackerFile("wandb"), monkeypatch)
    assert (tracked.has_lines, tracked.first_step) == ("after finish", 641)


def test_disabled_wandb_has_no_line_and_the_id_of_the_run_stays(monkeypatch):
    before = TrackerFile("wandb", {"id": "first"}, position=100)
    tracked = started_by(FakeWandb(disabled=True), before, monkeypatch)
    assert (tracked.has_lines, tracked.known) == ("never", {"id": "first"})
