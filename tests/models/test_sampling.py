from __future__ import annotations

from math import inf

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.goodness_of_fit import chi_square, kolmogorov_smirnov
from tests.support.models import policy_spec, policy_specs
from tests.support.thorough import examples
from torch import distributions

from offbeat.core.seeding import stream
from offbeat.core.types import ActionSpec, Leaf
from offbeat.models import actions, sampling
from offbeat.models.distributions import make_distribution
from offbeat.models.spec import Distribution, PolicySpec

seeds = st.integers(0, 2**32 - 1)


def torch_log_prob(spec: PolicySpec, parameters: np.ndarray, log_std: np.ndarray, action: np.ndarray) -> torch.Tensor:
    """By torch's own distributions in float64; a squashed action is recorded before its tanh."""
    given, recorded = torch.from_numpy(parameters).double(), torch.from_numpy(action).reshape(len(parameters), -1)
    *logits, means = torch.split(given, [*spec.action.nvec, len(spec.action.low)], dim=1)
    choices, u = recorded[:, : len(logits)].unbind(1), recorded[:, len(logits) :].double()
    total = torch.zeros(len(given)).double()
    for part, choice in zip(logits, choices, strict=True):
        total = total + distributions.Categorical(logits=part).log_prob(choice)
    if not len(spec.action.low):
        return total
    base = distributions.Normal(means, torch.from_numpy(log_std).double().exp())
    if spec.distribution == "gaussian":
        return total + base.log_prob(u).sum(1)
    tanh = distributions.TanhTransform(cache_size=1)
    return total + distributions.TransformedDistribution(base, tanh).log_prob(tanh(u)).sum(1)


@examples(100)
@given(policy_specs(), seeds, st.integers(1, 6))
def test_log_probabilities_equal_those_of_both_torch_references(spec, seed, rows):
    random = np.random.default_rng(seed)
    parameters = random.normal(scale=2, size=(rows, spec.outputs)).astype(np.float32)
    log_std = random.uniform(-2, 0.3, spec.box_size).astype(np.float32)
    used = None if spec.distribution == "categorical" else log_std
    action, log_prob = sampling.sample(spec, parameters, used, random)
    assert action.shape == (rows, *spec.action.shape)
    assert log_prob.dtype == np.float32
    theirs = torch_log_prob(spec, parameters, log_std, action)
    np.testing.assert_allclose(log_prob, theirs, rtol=2e-5, atol=5e-5)
    ours = make_distribution(spec, torch.from_numpy(parameters), None if used is None else torch.from_numpy(used))
    np.testing.assert_allclose(ours.log_prob(torch.from_numpy(action)), theirs, rtol=2e-5, atol=5e-5)


@pytest.mark.parametrize(("squashed", "largest_mean", "log_std"), [(False, 1e4, 0), (False, 100, -3), (True, 3, -5)])
def test_log_probabilities_are_those_of_the_rounded_actions_that_are_recorded(squashed, largest_mean, log_std):
    """Otherwise the first ratio of a learning step would not be 1: at 1e4 the steps of a float32 are 0.001."""
    spec, random = policy_spec("matrix", squashed=squashed), np.random.default_rng(0)
    mean = random.uniform(0.5, 1, (2048, spec.outputs)).astype(np.float32) * np.float32(largest_mean)
    log_stds = np.full(spec.outputs, log_std, np.float32)
    action, log_prob = sampling.sample(spec, mean, log_stds, random)
    distribution = make_distribution(spec, torch.from_numpy(mean), torch.from_numpy(log_stds))
    of_learner = distribution.log_prob(torch.from_numpy(action)).numpy()
    np.testing.assert_allclose(np.exp(of_learner - log_prob), 1, rtol=1e-5)


def test_discrete_actions_are_sampled_with_their_joint_probability():
    spec = PolicySpec((), ActionSpec("multidiscrete", (2,), nvec=(2, 3)), (), "tanh", "categorical", normalize=False)
    logits = np.array([0.5, -0.5, 1.0, 0.0, -2.0])
    parameters = np.tile(logits, (20_000, 1)).astype(np.float32)
    action, log_prob = sampling.sample(spec, parameters, None, stream(0, "test"))
    observed = np.bincount(action[:, 0] * 3 + action[:, 1], minlength=6)
    first, second = np.exp(logits[:2]), np.exp(logits[2:])
    expected = np.outer(first / first.sum(), second / second.sum()).ravel() * len(action)
    assert chi_square(observed, expected) > 0.001
    np.testing.assert_allclose(np.exp(log_prob), expected[action[:, 0] * 3 + action[:, 1]] / len(action), rtol=1e-5)


def test_every_column_is_sampled_from_its_own_logits():
    spec = policy_spec("discrete")
    logits = np.tile(np.array([[0, 60, 0], [60, 0, 0], [0, 0, 60]], np.float32), (50, 1))
    action, _ = sampling.sample(spec, logits, None, stream(0, "test"))
    assert action.tolist() == [1, 0, 2] * 50


def test_discrete_actions_of_zero_probability_are_never_sampled():
    spec = policy_spec("discrete")
    logits = np.tile(np.array([-1e4, 0.0, -1e4], np.float32), (20_000, 1))
    action, log_prob = sampling.sample(spec, logits, None, stream(0, "test"))
    assert set(action.tolist()) == {1}
    assert (log_prob == 0).all()


def test_a_random_number_of_0_samples_no_action_of_zero_probability():
    action, _ = sampling.sample(policy_spec("discrete"), np.array([[-1e4, 0, 0]], np.float32), None, zero_next())
    assert action.tolist() == [1]


def test_a_random_number_of_0_does_not_explore_if_epsilon_is_0():
    values = np.array([[0, 0, 1]], np.float32)
    action = sampling.sample_epsilon_greedy(policy_spec("discrete"), values, np.float32(0), zero_next(), None)
    assert action.tolist() == [2]


def test_how_many_random_numbers_an_epsilon_greedy_policy_takes_does_not_depend_on_which_columns_explore():
    values, after = np.zeros((4, 3), np.float32), []
    for epsilon in (0, 1):
        random = stream(0, "test")
        sampling.sample_epsilon_greedy(policy_spec("discrete"), values, np.float32(epsilon), random, None)
        after.append(random.random())
    assert after[0] == after[1]


def zero_next() -> np.random.Generator:
    """Return a generator whose next float32 in [0, 1) is 0: one of 16 million is."""
    random = np.random.Generator(np.random.PCG64(0).advance(4_454_914))
    random.random(dtype=np.float32)
    return random


def test_gaussian_actions_have_the_mean_and_standard_deviation_of_the_policy():
    spec = policy_spec("box")
    mean, log_std = np.array([1.5, -4.0], np.float32), np.array([-1.0, 0.7], np.float32)
    action, _ = sampling.sample(spec, np.tile(mean, (20_000, 1)), log_std, stream(0, "test"))
    standardized = (action - mean) / np.exp(log_std)
    assert min(kolmogorov_smirnov(standardized)) > 0.001
    assert abs(np.mean(standardized[:, 0] * standardized[:, 1])) < 0.03


def test_the_greedy_action_is_the_most_likely_choice_of_each_component():
    parameters = np.array([[0, 1, 5, 6, 7, 8, 3, 1, 2], [2, 1, 0, 9, 0, 0, 1, 2, 3]], np.float32)
    assert actions.greedy(policy_spec("multidiscrete"), parameters).tolist() == [[1, 3, 0], [0, 1, 2]]
    assert actions.greedy(policy_spec("discrete"), parameters[:, :3]).tolist() == [2, 0]


@pytest.mark.parametrize("squashed", [False, True])
def test_the_greedy_action_of_a_gaussian_is_its_mean_in_the_shape_of_the_action(squashed):
    mean = np.arange(8, dtype=np.float32).reshape(2, 4)
    action = actions.greedy(policy_spec("matrix", squashed=squashed), mean)
    np.testing.assert_array_equal(action, mean.reshape(2, 2, 2))


def test_the_log_derivative_of_tanh_does_not_overflow():
    u = np.array([-50, -20, 0, 1, 20, 50], np.float32)
    exact = -2 * np.log(np.cosh(u.astype(np.float64)))
    np.testing.assert_allclose(sampling.log_tanh_slope(u), exact, rtol=1e-6)


# --- log deviations from the network, and uniform actions ---------------------------------------------------


def tanh_gaussian(shape: tuple[int, ...]) -> PolicySpec:
    size = int(np.prod(shape))
    action = ActionSpec("box", shape, low=(-2.0,) * size, high=(1.0,) * size)
    return PolicySpec((), action, (), "relu", "tanh_gaussian", normalize=False, uniform_start=True)


def test_each_column_is_sampled_with_its_own_mean_and_standard_deviation():
    parameters = np.array([[1.5, -0.5, -1.0, 0.2], [-0.3, 0.8, 0.5, -2.0]], np.float32)
    action = sampling.sample_without_log_prob(
        tanh_gaussian((2,)), np.repeat(parameters, 20_000, axis=0), stream(0, "test")
    )
    assert np.abs(action).max() <= 1
    u = np.arctanh(action.astype(np.float64).clip(-1 + 1e-7, 1 - 1e-7)).reshape(2, 20_000, 2)
    standardized = (u - parameters[:, None, :2]) / np.exp(parameters[:, None, 2:])
    for column in range(2):
        assert min(kolmogorov_smirnov(standardized[column])) > 0.001


def test_log_standard_deviations_are_clipped_to_their_range():
    parameters = np.array([[0.0, 50.0], [0.0, -90.0]], np.float32)
    action = sampling.sample_without_log_prob(
        tanh_gaussian((1,)), np.repeat(parameters, 5_000, axis=0), stream(0, "test")
    )
    wide, narrow = np.arctanh(action.astype(np.float64).clip(-1 + 1e-7, 1 - 1e-7)).reshape(2, -1)
    assert np.median(np.abs(wide)) == pytest.approx(0.6745 * np.exp(2), rel=0.05)
    assert np.median(np.abs(narrow)) == pytest.approx(0.6745 * np.exp(-20), rel=0.05)


def test_the_greedy_action_of_a_tanh_gaussian_is_the_tanh_of_its_mean():
    parameters = np.array([[0.0, 0.5, -3.0, 9.0, 1, 2, 3, 4]], np.float32)
    action = actions.greedy(tanh_gaussian((2, 2)), parameters)
    np.testing.assert_array_equal(action, np.tanh(parameters[:, :4]).reshape(1, 2, 2))


def test_squashed_actions_are_scaled_to_the_box_without_clipping():
    given = actions.ToEnv(tanh_gaussian((1,)))(np.array([[-1], [0], [0.5], [1]], np.float32))
    np.testing.assert_allclose(given[:, 0], [-2, -0.5, 0.25, 1], rtol=1e-6)


def test_uniform_box_actions_are_uniform_in_the_box():
    spec = tanh_gaussian((2, 2))
    action = sampling.sample_uniform(spec, 20_000, stream(0, "test"))
    assert action.shape == (20_000, 2, 2)
    assert action.dtype == np.float32
    given = actions.ToEnv(spec)(action).reshape(-1, 4)
    assert given.min() >= -2
    assert given.max() <= 1
    counts = [np.histogram(component, bins=20, range=(-2, 1))[0] for component in given.T]
    assert min(chi_square(count) for count in counts) > 0.001
    cells = np.histogram2d(given[:, 0], given[:, 3], bins=6, range=[(-2, 1)] * 2)[0].ravel()
    assert chi_square(cells) > 0.001, "the components are independent"


@pytest.mark.parametrize("action", ["discrete", "multidiscrete"])
def test_uniform_discrete_actions_are_equally_frequent(action):
    spec = policy_spec(action)
    drawn = sampling.sample_uniform(spec, 20_000, stream(0, "test"))
    assert drawn.shape == (20_000, *spec.action.shape)
    assert drawn.dtype == np.int64
    joint = np.ravel_multi_index(tuple(drawn.reshape(20_000, -1).T), spec.action.nvec)
    assert chi_square(np.bincount(joint, minlength=np.prod(spec.action.nvec))) > 0.001


def test_unrecorded_discrete_actions_equal_recorded_ones():
    logits = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    action, _ = sampling.sample(policy_spec("discrete"), logits, None, stream(0, "test"))
    again = sampling.sample_without_log_prob(policy_spec("discrete"), logits, stream(0, "test"))
    np.testing.assert_array_equal(again, action)


# --- what the env is given ----------------------------------------------------------------------------------


def test_a_number_with_equal_bounds_is_recorded_as_0():
    to_env = box(0.5, 0.5)
    assert to_env.inverse(to_env(np.array([[-1], [0.3]], np.float32))).tolist() == [[0], [0]]


@pytest.mark.parametrize("squashed", [False, True])
def test_numbers_of_float64_are_scaled_to_bounds_that_are_far_from_0(squashed):
    to_env = box(1e9, 1e9 + 1, squashed=squashed, env_dtype="float64")
    given = to_env(np.array([[-9], [0], [9]], np.float32))
    np.testing.assert_allclose(given[:, 0] - 1e9, [0, 0.5, 1], atol=1e-6)
    assert to_env.inverse(given + 0.25).tolist() == [[-0.5], [0.5], [1.5]]


def test_the_box_of_float64_in_a_mixed_action_is_scaled_to_bounds_that_are_far_from_0():
    far = ActionSpec("box", (1,), low=(1e9,), high=(1e9 + 1,), env_dtype="float64")
    parts = (ActionSpec("discrete", (), (3,)), far)
    action = ActionSpec("mixed", (2,), (3,), low=far.low, high=far.high, parts=parts)
    to_env = actions.ToEnv(PolicySpec((), action, (), "tanh", "gaussian", normalize=False))
    assert to_env(np.array([[2, 0]], np.float32)).tolist() == [[2, 1e9 + 0.5]]


def box(low: float, high: float, squashed: bool = False, env_dtype: str = "") -> actions.ToEnv:
    action = ActionSpec("box", (1,), low=(low,), high=(high,), env_dtype=env_dtype)
    distribution: Distribution = "squashed" if squashed else "gaussian"
    return actions.ToEnv(PolicySpec((Leaf("o", (1,), "float32"),), action, (), "tanh", distribution, normalize=False))


@pytest.mark.parametrize(
    ("low", "high", "acted", "expected"),
    [
        (-1, 1, [-3, -0.5, 0.25, 2], [-1, -0.5, 0.25, 1]),
        (-2, 2, [-3, -0.5, 0.25, 2], [-2, -1, 0.5, 2]),
        (0, 10, [-3, -1, 0, 0.5, 1, 2], [0, 0, 5, 7.5, 10, 10]),
        (0, 2, [-3, -0.5, 0, 2], [0, 0.5, 1, 2]),
        (-inf, inf, [-300, 0.5, 300], [-300, 0.5, 300]),
        (0, inf, [-3, 0.5, 300], [0, 0.5, 300]),
        (-inf, 2, [-300, 0.5, 300], [-300, 0.5, 2]),
        (-(2.0**127), 2.0**127, [-2, -0.5, 0, 1], [-(2.0**127), -(2.0**126), 0, 2.0**127]),
        (2.0**126, 3 * 2.0**126, [-2, -0.5, 1, 2], [2.0**126, 1.5 * 2.0**126, 3 * 2.0**126, 3 * 2.0**126]),
    ],
)
def test_gaussian_actions_are_clipped_and_scaled_to_the_box(low, high, acted, expected):
    given = box(low, high)(np.array(acted, np.float32)[:, None])
    np.testing.assert_array_equal(given[:, 0], np.array(expected, np.float32))
    assert given.dtype == np.float32


def test_squashed_actions_are_scaled_to_the_box():
    given = box(0, 10, squashed=True)(np.array([[-50], [0], [0.5], [50]], np.float32))
    np.testing.assert_allclose(given[:, 0], [0, 5, 5 + 5 * np.tanh(0.5), 10], rtol=1e-6)


@examples(60)
@given(seeds, st.booleans())
def test_bounds_of_a_box_apply_to_each_component(seed, squashed):
    random = np.random.default_rng(seed)
    low = random.normal(size=(2, 3)).astype(np.float32)
    high = low + random.exponential(size=(2, 3)).astype(np.float32)
    if not squashed:
        low[random.random((2, 3)) < 0.3], high[random.random((2, 3)) < 0.3] = -inf, inf
    action = ActionSpec("box", (2, 3), low=tuple(low.ravel().tolist()), high=tuple(high.ravel().tolist()))
    distribution: Distribution = "squashed" if squashed else "gaussian"
    to_env = actions.ToEnv(PolicySpec((), action, (), "tanh", distribution, normalize=False))
    given = to_env(random.normal(scale=5, size=(40, 2, 3)).astype(np.float32))
    assert given.shape == (40, 2, 3)
    assert (given >= low).all()
    assert (given <= high).all()


def test_discrete_actions_are_passed_to_the_env_unchanged():
    action = np.array([[1, 3, 2]])
    assert actions.ToEnv(policy_spec("multidiscrete"))(action) is action
