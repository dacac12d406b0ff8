"""Envs whose state cannot be saved for a part of the run: the run continues, and its checkpoints stay good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.runs import CommandResult, offbeat, small_arguments, status_of

from offbeat.run_directory.checkpoint import load
from offbeat.run_directory.directory import RunDirectory

ENV = "runs/BecomesUnsavable-v0"
SETTINGS: dict[str, Any] = {"imports": ("tests.sample_envs.run_envs",), "checkpoint_every": 64, "checkpoints_kept": 99}
SETTINGS |= {"steps": 512, "envs_per_actor": 1, "minibatch_size": 16}
WORKERS: dict[str, Any] = {"runtime": "hogwild", "workers": 2, "eval_every": 0}


def trained(run: Path, *, what: str = "set", **settings: Any) -> CommandResult:
    arguments = small_arguments(run, ENV, **SETTINGS, **settings)
    return offbeat(*arguments, "--env-kwargs", f"what={what}")


def actors_by_checkpoint(run: Path) -> list[list[Any]]:
    """Return the saved states of the actors, or of the workers' actors, of all checkpoints of a run."""
    store = RunDirectory(run).checkpoint_store()
    states = [load(store.path(name)).state or {} for name in store.full()]
    return [state.get("actors") or [worker["actor"] for worker in state["workers"]] for state in states[1:]]


@pytest.mark.parametrize(
    "settings",
    [
        {"runtime": "serial", "actors": 2},
        {"runtime": "threads", "actors": 2},
        {"runtime": "processes", "actors": 2},
        {**WORKERS, "workers": 1},  # of two, one could take most env steps
    ],
    ids=lambda settings: settings["runtime"],
)
def test_a_run_continues_without_the_state_of_an_env_that_cannot_be_saved_for_a_while(tmp_path, settings):
    said = trained(tmp_path / "run", **settings)
    assert said.code == 0, said.err
    assert f"the state of {ENV} cannot be saved (envs / 0 / env / seen is of type set)" in said.err
    assert "a run that is resumed from this checkpoint starts new episodes" in said.err
    saved = [None not in states for states in actors_by_checkpoint(tmp_path / "run")]
    first = saved.index(False)
    assert any(saved[:first])
    assert any(saved[first:]), "the state can be saved again"


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (
            "lock",
            f"the state of {ENV} cannot be saved (envs / 0 / env / seen is of type lock): let snapshot() return a dict",
        ),
        ("error", f"snapshot() of {ENV} raised KeyError: 'the door': correct this method. The run continues"),
    ],
)
def test_an_actor_process_is_not_lost_when_the_state_of_its_env_cannot_be_sent_or_read(tmp_path, what, expected):
    said = trained(tmp_path / "run", what=what, runtime="processes", actors=1, restart_budget=0)
    assert said.code == 0, said.err
    assert expected in said.err


def test_a_resume_from_a_checkpoint_without_the_state_of_an_env_starts_new_episodes(tmp_path):
    run = tmp_path / "run"
    trained(run, stop_at=150)
    assert actors_by_checkpoint(run)[-1] == [None]
    said = offbeat("resume", run, "--progress", "lines")
    assert said.code == 0, said.err
    assert "they are cut, and new episodes start" in said.err
    assert status_of(run)["state"] == "finished"
