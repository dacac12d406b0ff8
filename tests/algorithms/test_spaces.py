"""Trees of observations, mixed actions and masks, from env to weights: what can be earned is earned."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.reference.replay_runs import small_sac
from tests.reference.run_envs import Doors, Locks
from tests.reference.runs import small_run

import offbeat
from offbeat.envs.make import make_envs
from offbeat.workers.evaluator import evaluate

ON_POLICY: dict[str, Any] = {"steps": 8_000, "unroll_length": 32, "learning_rate": 1e-2, "hidden_sizes": (32,)}
ONE_PASS: dict[str, Any] = {**ON_POLICY, "steps": 16_000, "normalize_advantages": True}
REPLAYED: dict[str, Any] = {"steps": 1_200, "warmup": 400, "capacity": 2_000, "batch_size": 64, "learning_rate": 3e-3}


@pytest.mark.parametrize(
    ("algorithm", "kind", "settings"),
    [
        ("ppo", Locks, ON_POLICY),
        ("ppo", Doors, {**ON_POLICY, "max_lag": 1}),
        ("a2c", Locks, ONE_PASS),
        ("impala", Locks, {**ONE_PASS, "max_lag": 1}),
        ("sac", Doors, REPLAYED),
    ],
)
def test_the_best_of_what_is_allowed_is_learned(tmp_path, algorithm, kind, settings: dict[str, Any]):
    """The envs refuse what is not allowed, so a run that took it would fail."""
    env_id = f"runs/{kind.__name__}-v0"
    start = small_sac if algorithm == "sac" else partial(small_run, algorithm=algorithm)
    run = start(tmp_path / "run", env_id, **settings)
    policy = offbeat.load(run.path).policy
    envs = make_envs(env_id, 32, seed=7, role="test", info_mask=policy.spec.info_mask)
    earned = evaluate(policy, envs, episodes=400, seed=7).return_mean
    assert earned == pytest.approx(kind.BEST, abs=0.06)
