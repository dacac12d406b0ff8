"""A2C and IMPALA: what they do with the plain policy gradient. What they share with PPO is in test_on_policy.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.update import Network, Twin, observation_of
from tests.support.thorough import thorough
from tests.support.update_rows import Bench, bench

from offbeat.algorithms.a2c import A2CConfig
from offbeat.algorithms.impala import IMPALAConfig
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.core.seeding import stream
from offbeat.core.types import Tree

SAME: dict[str, Any] = {"hidden_sizes": (6, 5), "learning_rate": 0.01, "learning_rate_schedule": "constant"}
SMALL_A2C, SMALL_IMPALA = A2CConfig(**SAME), IMPALAConfig(**SAME)
BOTH = pytest.mark.parametrize("small", [SMALL_A2C, SMALL_IMPALA], ids=["a2c", "impala"])
NORMALIZED: dict[str, Any] = {"normalize_observations": True, "normalize_returns": True}


# --- a whole learning step, against a slow twin -------------------------------------------------------------

SETTINGS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "discrete": ("discrete", 0, {}),
    "discrete, lagging": ("discrete", 2, {**NORMALIZED, "rho_clip": 1.2, "c_clip": 0.9, "max_grad_norm": 0.05}),
    "discrete, shared, symmetric KL": ("discrete", 1, {"shared_trunk": True, "exploration": "symmetric_kl"}),
    "discrete, tightly clipped": ("discrete", 0, {"rho_clip": 0.5, "c_clip": 0.7}),
    "Gaussian, normalised": ("matrix", 0, {**NORMALIZED, "normalize_advantages": True, "gae_lambda": 0.8}),
    "Gaussian, lagging": ("box", 1, {"value_coef": 2.0, "entropy_coef": 0.0, "activation": "relu"}),
    "squashed, lagging": ("box", 1, {"action_distribution": "squashed", "gae_lambda": 0.9}),
    "several components": ("multidiscrete", 0, {"hidden_sizes": ()}),
    "a tree, masked, lagging": ("tree", 1, NORMALIZED),
}
OF_IMPALA = ("discrete", "discrete, lagging", "discrete, tightly clipped")
"""Where it weighs rows in another way than A2C."""


@pytest.mark.parametrize(
    ("small", "name"),
    [
        *((SMALL_A2C, name) for name in SETTINGS),
        *((SMALL_IMPALA, name) for name in OF_IMPALA),
        *thorough(*((SMALL_IMPALA, name) for name in SETTINGS if name not in OF_IMPALA)),
    ],
)
def test_learning_steps_equal_those_of_a_plain_loop_over_rows(small, name):
    action, max_lag, changes = SETTINGS[name]
    config = replace(small, **changes)
    side = bench(config, action, max_lag=max_lag, observation=observation_of(name, action))
    weights = {key: array.copy() for key, array in side.algorithm.weights().items()}
    network = Network(side.spec, weights, shared=config.shared_trunk)
    twin = Twin(config, network, corrected=max_lag > 0, weighs=max_lag > 0 or isinstance(config, IMPALAConfig))
    for step in range(max_lag + 2):  # the last step learns from rows that other weights acted
        batch = side.fill(step, seed=11)
        learned = side.learner.learn(step, progress=0.0)
        [norm] = twin.learn(batch, config.learning_rate, stream(5, "learn", step))
        assert learned.updates == 1
        assert learned.metrics["grad_norm"] == pytest.approx(norm, rel=1e-3)
    for key in weights.keys() - {"observation_mean", "observation_scale", "return_unit"}:
        learned_array = side.algorithm.weights()[key]
        assert np.abs(learned_array - weights[key]).max() > config.learning_rate / 4, f"{key} did not learn"
        np.testing.assert_allclose(
            learned_array, network.array(key), rtol=0, atol=0.02 * config.learning_rate, err_msg=key
        )


# --- how the two differ -------------------------------------------------------------------------------------


def learned_from_lagging_rows(config: OnPolicyConfig, max_lag: int) -> Bench:
    side = bench(config, max_lag=max_lag)
    for step in range(max_lag + 2):
        side.fill(step, seed=11)
        side.learner.learn(step, 0.0)
    return side


@pytest.mark.parametrize("max_lag", [0, 1])
def test_impala_with_the_papers_clips_is_a2c_at_any_lag(max_lag):
    left, right = (learned_from_lagging_rows(small, max_lag) for small in (SMALL_A2C, SMALL_IMPALA))
    np.testing.assert_allclose(left.parameters, right.parameters, rtol=0, atol=1e-4)


def test_without_lag_impala_applies_importance_weights_and_a2c_does_not():
    left, right = (learned_from_lagging_rows(replace(small, rho_clip=0.2), 0) for small in (SMALL_A2C, SMALL_IMPALA))
    assert np.abs(left.parameters - right.parameters).max() > 1e-3


# --- figures ------------------------------------------------------------------------------------------------

REPORTED = {
    "policy_loss",
    "value_loss",
    "entropy",
    "explained_variance",
    "effective_sample_size",
    "ratio_mean",
    "clip_fraction",
    "grad_norm",
    "learning_rate",
}


@BOTH
@pytest.mark.parametrize("action", ["discrete", "multidiscrete"])  # with analytic gradients, and with autograd
def test_autograd_and_the_fast_path_report_the_same_metrics(small, action):
    side = bench(small, action)
    side.fill(0, seed=11)
    metrics = side.learner.learn(0, 0.0).metrics
    assert {name for name in metrics if not name.startswith("policy_lag")} == REPORTED
    assert (metrics["ratio_mean"], metrics["clip_fraction"], metrics["effective_sample_size"]) == (1, 0, 1)


def behavior_and_target_log_prob(side: Bench, batch: Tree) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the valid rows, before the learning step."""
    valid = torch.from_numpy(batch["valid"][:-1])
    observation = torch.from_numpy(batch["observation"][:-1])[valid]
    with torch.no_grad():
        distribution, _ = side.algorithm.network.distribution_and_values(observation)
        target = distribution.log_prob(torch.from_numpy(batch["action"][:-1])[valid])
    return torch.from_numpy(batch["behavior_log_prob"][:-1])[valid], target


@BOTH
def test_the_reported_ratio_is_the_importance_weight_of_vtrace(small):
    side = bench(replace(small, learning_rate=0.1, rho_clip=1.1), max_lag=1)
    batches = [side.fill(step, seed=11) for step in range(2)]
    first = side.learner.learn(0, 0.0).metrics
    behavior, target = behavior_and_target_log_prob(side, batches[1])
    second = side.learner.learn(1, 0.0).metrics
    ratio = (target - behavior).exp()
    assert first["ratio_mean"] == pytest.approx(1, abs=1e-5)
    assert first["clip_fraction"] == 0
    assert second["ratio_mean"] == pytest.approx(ratio.mean().item(), rel=1e-4)
    assert second["clip_fraction"] == pytest.approx((ratio > 1.1).float().mean().item())
    assert 0.05 < second["clip_fraction"] < 0.95
    assert second["effective_sample_size"] < 0.99


@BOTH
def test_rounding_errors_clip_no_row(small):
    algorithm = bench(small, max_lag=1).algorithm
    just_above = torch.tensor([0.0, 1e-6, 5e-6, 1e-2])
    assert float(algorithm.ratio_metrics(just_above)["clip_fraction"]) == 0.25


# --- settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["a2c", "impala"])
@pytest.mark.parametrize(
    "assignment",
    [("clip", "0.2"), ("epochs", "4"), ("minibatch_size", "64"), ("kl_target", "0.1"), ("value_clip", "0.2")],
    ids=lambda assignment: assignment[0],
)
def test_settings_of_ppo_are_unknown_to_a2c_and_impala(algorithm, assignment):
    with pytest.raises(ConfigError, match=assignment[0]):
        resolve(algorithm, "CartPole-v1", assignments=dict([assignment]))


@pytest.mark.parametrize("algorithm", ["a2c", "impala"])
def test_a_learning_rate_that_adapts_to_the_kl_is_refused(algorithm):
    with pytest.raises(ConfigError, match=r"learning_rate_schedule.*constant"):
        resolve(algorithm, "CartPole-v1", assignments={"learning_rate_schedule": "kl"})
