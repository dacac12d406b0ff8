"""The phase of a run in its status.json."""

from __future__ import annotations

from typing import Any

from tests.support.runs import small_run, status_of

from offbeat.run_directory.directory import RunDirectory


def test_the_status_of_a_run_has_its_phase_until_the_run_ends(tmp_path, monkeypatch):
    write, phases = RunDirectory.write_status, list[Any]()

    def note(directory: RunDirectory, *given: Any, **named: Any) -> None:
        write(directory, *given, **named)
        phases.append(status_of(directory.path)["phase"])

    monkeypatch.setattr(RunDirectory, "write_status", note)
    evaluated: dict[str, Any] = {"eval_every": 256, "eval_episodes": 1, "evaluator": "inline"}
    run = small_run(tmp_path / "run", runtime="serial", steps=512, **evaluated)
    changes = [phase for phase, before in zip(phases, [None, *phases], strict=False) if phase != before]
    assert changes[0] == "starting"
    assert set(changes) >= {"collecting", "training", "evaluating", "saving"}
    assert (changes[-1], status_of(run.path)["state"]) == (None, "finished")
