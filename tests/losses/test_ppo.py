from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.reference.ppo import surrogate_row, value_row
from tests.support.thorough import examples

from offbeat.losses.ppo import approx_kl, clipped_surrogate, clipped_value_loss

numbers = st.floats(-3, 3)
clips = st.sampled_from([0.1, 0.2, 0.5])


def rows_of(*columns: st.SearchStrategy[float]) -> st.SearchStrategy[list[tuple[float, ...]]]:
    return st.lists(st.tuples(*columns), min_size=1, max_size=20)


def slope(loss: torch.Tensor, point: torch.Tensor) -> float:
    return torch.autograd.grad(loss.sum(), point)[0].item()


@examples(200)
@given(rows_of(numbers, numbers), clips)
def test_the_surrogate_clips_improvements_but_not_deteriorations(rows, clip):
    log_ratio, advantages = torch.tensor(rows, dtype=torch.float64).unbind(1)
    expected = [surrogate_row(ratio, advantage, clip) for ratio, advantage in rows]
    np.testing.assert_allclose(clipped_surrogate(log_ratio, advantages, clip), expected, atol=1e-12)


@examples(200)
@given(rows_of(numbers, numbers, numbers), clips)
def test_the_value_loss_is_the_larger_of_the_clipped_and_unclipped_errors(rows, clip):
    values, proximal_values, targets = torch.tensor(rows, dtype=torch.float64).unbind(1)
    expected = [value_row(value, proximal, target, clip) for value, proximal, target in rows]
    loss = clipped_value_loss(values, proximal_values, targets, clip)
    np.testing.assert_allclose(loss, expected, atol=1e-12)


@examples(200)
@given(numbers, numbers, clips)
def test_the_gradient_of_the_surrogate_agrees_with_finite_differences(log_ratio, advantage, clip):
    assume(min(abs(log_ratio - log(1 + clip)), abs(log_ratio - log(1 - clip)), abs(advantage)) > 1e-3)
    point = torch.tensor([log_ratio], dtype=torch.float64, requires_grad=True)
    loss = clipped_surrogate(point, torch.tensor([advantage], dtype=torch.float64), clip)
    ahead, behind = (surrogate_row(log_ratio + step, advantage, clip) for step in (1e-6, -1e-6))
    assert slope(loss, point) == pytest.approx((ahead - behind) / 2e-6, rel=1e-4, abs=1e-6)


@examples(200)
@given(numbers, numbers, numbers, clips)
def test_the_gradient_of_the_value_loss_agrees_with_finite_differences(value, proximal, target, clip):
    held = min(max(value, proximal - clip), proximal + clip)
    assume(abs(abs(value - proximal) - clip) > 1e-3)
    assume(held == value or abs((value - target) ** 2 - (held - target) ** 2) > 1e-3)
    point = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    fixed = torch.tensor([[proximal], [target]], dtype=torch.float64)
    loss = clipped_value_loss(point, fixed[0], fixed[1], clip)
    ahead, behind = (value_row(value + step, proximal, target, clip) for step in (1e-6, -1e-6))
    assert slope(loss, point) == pytest.approx((ahead - behind) / 2e-6, rel=1e-4, abs=1e-6)


def test_the_gradient_of_the_first_update_is_the_policy_gradient():
    log_ratio = torch.zeros(3, requires_grad=True)
    advantages = torch.tensor([1.0, -2.0, 0.5])
    (gradient,) = torch.autograd.grad(clipped_surrogate(log_ratio, advantages, 0.2).sum(), log_ratio)
    torch.testing.assert_close(gradient, -advantages)


def test_approx_kl_is_unbiased():
    proximal, target = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.2, 0.7, 0.1]).double()
    drawn = torch.repeat_interleave(torch.arange(3), torch.tensor([5, 3, 2]))
    estimate = approx_kl((target / proximal).log()[drawn])
    assert estimate.item() == pytest.approx((proximal * (proximal / target).log()).sum().item())


def test_approx_kl_of_tiny_changes_is_not_lost_to_rounding():
    log_ratio = torch.full((8,), 1e-3)
    assert approx_kl(log_ratio).item() == pytest.approx(0.5e-6, rel=1e-2)


def test_approx_kl_has_no_gradient():
    assert not approx_kl(torch.tensor([0.1, -0.2], requires_grad=True)).requires_grad


def test_mismatched_shapes_are_refused_with_their_names():
    row, longer, square = torch.zeros(2), torch.zeros(3), torch.zeros(2, 2)
    with pytest.raises(ValueError, match=r"log_ratio \[2\], advantages \[3\].*\[M\]"):
        clipped_surrogate(row, longer, 0.2)
    with pytest.raises(ValueError, match=r"targets \[3\].*\[M\]"):
        clipped_value_loss(row, row, longer, 0.2)
    with pytest.raises(ValueError, match=r"\[2, 2\].*\[M\]"):
        approx_kl(square)
