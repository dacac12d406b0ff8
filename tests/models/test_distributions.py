from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.thorough import examples
from torch import distributions

from offbeat.models.distributions import Categorical, Gaussian, SquashedGaussian

seeds = st.integers(0, 2**32 - 1)
choices = st.lists(st.integers(1, 5), min_size=1, max_size=3)


def components(logits: torch.Tensor, nvec: list[int]) -> list[distributions.Categorical]:
    return [distributions.Categorical(logits=part) for part in torch.split(logits, nvec, dim=1)]


@examples(60)
@given(seeds, choices)
def test_the_categorical_entropy_is_the_sum_over_components(seed, nvec):
    logits = torch.randn(4, sum(nvec), generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3
    expected = sum(part.entropy() for part in components(logits, nvec))
    torch.testing.assert_close(Categorical(logits, tuple(nvec)).entropy(), expected)


@examples(60)
@given(seeds, choices)
def test_the_symmetric_kl_to_uniform_is_the_mean_of_both_directions(seed, nvec):
    logits = torch.randn(4, sum(nvec), generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3
    expected = torch.zeros(4, dtype=torch.float64)
    for part, n in zip(components(logits, nvec), nvec, strict=True):
        uniform = distributions.Categorical(logits=torch.zeros(4, n, dtype=torch.float64))
        there, back = distributions.kl_divergence(part, uniform), distributions.kl_divergence(uniform, part)
        expected += (there + back) / 2
    torch.testing.assert_close(Categorical(logits, tuple(nvec)).symmetric_kl_to_uniform(), expected)


def test_a_uniform_policy_has_zero_symmetric_kl_and_the_largest_entropy():
    uniform = Categorical(torch.zeros(1, 5), (2, 3))
    assert uniform.symmetric_kl_to_uniform().item() == pytest.approx(0, abs=1e-6)
    assert uniform.entropy().item() == pytest.approx(np.log(2) + np.log(3))


@examples(40)
@given(seeds, st.integers(1, 4))
def test_the_gaussian_entropy_equals_that_of_torch(seed, size):
    log_std = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = distributions.Normal(torch.zeros(size, dtype=torch.float64), log_std.exp()).entropy().sum()
    torch.testing.assert_close(Gaussian(torch.zeros(3, size, dtype=torch.float64), log_std).entropy(), expected)


@pytest.mark.parametrize("log_std", [-3.0, -1.0, 0.0, 0.5])
def test_the_squashed_entropy_agrees_with_the_mean_of_many_samples(log_std):
    mean = torch.tensor([[0.0, 0.3], [-1.0, 2.0], [0.0, -4.0]], dtype=torch.float64)
    squashed = SquashedGaussian(mean, torch.full((2,), log_std, dtype=torch.float64))
    noise = torch.randn(100_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for row in range(len(mean)):
        u = mean[row] + np.exp(log_std) * noise
        one = SquashedGaussian(mean[row].expand(len(u), 2), squashed.log_std)
        surprise = -one.log_prob(u)
        standard_error = surprise.std().item() / len(u) ** 0.5
        assert squashed.entropy()[row].item() == pytest.approx(surprise.mean().item(), abs=4 * standard_error + 1e-3)


def test_the_squashed_entropy_is_at_most_the_log_of_the_volume_of_the_box():
    mean, log_std = torch.linspace(-3, 3, 31)[:, None], torch.zeros(1)
    assert (SquashedGaussian(mean, log_std).entropy() < np.log(2)).all()


def test_squashed_log_probabilities_and_gradients_of_extreme_actions_are_finite():
    mean = torch.zeros(2, 1, requires_grad=True)
    log_prob = SquashedGaussian(mean, torch.zeros(1)).log_prob(torch.tensor([[-40.0], [40.0]]))
    log_prob.sum().backward()
    assert log_prob.isfinite().all()
    assert mean.grad is not None
    assert mean.grad.isfinite().all()
