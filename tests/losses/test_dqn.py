from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import dqn as slow
from tests.support.thorough import examples
from torch import Tensor

from offbeat.losses import dqn

seeds, rows, choices = st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 5)


def drawn(seed: int, *shape: int) -> Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@examples(60)
@given(seeds, rows, choices, st.booleans())
def test_targets_equal_those_computed_for_one_transition_at_a_time(seed, m, n, double):
    reward, discount = drawn(seed, 2, m)
    following = drawn(seed + 1, m, n)
    choosing = drawn(seed + 2, m, n) if double else following
    ours = dqn.q_targets(reward, discount, following, choosing)
    lists = (column.tolist() for column in (reward, discount, following, choosing))
    expected = [slow.target(*row) for row in zip(*lists, strict=True)]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float64))


@examples(60)
@given(seeds, rows, st.booleans())
def test_the_loss_equals_that_computed_for_one_transition_at_a_time(seed, m, weighted):
    values, targets, weights = drawn(seed, 3, m)
    weights = weights.abs()
    ours = dqn.q_loss(values, targets, weights if weighted else None)
    used = (weights if weighted else torch.ones(m)).tolist()
    expected = [slow.loss_row(*row) for row in zip(values.tolist(), targets.tolist(), used, strict=True)]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float64))


def test_the_gradient_of_the_loss_is_the_td_error_clipped_to_one():
    values = torch.tensor([0.5, -0.25, 3.0, -70.0], requires_grad=True)
    dqn.q_loss(values, torch.zeros(4)).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [0.5, -0.25, 1.0, -1.0]


def test_double_dqn_selects_with_one_network_and_evaluates_with_the_other():
    following, choosing = torch.tensor([[9.0, 1.0]]), torch.tensor([[0.0, 2.0]])
    ones = torch.ones(1)
    assert dqn.q_targets(ones, ones, following, following).item() == 10
    assert dqn.q_targets(ones, ones, following, choosing).item() == 2


def test_targets_have_no_gradient():
    values, ones = torch.ones(2, 3, requires_grad=True), torch.ones(2)
    assert not dqn.q_targets(ones, ones, values, values).requires_grad


M, VALUES = torch.zeros(3), torch.zeros(3, 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: dqn.q_targets(M, M[:2], VALUES, VALUES),
        lambda: dqn.q_targets(M, M, M, M),
        lambda: dqn.q_targets(M, M, VALUES.T, VALUES.T),
        lambda: dqn.q_targets(M, M, VALUES, VALUES[:, :1]),
        lambda: dqn.q_loss(VALUES, VALUES),
        lambda: dqn.q_loss(M, M[:1]),
        lambda: dqn.q_loss(M, M, M[:1]),
    ],
)
def test_mismatched_shapes_are_refused(call):
    with pytest.raises(ValueError, match="is expected"):
        call()
