"""What only the analytic gradients of CrossQ have. Their values are compared in tests/algorithms/test_crossq.py."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.analytic_gradients import OPERATORS
from tests.reference.crossq import new_crossq, set_moments
from tests.reference.sac import perturb
from tests.support.replay_updates import prepared

from offbeat.algorithms.crossq import MOMENTS, CrossQ
from offbeat.algorithms.crossq_config import CrossQConfig
from offbeat.fastpath.crossq_gradients import CrossQGradients
from offbeat.models.mlp import Operators

WIDE = CrossQConfig(hidden_sizes=(70, 65), prioritized=True)


def made(config: CrossQConfig = WIDE, *, renormalized: bool = True) -> CrossQ:
    algorithm = new_crossq("matrix", config)
    perturb(algorithm, 0.05)
    set_moments(algorithm, 0, renormalized=renormalized)
    return algorithm


def gradients(algorithm: CrossQ, threads: int = 1, operators: Operators | None = None) -> CrossQGradients:
    algorithm.most_threads = threads
    return CrossQGradients(algorithm, operators)


def autograd(algorithm: CrossQ, minibatch: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of critics and policy and the moments of the minibatch, by autograd."""
    critic, policy = algorithm.critic_loss(minibatch), algorithm.policy_loss(minibatch)
    for group, result in ((algorithm.critics, critic), (algorithm.policy, policy)):
        group.gradients.zero_()
        assert isinstance(result.loss, torch.Tensor)
        result.loss.backward()
    return algorithm.critics.gradients.clone(), algorithm.policy.gradients.clone(), critic.outputs[MOMENTS]


@pytest.mark.parametrize("operators", OPERATORS, ids=lambda operators: type(operators).__name__)
@pytest.mark.parametrize(("activation", "renormalized"), [("relu", True), ("tanh", False)])
def test_gradients_of_wide_networks_equal_those_of_autograd(operators, activation, renormalized):
    algorithm = made(replace(WIDE, activation=activation, temperature=0.3), renormalized=renormalized)
    fast = gradients(algorithm, 2, operators)
    minibatch = prepared(algorithm, 64, 0, weighted=True)
    critic, policy, moments = autograd(algorithm, minibatch)
    found = fast.critic_gradients(minibatch).outputs[MOMENTS]
    fast.policy_gradients(minibatch)
    for ours, theirs in ((algorithm.critics.gradients, critic), (algorithm.policy.gradients, policy)):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()
    np.testing.assert_allclose(found.numpy(), moments.numpy(), rtol=1e-4, atol=1e-5)


def far_from_zero(mean: float) -> tuple[CrossQ, dict[str, Any]]:
    """Return an algorithm and a minibatch whose observations have about this mean, and deviations of about 1."""
    algorithm = made(replace(WIDE, temperature=0.3), renormalized=False)
    minibatch = dict(prepared(algorithm, 256, 0, weighted=True))
    for name in ("observation", "next_observation"):
        minibatch[name] = minibatch[name] + mean
    inputs = minibatch["observation"].shape[1]
    algorithm.moments.means[0][:, :inputs] += mean
    first = algorithm.spec.layer_names()[0]
    algorithm.policy.layout.views(algorithm.policy.values)[f"{first}.weight"].div_(mean)  # else it would be saturated
    return algorithm, minibatch


def test_the_gradients_of_the_critics_lose_no_digits_where_observations_are_far_from_zero():
    """Far above 1e3 autograd loses some: it rounds the mean of the observations."""
    algorithm, minibatch = far_from_zero(1e3)
    expected, _, _ = autograd(algorithm, minibatch)
    gradients(algorithm).critic_gradients(minibatch)
    assert (algorithm.critics.gradients - expected).norm() <= 1e-5 * expected.norm()


def test_the_gradients_of_the_policy_lose_no_digits_where_observations_are_far_from_zero():
    algorithm, minibatch = far_from_zero(1e4)
    _, expected, _ = autograd(algorithm, minibatch)
    gradients(algorithm).policy_gradients(minibatch)
    assert (algorithm.policy.gradients - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("operators", OPERATORS, ids=lambda operators: type(operators).__name__)
@pytest.mark.parametrize(("rows", "critics"), [(128, 2), (97, 3), (1, 1)])
def test_one_and_two_threads_give_the_same_bits(operators, rows, critics):
    algorithm = made(replace(WIDE, hidden_sizes=(256, 256), critics=critics))
    minibatch = prepared(algorithm, rows, 0, weighted=True)
    results = []
    for threads in (1, 2):
        fast = gradients(algorithm, threads, operators)
        for _ in range(2):
            critic, policy = fast.critic_gradients(minibatch), fast.policy_gradients(minibatch)
            written = [group.gradients.numpy().tobytes() for group in (algorithm.critics, algorithm.policy)]
            outputs = {name: critic.outputs[name].tolist() for name in ("errors", MOMENTS)}
            results.append((*critic[:2], *policy[:2], written, outputs))
    assert all(result == results[0] for result in results[1:])


def test_the_size_of_minibatches_may_change():
    algorithm = made(replace(WIDE, temperature=0.3))
    fast = gradients(algorithm, 2)
    for rows in (5, 12, 5):
        minibatch = prepared(algorithm, rows, rows, weighted=True)
        expected, _, _ = autograd(algorithm, minibatch)
        fast.critic_gradients(minibatch)
        assert (algorithm.critics.gradients - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("size", [1e30, float("inf"), float("nan")])
def test_an_overflow_makes_the_losses_non_finite_without_warnings(size):
    algorithm = made()
    fast = gradients(algorithm, 2)
    algorithm.critics.values.fill_(size)
    algorithm.policy.values.mul_(1e30)
    minibatch = prepared(algorithm, 6, 0, weighted=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses = [float(fast.critic_gradients(minibatch).loss), float(fast.policy_gradients(minibatch).loss)]
    assert not np.isfinite(losses).any()
