from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.thorough import examples

from offbeat.losses.actor_critic import (
    effective_sample_size,
    explained_variance,
    normalized_advantages,
    policy_gradient_loss,
    squared_value_loss,
)

numbers = st.floats(-3, 3)
VALUES = torch.linspace(-3.0, 2.0, 64)


@examples(100)
@given(st.lists(st.tuples(st.floats(0.01, 0.99), numbers), min_size=1, max_size=20))
def test_the_policy_loss_is_small_for_a_probable_action_of_positive_advantage(rows):
    probability, advantages = torch.tensor(rows, dtype=torch.float64).unbind(1)
    expected = [-advantage * log(p) for p, advantage in rows]
    np.testing.assert_allclose(policy_gradient_loss(probability.log(), advantages), expected, atol=1e-12)


def test_the_gradient_of_the_policy_loss_is_the_score_weighted_by_the_advantage():
    logits = torch.tensor([[0.3, -0.2, 1.0]], dtype=torch.float64, requires_grad=True)
    log_prob = torch.log_softmax(logits, dim=1)[:, 1]
    policy_gradient_loss(log_prob, torch.tensor([2.0], dtype=torch.float64)).sum().backward()
    score = torch.tensor([0.0, 1.0, 0.0]) - torch.softmax(logits.detach(), dim=1)[0]
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad[0], -2 * score)


@examples(100)
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20))
def test_the_value_loss_is_half_the_squared_error_and_its_gradient_the_error(rows):
    drawn = torch.tensor(rows, dtype=torch.float64)
    values, targets = drawn[:, 0].clone().requires_grad_(), drawn[:, 1]
    loss = squared_value_loss(values, targets)
    np.testing.assert_allclose(loss.detach(), [(v - target) ** 2 / 2 for v, target in rows], atol=1e-12)
    (gradient,) = torch.autograd.grad(loss.sum(), values)
    torch.testing.assert_close(gradient, (values - targets).detach())


@pytest.mark.parametrize("unit", [1.0, 1e-4])
def test_normalized_advantages_have_mean_0_and_standard_deviation_1_in_any_unit(unit):
    result = normalized_advantages(unit * torch.tensor([1.0, 5.0, -3.0, 40.0]).double())
    assert result.mean().item() == pytest.approx(0, abs=1e-12)
    assert result.square().mean().item() == pytest.approx(1, rel=1e-4)
    assert torch.equal(result.argsort(), torch.tensor([2, 0, 1, 3]))


@pytest.mark.parametrize("rows", [[2.0], [2.0, 2.0, 2.0]])
def test_advantages_that_are_all_equal_become_zero_and_not_nan(rows):
    assert normalized_advantages(torch.tensor(rows)).tolist() == [0.0] * len(rows)


def test_normalized_advantages_whose_variance_overflows_are_nan_and_not_zero():
    assert normalized_advantages(torch.tensor([1e25, 2e25])).isnan().all()
    assert normalized_advantages(torch.tensor([1e18, 2e18])).tolist() == pytest.approx([-1, 1])


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [([1, 1, 1, 1], 1.0), ([3, 3], 1.0), ([1, 3], 16 / 20), ([1e-30, 1, 1e-30, 1e-30], 0.25)],
)
def test_effective_sample_size_is_the_fraction_of_kish(ratios, expected):
    assert effective_sample_size(torch.tensor(ratios).log()).item() == pytest.approx(expected)


def test_effective_sample_size_is_finite_for_overflowing_ratios():
    assert effective_sample_size(torch.tensor([500.0, 500.0])).item() == pytest.approx(1.0)


def test_explained_variance_is_1_for_perfect_values_0_for_a_constant_and_negative_for_worse():
    targets = torch.tensor([1.0, 2.0, 6.0])
    assert explained_variance(targets + 7, targets).item() == pytest.approx(1)
    assert explained_variance(torch.ones(3), targets).item() == pytest.approx(0)
    assert explained_variance(-targets, targets).item() == pytest.approx(-3)


@pytest.mark.parametrize(
    "targets",
    [
        torch.ones(64),
        torch.full((64,), 0.1),  # its mean is rounded
        VALUES + (1 - VALUES),
    ],
)
def test_explained_variance_of_targets_that_are_constant_but_for_rounding_is_nan(targets):
    assert explained_variance(VALUES, targets).isnan()


def test_metrics_have_no_gradient():
    log_ratio = torch.tensor([0.1, -0.2], requires_grad=True)
    figures = [normalized_advantages(log_ratio), effective_sample_size(log_ratio)]
    figures.append(explained_variance(log_ratio, log_ratio))
    assert not any(figure.requires_grad for figure in figures)


def test_mismatched_shapes_are_refused_with_their_names():
    row, longer, square = torch.zeros(2), torch.zeros(3), torch.zeros(2, 2)
    with pytest.raises(ValueError, match=r"log_prob \[2\], advantages \[3\].*\[M\]"):
        policy_gradient_loss(row, longer)
    with pytest.raises(ValueError, match=r"targets \[3\].*\[M\]"):
        squared_value_loss(row, longer)
    with pytest.raises(ValueError, match=r"targets \[3\].*\[M\]"):
        explained_variance(row, longer)
    for function in (normalized_advantages, effective_sample_size):
        with pytest.raises(ValueError, match=r"\[2, 2\].*\[M\]"):
            function(square)
    with pytest.raises(ValueError, match="log_ratio has no rows"):
        effective_sample_size(torch.zeros(0))
