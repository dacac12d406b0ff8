"""Benchmarks place evaluations where they belong, and continue after they were stopped."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Self

from benchmarks.scores import run as scores_run
from tests.support.pages import ROOT

from benchmarks import actors_and_envs, populations, same_bits, seeds, several_agents, steps_to_score


def lines_of_a_run() -> list[dict[str, Any]]:
    """Return metrics lines with an evaluation that ends 30 env steps after its weights were taken."""
    lines = [
        {"env_steps": steps, "wall_time_s": steps / 10, "episode_return_mean": 1.0, "evaluations": 0}
        for steps in (100, 130, 160)
    ]
    before = {"eval_env_steps": None, "eval_return_mean": None}
    evaluated = {"evaluations": 1, "eval_env_steps": 100, "eval_return_mean": 500.0}
    return [lines[0] | before, lines[1] | evaluated, lines[2] | evaluated]


def test_a_curve_has_each_evaluation_at_the_env_steps_of_its_weights():
    assert scores_run.curve(lines_of_a_run()) == [
        [100, 10.0, 1.0, None],
        [100, 13.0, None, 500.0],
        [130, 13.0, 1.0, None],
        [160, 16.0, 1.0, None],
    ]


def test_a_score_is_reached_at_the_env_steps_of_the_evaluated_weights(monkeypatch):
    monkeypatch.setattr(steps_to_score, "follow", lambda *_: iter(lines_of_a_run()))
    monkeypatch.setattr(subprocess, "Popen", FakeProcess)
    assert steps_to_score.until_score([])["env_steps"] == 100


class FakeProcess:
    """A training that has ended."""

    returncode = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def terminate(self) -> None: ...


def test_a_run_that_was_stopped_before_its_first_checkpoint_is_trained_again(tmp_path, monkeypatch):
    commands = list[tuple[str, ...]]()
    monkeypatch.setattr(scores_run, "offbeat", lambda *arguments, **_: commands.append(arguments))
    run = tmp_path / "run"
    stopped_run(run)
    assert scores_run.train_to_end(run, "train ppo CartPole-v1")
    assert not run.exists()
    (run / "checkpoints/latest").mkdir(parents=True)
    assert not scores_run.train_to_end(run, "train ppo CartPole-v1")
    assert [command[0] for command in commands] == ["train", "resume"]


def test_a_seed_that_was_stopped_is_trained_again_and_a_whole_one_is_not(tmp_path, monkeypatch):
    trained = list[Path]()

    def train(*_: Any, run_dir: Path, **__: Any) -> None:
        run_dir.mkdir()  # refused if it is there
        trained.append(run_dir)

    monkeypatch.setattr(seeds, "train", train)
    run = tmp_path / "run"
    stopped_run(run)
    for _ in range(2):
        seeds.train_once(run, "CartPole-v1", 1, {})
    assert trained == [run]
    assert seeds.train_cpu_s(run) >= 0


def stopped_run(path: Path) -> None:
    path.mkdir()
    (path / "config.toml").write_text("")


def test_a_member_that_has_failed_in_a_generation_has_its_later_score():
    rows = [
        {"generation": "0", "member": "0", "env_steps": "0", "score": "", "failed": "killed", "gamma": "0.9"},
        {"generation": "1", "member": "0", "env_steps": "8", "score": "2.5", "failed": "", "gamma": "0.8"},
    ]
    result: dict[str, Any] = {arm: [{**row, "copied_member": ""} for row in rows] for arm in populations.ARMS}
    result["retested"] = dict.fromkeys(populations.ARMS, 2.0)
    assert "| gamma 0.9 | 1 | 0 | 2.5 | 2.5 | 0 | gamma 0.8 |" in populations.as_markdown({"cartpole": {"1": result}})


def test_acting_with_one_env_is_measured():
    assert actors_and_envs.with_envs(1, env_steps=1)["cpu_us"] > 0


def test_a_run_that_a_version_of_the_code_refuses_has_no_bits_to_compare(monkeypatch):
    monkeypatch.setattr(same_bits, "RUNS", {"of a newer version": ("ppo2", "CartPole-v1", {})})
    assert same_bits.hashes_of(ROOT) == {"of a newer version": None}


def test_instructions_that_perf_may_not_count_are_left_out(tmp_path, monkeypatch):
    (tmp_path / "perf").write_text("#!/bin/sh\nexit 255\n")
    (tmp_path / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert several_agents.instructions("single", "short", 1) is None
