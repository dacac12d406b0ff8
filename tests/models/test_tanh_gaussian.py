from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.sac import BOUNDED, bounded_spec, sac_specs, tanh_gaussian
from tests.support.models import random_observation, random_vector
from tests.support.thorough import examples

from offbeat.algorithms.sac_config import SACConfig
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.distributions import TanhGaussian
from offbeat.models.flat import FlatParameters
from offbeat.models.inputs import flatten
from offbeat.models.policy_network import PolicyNetwork, Uniform
from offbeat.models.published import parameter_shapes, published_layout
from offbeat.models.spec import PolicySpec

seeds = st.integers(0, 2**32 - 1)


def soft_policy(spec: PolicySpec, seed: int = 0) -> PolicyNetwork:
    return PolicyNetwork(spec, Uniform(torch.Generator().manual_seed(seed)), head_gain=1.0)


def both(spec: PolicySpec, random: np.random.Generator) -> tuple[ActingPolicy, PolicyNetwork]:
    """Return the policy in NumPy and in torch, on the same published vector."""
    vector = random_vector(spec, random)
    if spec.uniform_start:
        published_layout(spec).views(vector)["uniform"][:] = 0
    policy, module = make_policy(spec), soft_policy(spec)
    policy.load(vector)
    flat = FlatParameters(module)
    flat.values[:] = torch.from_numpy(vector[: flat.layout.size])
    return policy, module


class Noise:
    """In place of a generator: draws what it was given."""

    def __init__(self, noise: np.ndarray) -> None:
        self._noise = noise

    def standard_normal(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        assert self._noise.shape == shape
        return self._noise.astype(dtype)


def seen(spec: PolicySpec, policy: ActingPolicy, observation: dict[str, np.ndarray]) -> torch.Tensor:
    x = torch.from_numpy(flatten(spec.vectors, observation))
    if spec.normalize:
        arrays = policy._arrays
        x = ((x - torch.from_numpy(arrays["observation_mean"])) * torch.from_numpy(arrays["observation_scale"])).clamp(
            -10, 10
        )
    return x


@examples(80)
@given(sac_specs("box", "matrix"), seeds)
def test_numpy_and_torch_actions_agree_given_the_same_noise(spec, seed):
    random = np.random.default_rng(seed)
    policy, module = both(spec, random)
    observation = random_observation(spec, 6, random)
    noise = random.standard_normal((6, spec.action_size)).astype(np.float32)
    with torch.no_grad():
        parameters, _ = module(seen(spec, policy, observation))
        action, _ = TanhGaussian(parameters).sample(torch.from_numpy(noise))
    scale = max(1.0, parameters.abs().max().item())
    np.testing.assert_allclose(policy.forward(observation), parameters, rtol=0, atol=1e-5 * scale)
    acted = policy.act(observation, Noise(noise))  # type: ignore[arg-type]
    assert acted.recorded == {}
    assert acted.action.dtype == np.float32
    assert acted.action.shape == (6, *spec.action.shape)
    # What e^log_std makes of its rounding is large where log_std is.
    np.testing.assert_allclose(acted.action, action.reshape(6, *spec.action.shape), rtol=0, atol=1e-4 * scale)
    greedy = policy.greedy(observation)
    assert greedy.shape == acted.action.shape
    expected = parameters[:, : spec.action_size].tanh().reshape(greedy.shape)
    np.testing.assert_allclose(greedy, expected, rtol=0, atol=1e-5 * scale)


@examples(40)
@given(sac_specs(), seeds)
def test_parameters_have_the_layout_of_the_start_of_the_published_vector(spec, seed):
    flat = FlatParameters(soft_policy(spec, seed % 2**31)).layout
    assert [entry.name for entry in flat.entries] == [name for name, _ in parameter_shapes(spec)]
    assert published_layout(spec).entries[: len(flat.entries)] == flat.entries


def test_the_policy_is_initialized_as_torch_layers_independently_of_torchs_global_generator():
    spec = bounded_spec("box", SACConfig(hidden_sizes=(300, 200)))
    torch.manual_seed(0)
    before = torch.get_rng_state()
    module = soft_policy(spec)
    assert torch.equal(torch.get_rng_state(), before)
    layers: list[Any] = [*module.policy_body.children(), module.policy_head]
    for layer in layers:
        bound = 1 / math.sqrt(layer.weight.shape[1])
        assert max(layer.weight.abs().max(), layer.bias.abs().max()) <= bound
        assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)
        assert layer.bias.abs().max() > 0
    torch.manual_seed(99)
    for one, other in zip(module.parameters(), soft_policy(spec).parameters(), strict=True):
        assert torch.equal(one, other)


# --- the distribution ---------------------------------------------------------------------------------------


@examples(60)
@given(seeds, st.integers(1, 5), st.integers(1, 4))
def test_log_probabilities_equal_those_of_torchs_tanh_transformed_gaussian(seed, rows, size):
    generator = torch.Generator().manual_seed(seed)
    mean, log_std, noise = torch.randn(3, rows, size, generator=generator, dtype=torch.float64)
    log_std = log_std.clamp(max=2)
    action, log_prob = TanhGaussian(torch.cat([mean, log_std], 1)).sample(noise)
    expected_action, expected = tanh_gaussian(mean, log_std, noise)
    torch.testing.assert_close(action, expected_action)
    torch.testing.assert_close(log_prob, expected, rtol=1e-7, atol=1e-7)


def test_means_precede_log_standard_deviations_in_the_parameters():
    parameters = torch.tensor([[0.5, -1.0, -30.0, -30.0]])
    action, _ = TanhGaussian(parameters).sample(torch.ones(1, 2))
    torch.testing.assert_close(action, parameters[:, :2].tanh())


@pytest.mark.parametrize(("given", "used"), [(-25.0, -20.0), (-20.0, -20.0), (2.0, 2.0), (7.0, 2.0)])
def test_log_standard_deviations_are_clipped_and_have_no_gradient_outside_the_range(given, used):
    log_std = torch.tensor([[given]], requires_grad=True)
    mean = torch.zeros(1, 1)
    _, log_prob = TanhGaussian(torch.cat([mean, log_std], 1)).sample(torch.full((1, 1), 0.3))
    _, expected = tanh_gaussian(mean.double(), torch.tensor([[used]]).double(), torch.full((1, 1), 0.3).double())
    assert log_prob.item() == pytest.approx(expected.item(), rel=1e-4)
    log_prob.sum().backward()
    assert log_std.grad is not None
    assert bool(log_std.grad) is (given == used)


def test_extreme_actions_have_finite_log_probabilities_and_gradients():
    parameters = torch.tensor([[300.0, -300.0, 2.0, -20.0]], requires_grad=True)
    action, log_prob = TanhGaussian(parameters).sample(torch.tensor([[3.0, -3.0]]))
    assert action.tolist() == [[1, -1]]
    log_prob.sum().backward()
    assert parameters.grad is not None
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(parameters.grad).all()


@pytest.mark.parametrize("action", sorted(BOUNDED))
def test_a_policy_with_a_uniform_start_records_no_log_probability(action):
    spec = bounded_spec(action, SACConfig(hidden_sizes=(4,)))
    random = np.random.default_rng(0)
    policy, _ = both(spec, random)
    assert not spec.records_log_prob
    for uniform in (0.0, 1.0):
        policy._arrays["uniform"][:] = uniform
        acted = policy.act(random_observation(spec, 5, random), random)
        assert acted.recorded == {}
        assert acted.action.shape == (5, *spec.action.shape)
        assert acted.action.dtype == spec.action.dtype
