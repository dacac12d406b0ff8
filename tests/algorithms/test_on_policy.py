"""What holds of PPO, A2C and IMPALA alike. What is only theirs is in test_ppo.py and test_policy_gradient.py."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.compiled import KERNELS
from tests.support.models import policy_spec
from tests.support.update_rows import bench, perturb, random_minibatch

from offbeat.algorithms.a2c import A2CConfig
from offbeat.algorithms.impala import IMPALAConfig
from offbeat.algorithms.on_policy import ACTOR_CRITIC
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.ppo import PPOConfig

SAME: dict[str, Any] = {"hidden_sizes": (6, 5), "learning_rate": 0.01, "learning_rate_schedule": "constant"}
SAME |= {"normalize_observations": True, "normalize_returns": True}
PPO = PPOConfig(**SAME, epochs=2, minibatch_size=13, clip_reference="proximal")
A2C, IMPALA = A2CConfig(**SAME), IMPALAConfig(**SAME)
EACH_LAG = pytest.mark.parametrize(
    ("small", "max_lag"), [(PPO, 0), (PPO, 1), (A2C, 1), (IMPALA, 0)], ids=["ppo-0", "ppo-1", "a2c-1", "impala-0"]
)


@EACH_LAG
def test_learning_uses_nothing_of_a_reset_row_except_its_observation(small: OnPolicyConfig, max_lag: int) -> None:
    left, right = bench(small, max_lag=max_lag), bench(small, max_lag=max_lag)
    for side in (left, right):
        batch = side.fill(0, seed=11)
        if side is right:
            resets = ~batch["valid"]
            assert resets[:-1].sum() > 3
            batch["reward"][resets] = batch["behavior_log_prob"][resets] = np.nan
            batch["action"][resets] = 2
        assert side.learner.learn(0, 0.0).refused == 0
    np.testing.assert_array_equal(left.parameters, right.parameters)
    np.testing.assert_array_equal(left.weights.read(1), right.weights.read(1))


@EACH_LAG
def test_a_batch_without_valid_rows_makes_no_update(small: OnPolicyConfig, max_lag: int) -> None:
    side = bench(small, max_lag=max_lag)
    batch = side.fill(0, seed=11)
    batch["valid"][...] = batch["terminated"][...] = batch["truncated"][...] = False
    before, published = side.parameters, side.weights.read(0).copy()
    learned = side.learner.learn(0, 0.0)
    assert (learned.env_steps, learned.updates) == (0, 0)
    np.testing.assert_array_equal(side.parameters, before)
    np.testing.assert_array_equal(side.weights.read(1), published)


@pytest.mark.parametrize(
    ("small", "action"),
    [(PPO, "discrete"), (PPO, "multidiscrete"), (A2C, "box"), (IMPALA, "box")],
    ids=["ppo-discrete", "ppo-multidiscrete", "a2c-box", "impala-box"],
)
def test_weights_and_state_restore_training_in_a_new_model(small: OnPolicyConfig, action: str) -> None:
    side, other = bench(small, action), bench(small, action)
    side.fill(0, seed=11)
    side.learner.learn(0, 0.0)
    perturb(other.algorithm, 1.0, seed=9)
    other.algorithm.load_weights({name: array.copy() for name, array in side.algorithm.weights().items()})
    other.learner.restore(side.learner.state())
    for one in (side, other):
        one.learner.publish(1)
        one.fill(1, seed=12)
        one.learner.learn(1, 0.5)
    np.testing.assert_array_equal(side.parameters, other.parameters)
    np.testing.assert_array_equal(side.weights.read(2), other.weights.read(2))


@pytest.mark.parametrize("small", [PPO, A2C, IMPALA], ids=["ppo", "a2c", "impala"])
@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [0.01, 0.01, 0.01, 0.01]),
        ("linear", [0.01, 0.0075, 0.0, 0.0]),
        ("0:1 0.5:0.1 1:0.2", [0.01, 0.0055, 0.002, 0.002]),
    ],
)
def test_the_learning_rate_follows_its_schedule(small: Any, schedule: str, rates: list[float]) -> None:
    algorithm = bench(replace(small, learning_rate_schedule=schedule)).algorithm
    assert [algorithm.start(progress)[ACTOR_CRITIC] for progress in (0.0, 0.25, 1.0, 1.5)] == pytest.approx(rates)


@pytest.mark.parametrize("small", [PPO, A2C, IMPALA], ids=["ppo", "a2c", "impala"])
@pytest.mark.parametrize(
    ("schedule", "coef"), [("constant", 0.4), ("linear", 0.1), ("0:1 0.5:0.5 1:0", 0.1), ("0:1 0.5:0", 0.0)]
)
@KERNELS
def test_the_weight_of_the_entropy_follows_its_schedule(small, schedule, coef, kernels):
    changes = {"entropy_coef": 0.4, "entropy_coef_schedule": schedule, "kernels": kernels}
    algorithm = bench(replace(small, **changes)).algorithm
    minibatch = random_minibatch(algorithm, policy_spec("discrete"), 40, 0)
    algorithm.start(0.75)
    [stage] = algorithm.stages
    assert stage.gradients is not None
    with torch.no_grad():
        results = stage.loss(minibatch), stage.gradients(minibatch)
    for loss, metrics, _ in results:
        others = metrics["policy_loss"] + small.value_coef * metrics["value_loss"]
        assert float((others - loss) / metrics["entropy"]) == pytest.approx(coef, abs=1e-5)


@pytest.mark.parametrize("small", [PPO, A2C, IMPALA], ids=["ppo", "a2c", "impala"])
def test_the_analytic_gradients_have_the_scheduled_weight_of_the_entropy(small):
    gradients = []
    for changes in ({"entropy_coef": 0.4, "entropy_coef_schedule": "0:1 0.5:0.5"}, {"entropy_coef": 0.2}):
        algorithm = bench(replace(small, **changes)).algorithm
        minibatch = random_minibatch(algorithm, policy_spec("discrete"), 40, 0)
        algorithm.start(0.75)
        [stage] = algorithm.stages
        assert stage.gradients is not None
        stage.gradients(minibatch)
        gradients.append(algorithm.groups[ACTOR_CRITIC].parameters.gradients.clone())
    assert torch.equal(*gradients)


@pytest.mark.parametrize("small", [PPOConfig(), PPOConfig(epochs=1), A2CConfig(), IMPALAConfig()])
@pytest.mark.parametrize("action", ["discrete", "multidiscrete"])  # with analytic gradients, and with autograd alone
def test_a_loss_changes_neither_its_minibatch_nor_the_algorithm(small, action):
    side = bench(replace(small, hidden_sizes=(4,), normalize_observations=True), action, max_lag=1)
    algorithm = side.algorithm
    batch = algorithm.prepare({name: torch.from_numpy(array) for name, array in side.fill(0, seed=11).items()})
    minibatch = next(iter(algorithm.minibatches(batch, np.random.default_rng(0))))
    names, rows = set(batch), {name: copy.deepcopy(value) for name, value in minibatch.items()}
    counters, state = counters_of(algorithm), copy.deepcopy(algorithm.state())
    first, second = algorithm.loss(minibatch), algorithm.loss(minibatch)
    assert first.loss == second.loss
    assert first.metrics == second.metrics
    assert set(batch) == names
    assert counters_of(algorithm) == counters
    np.testing.assert_equal(algorithm.state(), state)
    assert minibatch.keys() == rows.keys()
    assert all(row is None if rows[name] is None else torch.equal(row, rows[name]) for name, row in minibatch.items())


def counters_of(algorithm: object) -> dict[str, Any]:
    """Return copies of an algorithm's attributes that are plain values."""
    return {name: copy.copy(value) for name, value in vars(algorithm).items() if isinstance(value, float | list | None)}
