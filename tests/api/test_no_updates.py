"""A run that makes no update says so before it starts, also as a Python warning, and at its end."""

from __future__ import annotations

import math
import os
import signal
import warnings
from fractions import Fraction
from typing import Any

import pytest
from tests.support.runs import OFFBEAT, run_python
from torch import Tensor

import offbeat
from offbeat.algorithms.base import LossResult
from offbeat.algorithms.dqn import DQNConfig
from offbeat.algorithms.ppo import PPO
from offbeat.core.argument_notation import flags_shown
from offbeat.core.errors import LargeBatch, LearnsNothing

SMALL: dict[str, Any] = {"hidden_sizes": (8,), "eval_every": 0, "checkpoint_every": 0, "progress": "none"}
REPLAY: dict[str, Any] = {**SMALL, "warmup": 40, "batch_size": 8, "capacity": 500, "envs_per_actor": 4}
REPLAY |= {"chunk_length": 1, "utd_ratio": 1}
EXPECTED, FOUND = "nothing will be learned", "nothing was learned"


@pytest.mark.parametrize(("algorithm", "env"), [("sac", "Pendulum-v1"), ("dqn", "CartPole-v1")])
def test_a_run_that_ends_before_its_first_update_warns_with_the_arithmetic_and_the_remedy(
    tmp_path, capsys, algorithm, env
):
    arithmetic = r"32 transitions at its end, but the first update is made after 41; the warm-up \(warmup\) is 40"
    replay = REPLAY | {"progress": "lines"}
    says = f"{EXPECTED}.*{arithmetic}. Pass steps=400, or warmup=N"
    with flags_shown(False), pytest.warns(LearnsNothing, match=says) as found:
        run = offbeat.train(algorithm, env, run_dir=tmp_path / "run", steps=32, **replay)
    assert (run.state, run.metrics["updates"]) == ("finished", 0)
    assert run.reason.startswith(f"{FOUND}: no update was made in 32 env steps; the warm-up")
    (warning,) = (warning for warning in found if warning.category is LearnsNothing)
    assert warning.filename == __file__, "the warning is not about the line that started the run"
    assert EXPECTED not in capsys.readouterr().err, "the progress view repeats the Python warning"
    log = (run.path / "log.txt").read_text()
    assert log.count(EXPECTED) == 1
    assert f"{FOUND}: no update was made in 32 env steps; the warm-up (warmup) is 40. Pass --steps 400" in log


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"steps": 1}, ["steps is 1, but"]),
        ({"steps": 500, "stop_at": 10}, ["stop_at is 10, but"]),
        ({"steps": 20}, []),
    ],
)
def test_a_run_that_is_smaller_than_its_first_batch_warns_before_it_collects_it(tmp_path, given, says):
    with flags_shown(False), warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        settings = {**SMALL, **given, "unroll_length": 8, "envs_per_actor": 4, "minibatch_size": 32}
        run = offbeat.train("ppo", "CartPole-v1", run_dir=tmp_path / "run", **settings)
    assert run.metrics["env_steps"] >= 28
    messages = [str(warning.message) for warning in found if warning.category is LargeBatch]
    assert len(messages) == bool(says)
    assert all(part in text for text in messages for part in ["the first batch alone has up to 32 env steps", *says])


def test_a_run_that_is_stopped_in_its_warm_up_warns_with_the_limit_that_stops_it(tmp_path):
    says = "32 transitions at its end.*this part of the run ends at stop_at=32: pass a larger one, or resume the run"
    with pytest.warns(LearnsNothing, match=says):
        offbeat.train("dqn", "CartPole-v1", run_dir=tmp_path / "run", steps=400, stop_at=32, **REPLAY)


def test_a_run_resumed_with_too_few_steps_warns_and_one_with_enough_steps_does_not(tmp_path):
    with pytest.warns(LearnsNothing):
        run = offbeat.train("dqn", "CartPole-v1", run_dir=tmp_path / "run", steps=20, **REPLAY)
    with pytest.warns(LearnsNothing, match="36 transitions at its end.*Pass steps=400$") as found:
        resumed = offbeat.resume(run.path, steps=36, progress="none")
    assert resumed.reason.startswith(f"{FOUND}: no update was made in 16 env steps since the run was resumed")
    assert __file__ in [warning.filename for warning in found if warning.category is LearnsNothing]
    with warnings.catch_warnings():
        warnings.simplefilter("error", LearnsNothing)
        assert offbeat.resume(run.path, steps=60, progress="none").metrics["updates"] > 0


def test_a_resume_that_only_makes_the_last_evaluation_does_not_warn(tmp_path):
    def interrupt(line: dict[str, Any]) -> None:
        if line["env_steps"] == 56:
            os.kill(os.getpid(), signal.SIGINT)

    settings: dict[str, Any] = {**REPLAY, "steps": 60, "log_every": 4, "eval_every": 60, "eval_episodes": 1}
    run = offbeat.train("sac", "Pendulum-v1", run_dir=tmp_path / "run", **settings, callbacks=[interrupt])
    assert run.reason == "learned from 60 env steps, and stopped by SIGINT before its last evaluation"
    with flags_shown(False), warnings.catch_warnings():
        warnings.simplefilter("error", LearnsNothing)
        assert offbeat.resume(run.path, progress="none").metrics["evaluations"] == 1


def test_a_resumed_run_without_its_replay_counts_its_warmup_anew(tmp_path):
    run = offbeat.train("dqn", "CartPole-v1", run_dir=tmp_path / "run", steps=48, save_replay=False, **REPLAY)
    with pytest.warns(LearnsNothing, match="32 transitions at its end, but the first update is made after 41"):
        offbeat.resume(run.path, steps=80, progress="none")


def test_on_policy_runs_shorter_than_a_batch_learn_and_do_not_warn_of_learning_nothing(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", LearnsNothing)
        run = offbeat.train("ppo", "CartPole-v1", run_dir=tmp_path / "run", steps=1, **SMALL)
    assert run.metrics["updates"] > 0


class NaNLoss(PPO):
    """Has a loss that is never finite."""

    def policy_loss(self, log_prob: Tensor, advantages: Tensor, minibatch: Any) -> LossResult:
        result = super().policy_loss(log_prob, advantages, minibatch)
        return result._replace(loss=result.loss * math.nan)


def test_a_run_whose_updates_were_all_refused_says_that_it_has_learned_nothing(tmp_path):
    settings = {**SMALL, "steps": 64, "unroll_length": 8, "envs_per_actor": 4, "minibatch_size": 32}
    run = offbeat.train(NaNLoss, "CartPole-v1", run_dir=tmp_path / "run", **settings)
    assert run.metrics["updates"] == run.metrics["updates_refused"] > 0
    assert run.reason.startswith(
        f"no update was made in full: all {run.metrics['updates']} were refused, because the loss or a"
    )


def test_the_first_update_follows_from_warmup_and_ratio():
    assert DQNConfig(warmup=100).next_update() == 101
    assert DQNConfig(warmup=100, steps_per_update=Fraction(4)).next_update() == 104
    assert DQNConfig(warmup=100, steps_per_update=Fraction(4)).next_update(104) == 108
    assert DQNConfig(warmup=100, utd_ratio=Fraction(2)).next_update() == 101


@pytest.mark.parametrize("progress", ["lines", "none"])
def test_the_command_line_says_once_before_the_run_that_nothing_will_be_learned(tmp_path, progress):
    arguments = ["train", "dqn", "CartPole-v1", "--steps", "32", "--run-dir", str(tmp_path / "run")]
    settings = ["warmup=40", "batch_size=8", "hidden_sizes=8", "eval_every=0", "envs_per_actor=4", "chunk_length=1"]
    said = run_python(OFFBEAT, *arguments, "--progress", progress, "--set", *settings, folder=tmp_path)
    assert said.code == 0, said.err
    assert said.err.count(EXPECTED) == 1
    assert said.out.startswith(f"finished: {FOUND}: no update was made in 32 env steps")
    assert FOUND not in said.err
    assert "LearnsNothing" not in said.err
