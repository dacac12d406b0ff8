"""Envs that another process must find by its imports, because their entries cannot be sent to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from tests.support.registries import registries_kept
from tests.support.runs import lines_of, small_run

from offbeat.core.errors import RunFailed

MODULE = "tests.sample_envs.late_registration"
NOW, LATE = "registered/Now-v0", "registered/Late-v0"
LOGS_IMPORTS = """
import os
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

with open("imports.log", "a") as log:
    print(os.getpid(), file=log)
gym.register("logged/Cart-v0", lambda **_: CartPoleEnv(), max_episode_steps=20)
"""
TRAINS = """
import offbeat
offbeat.train(
    "ppo", "logged/Cart-v0", imports=("logs_imports",), run_dir="run", runtime="{}", actors=1, envs_per_actor=2,
    steps=64, unroll_length=32, minibatch_size=32, hidden_sizes=(8,), eval_every=64, eval_episodes=1, progress="none",
)
"""
RUN: dict[str, Any] = {"imports": (MODULE,), "steps": 64, "envs_per_actor": 2}


@pytest.fixture(autouse=True)
def _envs_of_this_program() -> Iterator[None]:
    with registries_kept(MODULE):
        import_module(MODULE).register_late()
        yield


@pytest.mark.parametrize(
    "layout",
    [{"runtime": "processes", "actors": 1}, {"runtime": "hogwild", "algorithm": "a2c", "workers": 1}],
    ids=lambda layout: layout["runtime"],
)
def test_an_env_that_no_import_registers_ends_a_run_in_processes_without_restarts(tmp_path, layout, capsys):
    with pytest.raises(RunFailed, match=rf"^\w+ 0: {LATE} is not registered by importing {MODULE}: call gymnasium"):
        small_run(tmp_path / "run", LATE, **RUN, **layout, progress="lines")
    assert "started again" not in capsys.readouterr().err


def test_an_env_that_an_import_registers_is_trained_in_processes(tmp_path):
    run = small_run(tmp_path / "run", NOW, **RUN, runtime="processes", actors=1)
    assert run.state == "finished"
    assert lines_of(tmp_path / "run")[-1]["actor_restarts"] == 0


def test_an_env_that_no_import_registers_fails_each_evaluation_without_restarts(tmp_path, capsys):
    evaluations = {"eval_every": 64, "eval_episodes": 1, "progress": "lines"}
    run = small_run(tmp_path / "run", LATE, **{**RUN, **evaluations})
    assert run.state == "finished"
    said = capsys.readouterr().err
    assert f"evaluation failed, and training continues: evaluator 0: {LATE} is not registered by importing" in said
    assert "started again" not in said
    assert lines_of(tmp_path / "run")[-1]["evaluations_failed"] == 1


@pytest.mark.parametrize("runtime", ["processes", "threads"])
def test_only_the_processes_of_a_run_import_its_modules(tmp_path, runtime):
    (tmp_path / "logs_imports.py").write_text(LOGS_IMPORTS)
    program = [sys.executable, "-c", TRAINS.format(runtime)]
    folders = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    subprocess.run(program, cwd=tmp_path, env={**os.environ, "PYTHONPATH": folders}, check=True)
    imports = (tmp_path / "imports.log").read_text().splitlines()
    assert len(imports) == {"processes": 3, "threads": 2}[runtime]  # of the caller, the actor and the evaluator
