from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from threading import Thread

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.models import (
    flat_actor_critic,
    policy_spec,
    policy_specs,
    random_observation,
    random_vector,
)
from tests.support.thorough import examples
from torch.nn import functional

from offbeat.core.errors import NetworkFailed
from offbeat.core.types import Tree
from offbeat.models import sampling
from offbeat.models.acting import make_policy
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec

seeds = st.integers(0, 2**32 - 1)


def torch_inputs(spec: PolicySpec, vector: np.ndarray, observation: Tree) -> torch.Tensor:
    """Make choices one-hot, flatten, join, shift, scale and clip in the words of the specification."""
    parts = []
    for leaf in spec.observation:
        values = torch.from_numpy(observation[leaf.name])
        values = values.reshape(len(values), -1)
        if leaf.choices:
            parts += [functional.one_hot(values[:, i].long(), n).float() for i, n in enumerate(leaf.choices)]
        elif not leaf.is_mask:
            parts.append(values.float())
    x = torch.cat(parts, dim=1)
    if not spec.normalize:
        return x
    arrays = published_layout(spec).views(torch.from_numpy(vector))
    return ((x - arrays["observation_mean"]) * arrays["observation_scale"]).clamp(-10, 10)


@examples(80)
@given(policy_specs(), st.booleans(), seeds, st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_numpy_and_torch_give_the_same_distribution_parameters(spec, shared, seed, row_counts):
    random = np.random.default_rng(seed)
    vector = random_vector(spec, random)
    model, _ = flat_actor_critic(spec, vector, shared=shared)
    policy = make_policy(spec)
    policy.load(vector)
    for rows in row_counts:  # buffers are kept from call to call
        observation = random_observation(spec, rows, random)
        with torch.no_grad():
            expected = model(torch_inputs(spec, vector, observation))[0].numpy()
        tolerance = 1e-5 * max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(policy.forward(observation), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("core", ["none", "gru"])
def test_a_call_in_another_thread_does_not_overwrite_the_outputs_of_a_policy(core):
    random = np.random.default_rng(5)
    spec = replace(policy_spec("discrete"), core=core, core_size=4)
    policy = make_policy(spec)
    policy.load(random_vector(spec, random))
    observations = [random_observation(spec, 2, random) for _ in range(2)]
    outputs = policy.forward(observations[0], np.zeros((2, policy.state_size), np.float32))
    before = outputs.copy()
    thread = Thread(target=policy.forward, args=(observations[1], np.zeros((2, policy.state_size), np.float32)))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(outputs, before)


@examples(40)
@given(policy_specs(), seeds)
def test_the_recorded_log_probability_equals_that_of_torch(spec, seed):
    random = np.random.default_rng(seed)
    vector = random_vector(spec, random)
    model, _ = flat_actor_critic(spec, vector)
    policy = make_policy(spec)
    policy.load(vector)
    observation = random_observation(spec, 7, random)
    acted = policy.act(observation, random)
    with torch.no_grad():
        mask = torch.from_numpy(observation[spec.mask]) if spec.mask else None
        distribution, _ = model.distribution_and_values(torch_inputs(spec, vector, observation), mask=mask)
        expected = distribution.log_prob(torch.from_numpy(acted.action))
    assert acted.action.shape == (7, *spec.action.shape)
    np.testing.assert_allclose(acted.recorded["behavior_log_prob"], expected, rtol=1e-4, atol=1e-4)


def test_an_action_is_not_overwritten_when_the_policy_acts_again():
    spec = policy_spec("box")
    random = np.random.default_rng(0)
    policy = make_policy(spec)
    policy.load(random_vector(spec, random))
    greedy = policy.greedy(random_observation(spec, 4, random))
    sampled = policy.act(random_observation(spec, 4, random), random).action
    kept = greedy.copy(), sampled.copy()
    policy.greedy(random_observation(spec, 4, random))
    policy.act(random_observation(spec, 4, random), random)
    np.testing.assert_array_equal(greedy, kept[0])
    np.testing.assert_array_equal(sampled, kept[1])


@pytest.mark.parametrize("action", ["discrete", "box"])
def test_actions_are_uniform_while_the_uniform_flag_is_set(action):
    spec = replace(policy_spec(action), uniform_start=True)
    random = np.random.default_rng(0)
    policy, vector, observation = make_policy(spec), random_vector(spec, random), random_observation(spec, 6, random)
    flag = published_layout(spec).views(vector)["uniform"]
    flag[:] = 1
    policy.load(vector)
    np.testing.assert_array_equal(
        policy.act(observation, np.random.default_rng(1)).action,
        sampling.sample_uniform(spec, 6, np.random.default_rng(1)),
    )
    greedy = policy.greedy(observation)
    flag[:] = 0
    policy.load(vector)
    np.testing.assert_array_equal(policy.greedy(observation), greedy)
    if action == "discrete":
        drawn = sampling.sample_without_log_prob(spec, policy.forward(observation), np.random.default_rng(1))
        np.testing.assert_array_equal(policy.act(observation, np.random.default_rng(1)).action, drawn)


def test_loaded_weights_are_a_copy():
    spec = policy_spec("discrete")
    random = np.random.default_rng(0)
    vector, observation = random_vector(spec, random), random_observation(spec, 3, random)
    policy = make_policy(spec)
    policy.load(vector)
    before = policy.forward(observation).copy()
    vector += 1
    np.testing.assert_array_equal(policy.forward(observation), before)


def test_acting_does_not_import_torch():
    code = "import sys, offbeat, offbeat.models.mlp, offbeat.workers.actor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("action", ["discrete", "box"])
def test_the_most_likely_action_of_a_network_that_returns_nan_is_refused(action):
    spec = policy_spec(action)
    policy = make_policy(spec)
    policy.load(np.full_like(policy.vector, np.nan))
    with pytest.raises(NetworkFailed, match="the network of the policy returned NaN or infinity"):
        policy.greedy(random_observation(spec, 3, np.random.default_rng(0)))


@pytest.mark.filterwarnings("ignore:overflow")
def test_outputs_whose_sum_is_too_large_for_float32_are_finite_and_accepted():
    spec = policy_spec("discrete", hidden_sizes=())
    policy = make_policy(spec)
    published_layout(spec).views(policy.vector)[f"{spec.layer_names()[-1]}.bias"][:] = np.float32(3e38)
    assert (policy.greedy(random_observation(spec, 3, np.random.default_rng(0))) == 0).all()
