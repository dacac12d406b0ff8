"""Moments in which an agent has nothing to decide: no decision is counted there, and nothing earned there is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.replay_runs import small_sac
from tests.support.runs import lines_of, small_run, unrolls_of, weights_of
from tests.support.thorough import thorough

import offbeat
from offbeat.api.resume import resume
from offbeat.config.config_file import load as load_config
from offbeat.config.importing import import_modules
from offbeat.core.errors import EnvFailed
from offbeat.core.types import Tree
from offbeat.envs.contract import Snapshots
from offbeat.envs.make import make_envs
from offbeat.run_directory.checkpoint import load
from offbeat.runtime.runtimes import build

CURIOUS: dict[str, Any] = {"imports": ("tests.sample_envs.curious_envs",)}
WAITING, CUE = "curious/Waiting-v0", "curious/WaitingCue-v0"
LENGTH, EVERY = 8, 3
"""Steps of an episode of `Waiting`; there is a decision in the first and then in each third."""
DECISIONS = 3


@pytest.fixture(autouse=True)
def _known():
    import_modules(CURIOUS["imports"])


def test_rows_mark_no_decision_steps_and_episode_starts():
    envs = make_envs(WAITING, 2, seed=0)
    assert isinstance(envs, Snapshots)
    envs.reset()
    for row in range(40):
        if row == 13:  # in the middle of a wait
            state = envs.snapshot()
            envs = make_envs(WAITING, 2, seed=1)
            assert isinstance(envs, Snapshots)
            envs.restore(state)
        envs.send(np.ones(2, np.int64))
        outcome, at = envs.recv(), row % (LENGTH + 1)
        assert outcome.resets.tolist() == [at == LENGTH] * 2
        assert outcome.valid.tolist() == [at < LENGTH and at % EVERY == 0] * 2
        assert outcome.reward.tolist() == [float(at < LENGTH)] * 2


def test_a_run_ends_if_no_decision_is_reported_only_after_the_first_steps(tmp_path):
    with pytest.raises(EnvFailed, match="give it in the info of reset and of each step, true or false"):
        small_run(tmp_path / "run", "curious/LateWaiting-v0", **CURIOUS)


def test_a_run_ends_if_a_mask_is_given_only_after_the_first_steps(tmp_path):
    with pytest.raises(EnvFailed, match="masks are not read: give it in the info of reset and of each step"):
        small_run(tmp_path / "run", "curious/LateMask-v0", **CURIOUS)


def test_only_decisions_are_counted_and_returns_include_all_rewards(tmp_path):
    run = small_run(tmp_path / "run", WAITING, **CURIOUS, steps=512, eval_every=1000, eval_episodes=1)
    last = run.metrics
    assert (last["episode_length_mean"], last["episode_return_mean"]) == (DECISIONS, LENGTH)
    assert (last["eval_length_mean"], last["eval_return_mean"]) == (DECISIONS, LENGTH)
    rows = last["learning_step"] * 4 * 16
    assert last["env_steps"] == pytest.approx(rows * DECISIONS / (LENGTH + 1), abs=8)


def test_returns_are_also_those_of_agents_that_made_no_decision_in_the_episode(tmp_path):
    """The first player takes the only stone."""
    game = {"env_kwargs": {"stones": 1, "most": 1}, "eval_every": 1000, "eval_episodes": 1, "steps": 512}
    last = small_run(tmp_path / "run", "offbeat.envs.testing.games:Nim", **game).metrics
    for name in ("", "eval_"):
        returns = [last[f"{name or 'episode_'}return_{which}"] for which in ("min", "mean", "max")]
        assert returns == [-1, 0, 1], "it is not a zero-sum game"
        assert last[f"{name or 'episode_'}length_mean"] == 0.5


def exact_value(age: int, gamma: float) -> float:
    """What is earned from a step on: discounted once a decision, as the losses look to the next one."""
    if age >= LENGTH:
        return 0.0
    following = next((after for after in range(age + 1, LENGTH) if after % EVERY == 0), LENGTH)
    if age % EVERY:
        return following - age + exact_value(following, gamma)
    between = following - age - 1
    return 1 + gamma * (between + exact_value(following, gamma))


@pytest.mark.parametrize("settings", [{}, *thorough({"max_lag": 1})], ids=["gae", "vtrace"])
def test_values_converge_to_the_closed_form_if_unrolls_end_in_no_decision_rows(tmp_path, settings):
    run = small_run(
        tmp_path / "run",
        WAITING,
        **{**CURIOUS, "steps": 4000, "unroll_length": 10, "envs_per_actor": 32, "minibatch_size": 64, "gamma": 0.9},
        **{"learning_rate": 1e-2, "epochs": 4, "hidden_sizes": (32,), "decorrelate": True, **settings},
    )
    ages = np.arange(LENGTH)
    values = values_at(run.path, ages)
    expected = np.array([exact_value(int(age), 0.9) for age in ages])
    np.testing.assert_allclose(values, expected, atol=0.4)


def values_at(run: Path, ages: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the values that a run's policy gives at each step of an episode."""
    policy = offbeat.load(run)
    return np.array([policy.value(np.array([age, 0.5]), no_decision=bool(age % EVERY)) for age in ages])


def batch_of(parts: Any) -> Tree:
    return unrolls_of(parts).arrays_of(0)


@pytest.mark.parametrize("env", [WAITING, "offbeat.envs.testing.games:Nim"])
def test_an_unroll_tells_whether_the_row_after_it_is_without_a_decision(begun, env):
    parts, acting = begun(env, unroll_length=5, imports=CURIOUS["imports"], minibatch_size=20, normalize_returns=False)
    marks: list[Any] = []
    for step in range(12):
        acting.wait(parts.pace.acted_before_learn(step))
        batch = unrolls_of(parts).arrays_of(step)
        if marks:
            assert batch["no_decision"][0].tolist() == marks[-1]
        marks.append(batch["last_no_decision"].tolist())
        parts.policy.learner.learn(step, 0.0)
        acting.finish(step + 1)
    assert {mark for each in marks for mark in each} == {False, True}


@pytest.mark.thorough
def test_a_core_reads_observations_of_no_decision_rows(tmp_path):
    settings: dict[str, Any] = {"core": "gru", "core_size": 16, "learning_rate": 1e-2, "unroll_length": 18, "epochs": 4}
    run = small_run(tmp_path / "run", CUE, **{**CURIOUS, **settings, "steps": 12_000, "envs_per_actor": 16})
    assert run.metrics["episode_return_mean"] > 0.9, "without memory of such moments it is 0.5"
    assert max(line["ratio_max_deviation_first"] or 0 for line in lines_of(run.path)) < 1e-4


def test_recomputed_probabilities_equal_those_of_acting(begun):
    parts, acting = begun(CUE, core="lstm", core_size=8, unroll_length=11, imports=CURIOUS["imports"])
    for step in range(4):
        acting.wait(parts.pace.acted_before_learn(step))
        learned = parts.policy.learner.learn(step, 0.0)
        acting.finish(step + 1)
        assert learned.metrics["ratio_max_deviation_first"] < 1e-4


# --- with a replay ------------------------------------------------------------------------------------------

CORE: dict[str, Any] = {"core": "gru", "core_size": 8, "chunk_length": 4, "utd_ratio": "1/8"}
"""Sequences of 4 rows in episodes of 8 with a reset row: waits go over their ends at every phase."""


def action_values(run: Path, ages: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the values of a DQN's actions, [ages, actions]."""
    parts = build(load_config(run / "config.toml"))
    algorithm = parts.policy.algorithm
    algorithm.load_weights(load(run / "checkpoints" / "latest").weights)
    observation = np.stack((ages, np.full(len(ages), 0.5)), axis=1).astype(np.float32)
    with torch.no_grad():
        return np.asarray(algorithm.network(torch.from_numpy(observation), {})[0])


@pytest.mark.parametrize("n_step", [1, *thorough(3)])
def test_action_values_with_a_replay_converge_to_the_sums_of_whole_steps(tmp_path, n_step):
    settings: dict[str, Any] = {"algorithm": "dqn", "steps": 450, "capacity": 2000, "gamma": 0.9, "n_step": n_step}
    more: dict[str, Any] = {"utd_ratio": "1", "hidden_sizes": (32,), "learning_rate": 1e-2, "ema_rate": 0.1}
    more |= {"chunk_length": 1, "envs_per_actor": 8}
    run = small_sac(tmp_path / "run", WAITING, **CURIOUS, **{**settings, **more})
    expected = [3 + 0.9 * (3 + 0.9 * 2), 3 + 0.9 * 2, 2]
    values = action_values(run.path, np.array([0, 3, 6]))
    np.testing.assert_allclose(values, np.array(expected)[:, None].repeat(2, axis=1), atol=0.4)


@pytest.mark.parametrize(
    "settings",
    [{"algorithm": "dqn", "prioritized": True, "n_step": 2, "chunk_length": 1}, CORE],
    ids=["dqn", "gru"],
)
@pytest.mark.parametrize("runtime", ["threads", *thorough("processes", "serial")])
def test_a_replay_resumed_in_the_middle_of_waits_and_in_another_runtime_has_the_bits_of_serial(
    tmp_path, settings, runtime
):
    layout: dict[str, Any] = {**CURIOUS, "lag": "exact", "max_ahead": 3, "actors": 2, "batch_size": 24, **settings}
    layout |= {"steps": 100, "warmup": 32, "capacity": 80}
    whole = small_sac(tmp_path / "whole", WAITING, **layout)
    part = small_sac(tmp_path / "part", WAITING, **layout, runtime=runtime, stop_at=61)
    again = resume(part.path, runtime="serial")
    assert again.metrics["updates"] == whole.metrics["updates"] > part.metrics["updates"] > 0
    assert weights_of(again.path) == weights_of(whole.path)


def test_updates_are_due_for_complete_decisions(tmp_path):
    run = small_sac(tmp_path / "run", WAITING, **CURIOUS, algorithm="dqn", chunk_length=1, utd_ratio="1", steps=130)
    for line in lines_of(run.path):
        open_decisions = line["env_steps"] - 64 - line["updates"]
        assert 0 <= open_decisions <= 2 or line["env_steps"] <= 66, "at most one for each env"


@pytest.mark.thorough
def test_a_core_with_a_replay_reads_observations_of_no_decision_rows(tmp_path):
    settings: dict[str, Any] = {"algorithm": "dqn", "core": "gru", "core_size": 16, "chunk_length": 9, "burn_in": 9}
    more: dict[str, Any] = {"steps": 6000, "batch_size": 18 * 9, "warmup": 400, "capacity": 20_000, "utd_ratio": "1/2"}
    run = small_sac(tmp_path / "run", CUE, **CURIOUS, **{**settings, **more, "ema_rate": 0.02, "gamma": 0.9})
    assert run.metrics["episode_return_mean"] > 0.85, "without memory of such moments it is 0.5"
