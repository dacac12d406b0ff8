"""Runs that have no result yet are made once; what cannot be made is found before the first of them."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from benchmarks.missing_runs import make_missing
from benchmarks.records import read_records
from benchmarks.scores import __main__ as scores
from benchmarks.scores.works import Work


def test_only_runs_without_a_record_are_made(tmp_path: Path):
    made = list[int]()

    def make(seed: int) -> dict[str, Any]:
        made.append(seed)
        return {"score": 10 * seed}

    for seeds in ([1], [1, 2]):
        jobs = [({"seed": seed}, lambda seed=seed: make(seed)) for seed in seeds]
        make_missing(tmp_path / "runs.jsonl", jobs, lambda record: str(record["score"]))
    assert made == [1, 2]
    records = read_records(tmp_path / "runs.jsonl")
    assert [(record["seed"], record["score"], bool(record["revision"])) for record in records] == [
        (1, 10, True),
        (2, 20, True),
    ]


@pytest.mark.parametrize("name", ["replay_variants", "seconds_to_score"])
def test_a_peer_that_is_not_installed_is_found_before_the_first_run(name, tmp_path, monkeypatch, capsys):
    module = import_module(f"benchmarks.{name}.__main__")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "make_missing", lambda *_: pytest.fail("a run was made"))
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises(SystemExit, match="2"):
        module.main()
    assert "bin/python does not exist: benchmarks/README.md says how to install the peer" in capsys.readouterr().err


def test_no_other_seed_of_the_scores_begins_after_one_has_failed(tmp_path, monkeypatch, capsys):
    started = list[str]()

    def finish(command: list[str]) -> str:
        started.append(command[-1])
        raise SystemExit(f"seed {command[-1]} failed")

    monkeypatch.setattr(scores, "finish", finish)
    monkeypatch.setattr(Work, "result_path", lambda _, seed: tmp_path / str(seed))
    work = Work("ppo", "CartPole-v1", 1, 8, 500, "nobody")
    with pytest.raises(SystemExit, match="1"):
        scores.run_missing([work], [work], None)
    assert set(started) <= {"1", "2"}
    assert "failed" in capsys.readouterr().err
