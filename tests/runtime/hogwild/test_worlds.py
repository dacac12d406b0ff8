"""Lock-free workers in worlds: one policy of all agents, also of those that end, appear late or wait for their turn."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.support.hogwild_runs import assert_ratio_of_each, assert_whole, workers_of
from tests.support.replay_runs import small_sac
from tests.support.runs import lines_of, small_run, weights_of

from offbeat.api.resume import resume
from offbeat.api.train import Run
from offbeat.core.errors import ConfigError

LATE = "offbeat.envs.testing.worlds:LateArrivals"
"""An episode has 9 env steps, and 15 decisions of 3 agents. A reset row follows."""
NIM = "offbeat.envs.testing.games:Nim"
"""One of two players decides in each env step; the other one waits."""
HOGWILD: dict[str, Any] = {"runtime": "hogwild", "workers": 2}
RATIO = Fraction(1, 4)


def train(algorithm: str, path: Path, env: str, **settings: Any) -> Run:
    if algorithm == "dqn":
        return small_sac(path, env, algorithm="dqn", capacity=2000, chunk_length=4, utd_ratio=str(RATIO), **settings)
    return small_run(path, env, algorithm=algorithm, steps=700, **settings)


CASES = pytest.mark.parametrize(("algorithm", "env"), [("a2c", LATE), ("dqn", NIM)])


@CASES
def test_one_worker_has_the_bits_of_serial_in_a_world(algorithm, env, tmp_path):
    runs = [
        train(algorithm, tmp_path / runtime, env, runtime=runtime, **workers)
        for runtime, workers in (("serial", {}), ("hogwild", {"workers": 1}))
    ]
    assert weights_of(runs[0].path) == weights_of(runs[1].path)
    for name in ("env_steps", "agent_steps", "episodes", "updates", "episode_return_mean"):
        assert runs[0].metrics[name] == runs[1].metrics[name], name


@CASES
def test_workers_count_the_env_steps_of_worlds_and_the_decisions_of_agents_also_after_a_resume(
    algorithm, env, tmp_path
):
    run = resume(train(algorithm, tmp_path / "run", env, **HOGWILD, stop_at=200).path)
    assert run.state == "finished"
    assert_whole(run.path)
    done = [worker["done"] for worker in workers_of(run.path)]
    assert all(each["env_steps"] > 0 for each in done)
    for line in lines_of(run.path):
        env_steps, agent_steps = line["env_steps"], line["agent_steps"]
        if env == NIM:
            assert agent_steps == env_steps
        else:
            worlds, episode = 2 * 4, 9
            assert abs(agent_steps - env_steps * 15 / episode) < worlds * episode
    for name in ("env_steps", "agent_steps"):
        assert run.metrics[name] == sum(each[name] for each in done)
    assert run.metrics["episodes"] > 50
    if algorithm == "dqn":
        assert_ratio_of_each(run.path, RATIO)
        assert sum(each["valid"] for each in done) <= run.metrics["agent_steps"], "the last decisions may be open"
        assert run.metrics["agent_steps"] - sum(each["valid"] for each in done) <= 2 * 2 * 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"policies": "separate"},
            r"without settings of its own, .* named policies \(player_0, player_1\)",
        ),
        ({"policies": lambda _agent: "all"}, r"named policies \(all\): pass --policies shared"),
        ({"league": {}}, "whose workers have no common version"),
    ],
)
def test_policies_with_tables_and_leagues_are_refused(settings, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train("a2c", tmp_path / "run", NIM, **HOGWILD, **settings)
    assert not (tmp_path / "run").exists()
