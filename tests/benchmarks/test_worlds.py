"""What was tried before is not lost."""

from __future__ import annotations

import json
import sys

from benchmarks.worlds import __main__ as worlds
from benchmarks.worlds import page


def test_a_package_that_works_keeps_its_result_if_it_cannot_be_installed_without_a_network(tmp_path, monkeypatch):
    record = tmp_path / "packages.json"
    results = {"date": "2026-01-01", "failed": "", "said": {}}, {"date": "2026-02-01", "failed": "install", "said": {}}
    monkeypatch.setattr(worlds, "RECORD", record)
    monkeypatch.setattr(page, "RECORD", record)
    monkeypatch.setattr(worlds, "write_page", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["worlds", "minigrid"])
    for result in results:
        monkeypatch.setattr(worlds, "tried", lambda _, result=result: result)
        worlds.main()
    assert json.loads(record.read_text()) == {"minigrid": results[0]}
