"""Moments in which an agent has nothing to decide: no decision is counted there, and nothing earned there is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.runs import begun, lines_of, offbeat, small_arguments, small_run, unrolls_of
from tests.reference.thorough import thorough

from offbeat.config.registry import import_modules
from offbeat.config.resolve import load as load_config
from offbeat.core.types import Tree
from offbeat.envs.contract import Snapshots
from offbeat.envs.make import make_envs
from offbeat.run_directory.checkpoint import load
from offbeat.runtime.runtimes import build

CURIOUS: dict[str, Any] = {"imports": ("tests.reference.curious_envs",)}
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


def test_only_decisions_are_counted_and_returns_include_all_rewards(tmp_path):
    run = small_run(tmp_path / "run", WAITING, **CURIOUS, eval_every=1000, eval_episodes=2)
    last = run.metrics
    assert (last["episode_length_mean"], last["episode_return_mean"]) == (DECISIONS, LENGTH)
    assert (last["eval_length_mean"], last["eval_return_mean"]) == (DECISIONS, LENGTH)
    rows = last["learning_step"] * 4 * 16
    assert last["env_steps"] == pytest.approx(rows * DECISIONS / (LENGTH + 1), abs=8)


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
        **{**CURIOUS, "steps": 8000, "unroll_length": 10, "envs_per_actor": 32, "minibatch_size": 64, "gamma": 0.9},
        **{"learning_rate": 1e-2, "epochs": 4, "hidden_sizes": (32,), "decorrelate": True, **settings},
    )
    ages = np.arange(LENGTH)
    values = values_at(run.path, ages)
    expected = np.array([exact_value(int(age), 0.9) for age in ages])
    np.testing.assert_allclose(values, expected, atol=0.4)


def values_at(run: Path, ages: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return what a run's critic says at each step of an episode."""
    parts = build(load_config(run / "config.toml"))
    saved = load(run / "checkpoints" / "latest")
    assert saved.state is not None
    parts.policy.algorithm.load_weights(saved.weights)
    parts.policy.algorithm.restore(saved.state["learner"]["algorithm"])
    slot = {
        name: torch.zeros(array.shape, dtype=torch.from_numpy(array).dtype) for name, array in batch_of(parts).items()
    }
    slot["observation"][: len(ages), :, 0] = torch.from_numpy(ages.astype(np.float32))[:, None]
    slot["observation"][..., 1] = 0.5
    slot["valid"][:] = True
    prepared = parts.policy.algorithm.prepare(slot)
    normalized = parts.policy.algorithm.passes.values(prepared)
    values = normalized * float(saved.weights["return_std"][0])
    return np.asarray(values.detach().numpy()[: len(ages), 0])


def batch_of(parts: Any) -> Tree:
    return unrolls_of(parts).batch(0)


@pytest.mark.thorough
def test_a_core_reads_observations_of_no_decision_rows(tmp_path):
    settings: dict[str, Any] = {"core": "gru", "core_size": 16, "learning_rate": 1e-2, "unroll_length": 18, "epochs": 4}
    run = small_run(tmp_path / "run", CUE, **{**CURIOUS, **settings, "steps": 12_000, "envs_per_actor": 16})
    assert run.metrics["episode_return_mean"] > 0.9, "without memory of such moments it is 0.5"
    assert max(line["ratio_max_deviation_first"] or 0 for line in lines_of(run.path)) < 1e-4


def test_recomputed_probabilities_equal_those_of_acting():
    parts, acting = begun(CUE, core="lstm", core_size=8, unroll_length=11, imports=CURIOUS["imports"])
    for step in range(4):
        acting.wait(parts.pace.acted_before_learn(step))
        learned = parts.policy.learner.learn(step, 0.0)
        acting.finish(step + 1)
        assert learned.metrics["ratio_max_deviation_first"] < 1e-4
    acting.close()


def test_a_replay_refuses_an_env_with_no_decision_rows_before_any_file_is_created(tmp_path):
    arguments = small_arguments(tmp_path / "run", WAITING, **CURIOUS)
    arguments[1] = "dqn"
    said = offbeat(*arguments[: arguments.index("--set")])
    assert (said.code, (tmp_path / "run").exists()) == (2, False)
    assert "which are not supported with a replay" in said.err
