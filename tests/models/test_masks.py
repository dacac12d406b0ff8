"""What is not allowed has no part in anything: slow twins that enumerate the choices that are."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.goodness_of_fit import chi_square
from tests.support.models import flat_actor_critic, policy_spec, random_mask, random_observation, random_vector
from tests.support.thorough import examples

from offbeat.core.seeding import stream
from offbeat.models import actions, sampling
from offbeat.models.acting import make_policy
from offbeat.models.distributions import Categorical, make_distribution, masked
from offbeat.models.published import published_layout

seeds = st.integers(0, 2**32 - 1)
several = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


def enumerated(logits: np.ndarray, nvec: tuple[int, ...], mask: np.ndarray) -> dict[tuple[int, ...], float]:
    """The probability of each joint choice in one row, by exponentials over those that are allowed throughout."""
    firsts = np.cumsum((0, *nvec[:-1]))
    weights = {
        choice: np.exp(sum(float(logits[first + c]) for first, c in zip(firsts, choice, strict=True)))
        for choice in product(*map(range, nvec))
        if all(mask[first + c] for first, c in zip(firsts, choice, strict=True))
    }
    total = sum(weights.values())
    return {choice: weight / total for choice, weight in weights.items()}


@examples(80)
@given(several, seeds)
def test_log_probabilities_entropy_and_symmetric_kl_are_those_over_allowed_choices(nvec, seed):
    random = np.random.default_rng(seed)
    mask, logits = random_mask(nvec, 3, random), random.normal(scale=3, size=(3, sum(nvec)))
    ours = Categorical(torch.from_numpy(logits), nvec, torch.from_numpy(mask))
    entropy, kl = ours.entropy(), ours.symmetric_kl_to_uniform()
    for row in range(3):
        probabilities = enumerated(logits[row], nvec, mask[row])
        p, n = np.array(list(probabilities.values())), len(probabilities)
        assert entropy[row].item() == pytest.approx(-(p * np.log(p)).sum(), abs=1e-9)
        assert kl[row].item() == pytest.approx(((p - 1 / n) * np.log(p * n)).sum() / 2, abs=1e-9)
        for choice, probability in probabilities.items():
            actions = torch.tensor([choice] * 3)
            assert ours.log_prob(actions)[row].item() == pytest.approx(np.log(probability), abs=1e-9)


@examples(60)
@given(several, seeds)
def test_gradients_are_finite_and_zero_for_masked_actions(nvec, seed):
    random = np.random.default_rng(seed)
    mask = torch.from_numpy(random_mask(nvec, 4, random))
    logits = torch.from_numpy(random.normal(scale=30, size=(4, sum(nvec))).astype(np.float32)).requires_grad_()
    ours = Categorical(logits, nvec, mask)
    action = torch.stack([part.int().argmax(1) for part in torch.split(mask, list(nvec), dim=1)], dim=1)
    (ours.log_prob(action) + ours.entropy() + ours.symmetric_kl_to_uniform()).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert not logits.grad[~mask].any()


def test_a_row_without_an_allowed_action_gives_no_nan():
    """It can only be a reset row, which no loss looks at; but NaN times 0 is NaN."""
    logits = torch.randn(2, 3, requires_grad=True)
    ours = Categorical(logits, (3,), torch.tensor([[False] * 3, [True, False, True]]))
    (ours.log_prob(torch.tensor([1, 2])) * torch.tensor([0.0, 1.0]) + ours.entropy()).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@examples(60)
@given(st.sampled_from(["discrete", "multidiscrete", "switches", "tree", "choice tree"]), st.booleans(), seeds)
def test_a_masked_policy_takes_allowed_actions_and_records_the_log_probability_of_torch(action, squashed, seed):
    spec = policy_spec(action, observation="masked choices", squashed=squashed)
    random = np.random.default_rng(seed)
    policy, vector, observation = make_policy(spec), random_vector(spec, random), random_observation(spec, 20, random)
    policy.load(vector)
    mask, components = observation["observation/action_mask"], len(spec.action.nvec)
    acted = policy.act(observation, random)
    firsts = np.cumsum((0, *spec.action.nvec[:-1]))
    for chosen in (acted.action, policy.greedy(observation)):
        assert chosen.shape == (20, *spec.action.shape)
        assert chosen.dtype == spec.action.dtype
        places = firsts + chosen.reshape(20, -1)[:, :components].astype(int)
        assert mask[np.arange(20)[:, None], places].all()
    model, _ = flat_actor_critic(spec, vector)
    with torch.no_grad():
        log_std = None if model.log_std is None else model.log_std
        parameters = torch.from_numpy(policy.forward(observation).copy())
        distribution = make_distribution(spec, parameters, log_std, torch.from_numpy(mask))
        expected = distribution.log_prob(torch.from_numpy(acted.action))
    np.testing.assert_allclose(acted.recorded["behavior_log_prob"], expected, rtol=1e-4, atol=1e-4)


def test_allowed_actions_are_sampled_with_their_renormalized_probability():
    spec = policy_spec("multidiscrete", observation="masked")
    random = np.random.default_rng(0)
    logits, mask = random.normal(size=9), random_mask((2, 4, 3), 1, np.random.default_rng(4))[0]
    parameters = np.tile(logits, (20_000, 1)).astype(np.float32)
    put_down = sampling.masked(parameters, np.tile(mask, (20_000, 1)))
    action, _ = sampling.sample(spec, put_down, None, stream(0, "test"))
    expected = enumerated(logits, (2, 4, 3), mask)
    observed = [int((action == choice).all(axis=1).sum()) for choice in expected]
    assert sum(observed) == 20_000
    assert len(expected) > 2
    assert chi_square(observed, 20_000 * np.array(list(expected.values()))) > 0.001


def test_a_policy_that_explores_takes_allowed_actions():
    spec, random = policy_spec("discrete", observation="masked"), np.random.default_rng(0)
    mask = random_mask((3,), 1_000, random)
    values = sampling.masked(np.zeros((1_000, 3), np.float32), mask)
    action = sampling.sample_epsilon_greedy(spec, values, np.float32(1), random, mask)
    assert mask[np.arange(1_000), action].all()


def test_uniform_actions_are_allowed_ones():
    spec, random = replace(policy_spec("multidiscrete", observation="masked"), uniform_start=True), stream(0, "test")
    policy, observation = make_policy(spec), random_observation(spec, 1_000, random)
    published_layout(spec).views(policy.vector)["uniform"][:] = 1
    places = np.add(policy.act(observation, random).action, [0, 2, 6])
    assert observation["action_mask"][np.arange(1_000)[:, None], places].all()


def test_masking_changes_neither_its_input_nor_the_parameters_of_boxes():
    parameters = np.arange(10, dtype=np.float32).reshape(2, 5)
    put_down = sampling.masked(parameters, np.array([[True, False, True], [False, True, True]]))
    assert parameters.tolist() == np.arange(10).reshape(2, 5).tolist()
    np.testing.assert_array_equal(put_down[:, 3:], parameters[:, 3:])
    assert (put_down[:, :3] < -1e8).tolist() == [[False, True, False], [True, False, False]]


def test_a_choice_that_is_not_allowed_is_not_the_best_one_however_low_the_values_are():
    values, mask = np.full((1, 3), -2e9, np.float32), np.array([[False, True, False]])
    spec = policy_spec("discrete", observation="masked")
    assert actions.greedy(spec, sampling.masked(values, mask)).tolist() == [1]
    assert masked(torch.from_numpy(values), torch.from_numpy(mask)).argmax(dim=1).tolist() == [1]


@pytest.mark.parametrize("action", ["tree", "choice tree"])
def test_the_entropy_of_a_tree_action_is_the_sum_over_its_parts(action):
    spec = policy_spec(action, observation="masked")
    random = np.random.default_rng(0)
    mask, parameters = random_mask(spec.action.nvec, 4, random), random.normal(size=(4, spec.outputs))
    log_std = torch.tensor([-0.3, 0.4], dtype=torch.float64)[: len(spec.action.low)]
    given = log_std if len(log_std) else None
    ours = make_distribution(spec, torch.from_numpy(parameters), given, torch.from_numpy(mask)).entropy()
    for row in range(4):
        p = np.array(list(enumerated(parameters[row], spec.action.nvec, mask[row]).values()))
        of_boxes = sum(float(s) + 0.5 * np.log(2 * np.pi * np.e) for s in log_std)
        assert ours[row].item() == pytest.approx(-(p * np.log(p)).sum() + of_boxes)


def test_box_parts_of_a_tree_action_are_scaled_to_their_bounds_and_choices_are_unchanged():
    spec = policy_spec("tree")
    action = np.array([[2, 1, 3, 0, 1, -9.0, 0.25]], np.float32)
    np.testing.assert_array_equal(actions.ToEnv(spec)(action), [[2, 1, 3, 0, 1, -1, 0.25]])
