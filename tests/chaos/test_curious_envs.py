"""Envs that print, fork, leave threads, have large infos or numbers, or episodes of one step: runs go on, and end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs import (
    Started,
    is_alive,
    lines_of,
    small_arguments,
    small_run,
    status_of,
    wait_until,
)
from tests.support.thorough import thorough

from offbeat.core.errors import EnvFailed

CURIOUS: dict[str, Any] = {"imports": ("tests.sample_envs.curious_envs",)}
LAYOUTS: dict[str, dict[str, Any]] = {
    "serial": {},
    "threads": {"actors": 2, "max_lag": 1},
    "processes": {"actors": 2, "max_lag": 1},
    "hogwild": {"workers": 2},
}


@pytest.mark.parametrize("runtime", ["processes", *thorough("hogwild", "serial", "threads")])
def test_output_threads_and_processes_of_envs_do_not_disturb_a_run(tmp_path, runtime):
    settings = {**CURIOUS, **LAYOUTS[runtime], "runtime": runtime, "steps": 300, "info_metrics": ("alive",)}
    run = tmp_path / "run"
    started = Started(small_arguments(run, "curious/Rude-v0", **settings), tmp_path)
    said = started.end(seconds=100)  # its threads and processes wait for ten minutes
    assert said.code == 0, said
    assert status_of(run)["state"] == "finished"
    assert said.out.startswith("finished: learned from")
    for how in ("by", "past"):
        assert said.err.count(f'{{"printed": "{how} Python"}}') >= 300
    if runtime in ("processes", "hogwild"):
        left = [int(pid) for pid in (tmp_path / "LEFT").read_text().split()]
        assert len(left) >= 2
        wait_until(lambda: not any(map(is_alive, left)))  # a killed one needs a moment to end
    for line in lines_of(run):
        assert (line["info/alive_mean"] or 0) <= 4, "one of each env at a time, and nobody keeps more"
    assert lines_of(run)[-1]["info/alive_mean"] >= 1
    assert "printed" not in said.out
    if runtime == "serial":
        assert_json_is_whole(run, tmp_path)


def assert_json_is_whole(run: Path, folder: Path) -> None:
    said = Started(["eval", str(run), "--episodes", "2", "--json", "--trust-code"], folder).end()
    assert json.loads(said.out)["episodes"] == 2, said
    arguments = ["bench", "ppo", "curious/Rude-v0", "--import", *CURIOUS["imports"], "--json", "--act-only"]
    flags = ["--seconds", "0.2", "--runtime", "processes", "--actors", "1", "--envs-per-actor", "8"]
    said = Started([*arguments, *flags], folder).end()
    assert json.loads(said.out)["act_only_sps"] > 0, said


@pytest.mark.parametrize(("env", "what"), [("TooLarge", "observation"), ("TooLargeReward", "reward")])
def test_numbers_too_large_for_float32_fail_the_run_and_are_not_learned_from(tmp_path, env, what):
    with pytest.raises(EnvFailed, match=f"{what} is NaN or infinite, or too large for float32"):
        small_run(tmp_path / "run", f"curious/{env}-v0", **CURIOUS, steps=2048)
    assert lines_of(tmp_path / "run")[-1]["env_steps"] > 0
    assert lines_of(tmp_path / "run")[-1]["updates_refused"] == 0


def test_each_episode_of_one_step_is_counted(tmp_path):
    run = small_run(tmp_path / "run", "offbeat/OneStep-v0", actors=2, max_lag=1, steps=500)
    assert run.metrics["episodes"] == run.metrics["env_steps"] >= 500
    assert run.metrics["episode_length_mean"] == 1
