from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import td3 as slow
from tests.support.thorough import examples
from torch import Tensor

from offbeat.losses import td3

seeds = st.integers(0, 2**32 - 1)
rows = st.integers(1, 6)
M, VALUES, ACTIONS = torch.zeros(3), torch.zeros(2, 3), torch.zeros(3, 2)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@examples(60)
@given(seeds, rows, st.integers(1, 4), st.sampled_from([0.0, 0.2, 1.0]), st.sampled_from([0.0, 0.1, 0.5]))
def test_smoothed_actions_equal_those_computed_for_one_component_at_a_time(seed, m, size, std, clip):
    actions, noise = drawn(seed, m, size).tanh(), 3 * drawn(seed + 1, m, size)
    ours = td3.smoothed_actions(actions, noise, std, clip)
    expected = [slow.smoothed(*row, std, clip) for row in zip(actions.tolist(), noise.tolist(), strict=True)]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float64))


def test_noise_is_clipped_before_it_is_added_and_the_sum_after_it():
    actions, noise = torch.tensor([[0.0, 0.0, 0.9, -0.9]]), torch.tensor([[1.0, -10.0, 10.0, -1.0]])
    smoothed = td3.smoothed_actions(actions, noise, std=0.2, clip=0.5)
    torch.testing.assert_close(smoothed, torch.tensor([[0.2, -0.5, 1.0, -1.0]]))


@examples(60)
@given(seeds, rows, st.integers(1, 4))
def test_targets_equal_those_computed_for_one_transition_at_a_time(seed, m, e):
    (reward, discount), values = drawn(seed, 2, m), drawn(seed + 1, e, m)
    ours = td3.clipped_targets(reward, discount, values)
    columns = (reward.tolist(), discount.tolist(), values.T.tolist())
    expected = [slow.target(*row) for row in zip(*columns, strict=True)]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float64))


def test_targets_have_no_gradient():
    leaf = torch.ones(2, 3, requires_grad=True)
    assert not td3.clipped_targets(M, M, leaf).requires_grad
    assert not td3.smoothed_actions(leaf, leaf, 0.2, 0.5).requires_grad


def test_the_policy_loss_falls_as_the_value_rises():
    values = torch.tensor([1.0, -2.0], requires_grad=True)
    loss = td3.policy_loss(values)
    assert loss.tolist() == [-1, 2]
    loss.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [-1, -1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: td3.smoothed_actions(ACTIONS, ACTIONS[:2], 0.2, 0.5),
        lambda: td3.clipped_targets(M, M[:2], VALUES),
        lambda: td3.clipped_targets(M, M, M),
        lambda: td3.clipped_targets(M, M, VALUES[:0]),
        lambda: td3.policy_loss(VALUES),
    ],
)
def test_shapes_that_do_not_agree_are_refused(call: Callable[[], Tensor]):
    with pytest.raises(ValueError, match=r"\[.*\]"):
        call()
