from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import sac as slow
from tests.support.thorough import examples
from torch import Tensor

from offbeat.losses.critics import critic_loss

seeds = st.integers(0, 2**32 - 1)
M, VALUES = torch.zeros(3), torch.zeros(2, 3)


def drawn(seed: int, *shape: int) -> Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@examples(60)
@given(seeds, st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_the_critic_loss_sums_half_the_squared_errors_of_the_critics(seed, m, e, weighted):
    values, targets, weights = drawn(seed, e, m), drawn(seed + 1, m), drawn(seed + 2, m).abs()
    ours = critic_loss(values, targets, weights if weighted else None)
    used = (weights if weighted else torch.ones(m)).tolist()
    expected = [slow.critic_row(*row) for row in zip(values.T.tolist(), targets.tolist(), used, strict=True)]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(
    "call",
    [
        lambda: critic_loss(M, M),
        lambda: critic_loss(VALUES, VALUES),
        lambda: critic_loss(VALUES, M, M[:1]),
        lambda: critic_loss(VALUES[:0], M),  # no critic
    ],
)
def test_shapes_that_do_not_agree_are_refused(call: Callable[[], Tensor]):
    with pytest.raises(ValueError, match=r"\[.*\]"):
        call()
