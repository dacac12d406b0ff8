"""A2C, IMPALA, DQN, TD3 and CrossQ learn: a score within a small budget. PPO's scores are in tests/test_learning.py.

That each algorithm on a replay finds what is rewarded is in test_replay_algorithms.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.thorough import thorough

from offbeat.api.train import train

RANDOM = 22
"""Mean return of a policy that chooses blindly in CartPole-v1."""
SETTINGS: dict[str, Any] = {
    "steps": 24_000,
    "envs_per_actor": 8,
    "unroll_length": 16,
    "learning_rate": 3e-3,
    "gamma": 0.98,
    "eval_every": 0,
    "checkpoint_every": 0,
}


@pytest.mark.parametrize(  # test_policy_gradient.py shows that A2C learns as IMPALA does
    ("algorithm", "max_lag", "seed"),
    [("impala", 1, 1), *thorough(("impala", 1, 2), ("impala", 1, 3), *(("a2c", 0, seed) for seed in (1, 2, 3)))],
)
def test_on_policy_algorithms_balance_cartpole_five_times_as_long_as_a_random_policy(
    tmp_path, algorithm, max_lag, seed
):
    run = train(algorithm, "CartPole-v1", run_dir=tmp_path / "run", seed=seed, max_lag=max_lag, **SETTINGS)
    assert run.metrics["episode_return_mean"] > 5 * RANDOM


@pytest.mark.parametrize("seed", thorough(1, 2))  # tests/test_learning.py has a cheaper score of DQN
def test_dqn_balances_cartpole_in_a_fifth_of_the_env_steps(tmp_path, seed):
    quiet: dict[str, Any] = {"eval_every": 0, "checkpoint_every": 0}
    run = train("dqn", "CartPole-v1", run_dir=tmp_path / "run", seed=seed, steps=8_000, **quiet)
    assert run.metrics["episode_return_mean"] > 2 * RANDOM


PENDULUM: dict[str, Any] = {
    "steps": 3_000,
    "envs_per_actor": 4,
    "warmup": 500,
    "utd_ratio": "1/2",
    "batch_size": 64,
    "hidden_sizes": (64, 64),
    "learning_rate": 3e-3,
    "gamma": 0.9,
    "evaluator": "inline",
    "eval_every": 3_000,
    "eval_episodes": 20,
    "checkpoint_every": 0,
}


@pytest.mark.parametrize("seed", [1, *thorough(2, 3)])
def test_td3_swings_the_pendulum_up(tmp_path, seed):
    """A random policy has -1200, and one that holds the pendulum upright from the start nearly 0."""
    own: dict[str, Any] = {"policy_learning_rate": 1e-3, "ema_rate": 0.05, "exploration_noise": 0.2}
    run = train("td3", "Pendulum-v1", preset="none", run_dir=tmp_path / "run", seed=seed, **PENDULUM, **own)
    assert run.metrics["eval_return_mean"] > -500


@pytest.mark.parametrize("seed", thorough(1, 2, 3))
def test_crossq_swings_the_pendulum_up(tmp_path, seed):
    run = train("crossq", "Pendulum-v1", preset="none", run_dir=tmp_path / "run", seed=seed, **PENDULUM)
    assert run.metrics["eval_return_mean"] > -500
