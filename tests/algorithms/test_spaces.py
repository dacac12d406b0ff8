"""Trees of observations, mixed actions and masks, from env to weights: what can be earned is earned."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from tests.sample_envs.run_envs import Doors, Locks
from tests.support.replay_runs import small_sac
from tests.support.runs import offbeat, small_run
from tests.support.thorough import thorough

ON_POLICY: dict[str, Any] = {"steps": 5_000, "unroll_length": 32, "learning_rate": 1e-2, "hidden_sizes": (32,)}
ONE_PASS: dict[str, Any] = {**ON_POLICY, "steps": 16_000, "normalize_advantages": True}
REPLAYED: dict[str, Any] = {
    "steps": 1_200,
    "utd_ratio": "1",
    "warmup": 400,
    "capacity": 2_000,
    "batch_size": 64,
    "learning_rate": 3e-3,
}


@pytest.mark.parametrize(
    ("algorithm", "kind", "settings"),
    [
        ("ppo", Locks, ON_POLICY),
        *thorough(
            ("sac", Doors, REPLAYED),  # DQN learns it in make test, in chaos/test_hogwild.py
            ("impala", Locks, {**ONE_PASS, "max_lag": 1}),
            ("ppo", Doors, {**ON_POLICY, "max_lag": 1}),
            ("a2c", Locks, ONE_PASS),
        ),
    ],
)
def test_algorithms_learn_the_best_allowed_actions(tmp_path, algorithm, kind, settings: dict[str, Any]):
    """The envs refuse what is not allowed, so a run that took it would fail."""
    env_id = f"runs/{kind.__name__}-v0"
    start = small_sac if algorithm == "sac" else partial(small_run, algorithm=algorithm)
    run = start(tmp_path / "run", env_id, **settings)
    said = offbeat("eval", run.path, "--episodes", 400, "--json")
    assert json.loads(said.out)["return_mean"] == pytest.approx(kind.BEST, abs=0.06)


def test_evaluations_during_training_apply_action_masks_of_infos(tmp_path):
    run = small_run(tmp_path / "run", "runs/Doors-v0", steps=256, eval_every=128)
    assert run.metrics["eval_return_mean"] > 0
