from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import sac as slow
from tests.support.thorough import examples
from torch import Tensor

from offbeat.losses import sac

seeds = st.integers(0, 2**32 - 1)
rows = st.integers(1, 6)
ensembles = st.integers(1, 4)
temperatures = st.sampled_from([0.0, 0.2, 3.0])


def drawn(seed: int, *shape: int) -> Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def log_probs_of(seed: int, m: int, n: int) -> Tensor:
    return torch.log_softmax(drawn(seed, m, n), dim=1)


def by_row(function: Callable[..., float], *columns: Tensor, alpha: float) -> Tensor:
    """Call `function` with the numbers of each row."""
    lists = (column.tolist() for column in columns)
    return torch.tensor([function(*row, alpha) for row in zip(*lists, strict=True)], dtype=torch.float64)


@examples(60)
@given(seeds, rows, ensembles, temperatures)
def test_targets_equal_those_computed_for_one_transition_at_a_time(seed, m, e, alpha):
    reward, discount, log_prob = drawn(seed, 3, m)
    values = drawn(seed + 1, e, m)
    ours = sac.soft_targets(reward, discount, values, log_prob, torch.tensor(alpha))
    torch.testing.assert_close(ours, by_row(slow.target, reward, discount, values.T, log_prob, alpha=alpha))


@examples(60)
@given(seeds, rows, ensembles, temperatures)
def test_the_policy_loss_equals_that_computed_for_one_transition_at_a_time(seed, m, e, alpha):
    log_prob, values = drawn(seed, m), drawn(seed + 1, e, m)
    ours = sac.policy_loss(log_prob, values, torch.tensor(alpha))
    torch.testing.assert_close(ours, by_row(slow.policy_row, log_prob, values.T, alpha=alpha))


@examples(60)
@given(seeds, rows, ensembles, st.integers(1, 5), temperatures)
def test_discrete_targets_and_losses_are_expectations_over_actions(seed, m, e, n, alpha):
    log_probs, values = log_probs_of(seed, m, n), drawn(seed + 1, e, m, n)
    reward, discount = drawn(seed + 2, 2, m)
    by_transition = values.transpose(0, 1)
    targets = sac.discrete_soft_targets(reward, discount, values, log_probs, torch.tensor(alpha))
    torch.testing.assert_close(
        targets, by_row(slow.discrete_target, reward, discount, by_transition, log_probs, alpha=alpha)
    )
    loss = sac.discrete_policy_loss(log_probs, values, torch.tensor(alpha))
    torch.testing.assert_close(loss, by_row(slow.discrete_policy_row, log_probs, by_transition, alpha=alpha))


@examples(30)
@given(seeds, rows, st.integers(1, 5))
def test_the_entropy_is_the_expected_negative_log_probability(seed, m, n):
    log_probs = log_probs_of(seed, m, n)
    expected = [slow.expected(row, [-log_prob for log_prob in row]) for row in log_probs.tolist()]
    torch.testing.assert_close(sac.entropy_of(log_probs), torch.tensor(expected, dtype=torch.float64))


def test_actions_of_zero_probability_add_nothing_to_entropy_loss_and_targets():
    log_probs, values = torch.tensor([[0.0, -200.0]]), torch.tensor([[[1.0, 7e5]]])
    assert sac.entropy_of(log_probs).item() == 0
    assert sac.discrete_policy_loss(log_probs, values, torch.tensor(0.5)).item() == -1
    targets = sac.discrete_soft_targets(torch.ones(1), torch.ones(1), values, log_probs, torch.tensor(0.5))
    assert targets.item() == 2


def test_the_optimal_discrete_policy_is_the_softmax_of_the_values():
    values = torch.tensor([[1.0, 0.2, -0.5]])
    logits = (values / 0.3).requires_grad_()
    sac.discrete_policy_loss(torch.log_softmax(logits, 1), values.unsqueeze(0), torch.tensor(0.3)).sum().backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-6


def test_targets_and_entropy_have_no_gradient():
    values, log_prob, log_probs = drawn(0, 2, 3), drawn(1, 3), log_probs_of(2, 3, 2)
    values.requires_grad_(), log_prob.requires_grad_(), log_probs.requires_grad_()
    reward, alpha = torch.zeros(3, dtype=torch.float64), torch.tensor(1.0)
    assert not sac.soft_targets(reward, reward, values, log_prob, alpha).requires_grad
    by_choice = torch.stack([values, values], dim=2)
    assert not sac.discrete_soft_targets(reward, reward, by_choice, log_probs, alpha).requires_grad
    log_alpha = torch.zeros((), requires_grad=True)
    sac.temperature_loss(log_alpha, -log_prob, 0.0).mean().backward()
    assert log_prob.grad is None


def test_the_policy_loss_uses_only_the_smallest_critic():
    values = torch.tensor([[1.0, 5.0], [2.0, 3.0]], requires_grad=True)
    sac.policy_loss(torch.zeros(2), values, torch.tensor(1.0)).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[-1, 0], [0, -1]]


@pytest.mark.parametrize(("entropy", "slope"), [(1.5, 1.0), (-0.5, -1.0), (0.5, 0.0)])
def test_the_temperature_falls_while_the_entropy_is_above_its_target(entropy, slope):
    log_alpha = torch.tensor(math.log(0.3), requires_grad=True)
    loss = sac.temperature_loss(log_alpha, torch.full((4,), entropy), 0.5)
    loss.mean().backward()
    assert log_alpha.grad is not None
    assert log_alpha.grad.item() == pytest.approx(slope)
    torch.testing.assert_close(loss.detach(), torch.full((4,), math.log(0.3) * slope))
    mean = sac.temperature_loss(log_alpha, entropy, 0.5)
    torch.testing.assert_close(mean, loss.mean())


M, VALUES, CHOICES = torch.zeros(3), torch.zeros(2, 3), torch.zeros(2, 3, 4)
ALPHA = torch.tensor(1.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sac.soft_targets(M, M[:2], VALUES, M, ALPHA),
        lambda: sac.soft_targets(M, M, VALUES, M[:, None], ALPHA),
        lambda: sac.soft_targets(M, M, VALUES.T, M, ALPHA),
        lambda: sac.soft_targets(M, M, CHOICES, M, ALPHA),
        lambda: sac.soft_targets(M, M, VALUES[:0], M, ALPHA),
        lambda: sac.policy_loss(M, M, ALPHA),
        lambda: sac.policy_loss(VALUES, VALUES, ALPHA),
        lambda: sac.discrete_soft_targets(M, M, CHOICES, CHOICES[0].T, ALPHA),
        lambda: sac.discrete_soft_targets(M, M, VALUES, M, ALPHA),
        lambda: sac.discrete_soft_targets(M[:1], M[:1], CHOICES, CHOICES[0], ALPHA),
        lambda: sac.discrete_policy_loss(CHOICES[0], CHOICES[0], ALPHA),
        lambda: sac.discrete_policy_loss(M, VALUES, ALPHA),
    ],
)
def test_mismatched_shapes_are_refused(call):
    with pytest.raises(ValueError, match="is expected"):
        call()
