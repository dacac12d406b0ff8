"""What the trackers are started with; none of them is."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from offbeat.tracking.starters import STARTERS, TrackerLaunch
from offbeat.tracking.tracker_file import TrackerFile


def test_a_resume_continues_the_run_under_the_entity_of_its_first_start(tmp_path, monkeypatch):
    started = list[dict[str, Any]]()

    def init(**arguments: Any) -> Any:
        started.append(arguments)
        config = SimpleNamespace(update=lambda *_, **__: None)
        entity = arguments.get("entity", "team")  # that of WANDB_ENTITY, or of the account
        names = {"project": "offbeat", "name": "run", "id": "abc", "entity": entity}
        return SimpleNamespace(**names, url="there", disabled=False, config=config)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Settings=lambda **_: None, init=init))
    file = tmp_path / "tracker.json"
    for _ in range(2):
        before = TrackerFile.read(file, "wandb")
        tracked = STARTERS["wandb"](TrackerLaunch(1, Path("run"), "run", {}, before, pipe=-1))
        TrackerFile("wandb", tracked.known).write(file)
    assert [arguments.get("entity") for arguments in started] == [None, "team"]
    assert started[1]["id"] == "abc"
