"""Task inference: the posterior is the product of the factors of a context, and z of each column is its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from offbeat.core.errors import ConfigError
from offbeat.core.previous_inputs import previous_leaves
from offbeat.core.types import ActionSpec, Leaf
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.context_encoder import product_of_gaussians
from offbeat.models.published import published_layout
from offbeat.models.spec import TASK_VARIABLE, ContextEncoderSpec, PolicySpec
from offbeat.models.spec_file import read_spec
from offbeat.models.task_inference import MIN_VARIANCE, TaskInference

BOX = ActionSpec("box", (2,), low=(-1.0, -1.0), high=(1.0, 1.0))
ALL = np.ones(3, np.bool_)


def make_spec(**changes: Any) -> PolicySpec:
    values: dict[str, Any] = {
        "observation": (Leaf("observation", (4,), "float32"),),
        "action": BOX,
        "hidden_sizes": (8,),
        "activation": "relu",
        "distribution": "tanh_gaussian",
        "normalize": False,
        "context_encoder": ContextEncoderSpec(latent_size=2, hidden_sizes=(5,)),
    }
    return PolicySpec(**{**values, **changes})


def random_policy(spec: PolicySpec, seed: int = 0) -> ActingPolicy:
    policy = make_policy(spec)
    policy.load(np.random.default_rng(seed).normal(size=published_layout(spec).size).astype(np.float32))
    return policy


def test_a_spec_from_a_file_with_a_context_encoder_and_previous_inputs_is_refused():
    for leaf in previous_leaves(BOX, action=True, reward=True):
        data = make_spec(observation=(*make_spec().observation, leaf)).to_json()
        with pytest.raises(ConfigError, match=f"{leaf.name} is an input, but a context encoder does not support it"):
            read_spec(data)


class Transitions:
    """Random transitions of three columns, that are added to a `TaskInference`."""

    def __init__(self, inference: TaskInference, spec: PolicySpec) -> None:
        self._inference, self._spec, self._random = inference, spec, np.random.default_rng(7)
        self.contexts: list[list[np.ndarray[Any, Any]]] = [[], [], []]
        """By column: the inputs of its context."""

    def add(self, where: np.ndarray[Any, Any] = ALL) -> None:
        observation, following = self._random.normal(size=(2, 3, 4)).astype(np.float32)
        action = self._random.normal(size=(3, 2)).astype(np.float32)
        reward = self._random.normal(size=3).astype(np.float32)
        self._inference.observe({"observation": observation}, action, reward, {"observation": following}, where)
        assert self._spec.context_encoder is not None
        for column in np.flatnonzero(where):
            row = [*observation[column], *action[column], reward[column]]
            row += list(following[column]) if self._spec.context_encoder.next_observation else []
            self.contexts[column].append(np.array(row))


def product_of_factors(policy: ActingPolicy, rows: list[np.ndarray[Any, Any]]) -> tuple[list[float], list[float]]:
    """Return mean and variance of the posterior, factor by factor and number by number, in float64."""
    arrays = {
        name: view.astype(np.float64) for name, view in published_layout(policy.spec).views(policy.vector).items()
    }
    sums = [[0.0, 0.0], [0.0, 0.0]]
    for row in rows:
        hidden = np.maximum(arrays["context_encoder.0.weight"] @ row + arrays["context_encoder.0.bias"], 0)
        outputs = arrays["context_encoder.1.weight"] @ hidden + arrays["context_encoder.1.bias"]
        for i in range(2):
            variance = max(math.log1p(math.exp(outputs[2 + i])), float(MIN_VARIANCE))
            sums[i][0] += 1 / variance
            sums[i][1] += outputs[i] / variance
    return [m / p for p, m in sums], [1 / p for p, _ in sums]


@pytest.mark.parametrize("next_observation", [False, True])
def test_the_posterior_is_the_product_of_the_factors_of_each_columns_context(next_observation: bool) -> None:
    spec = make_spec(context_encoder=ContextEncoderSpec(2, (5,), next_observation=next_observation))
    policy = random_policy(spec)
    inference = TaskInference(policy, 3)
    transitions = Transitions(inference, spec)
    for where in (ALL, np.array([True, False, True]), np.array([True, False, False])):
        transitions.add(where)
    assert inference.context_sizes.tolist() == [3, 1, 2]
    mean, variance = inference.posterior()
    for column, rows in enumerate(transitions.contexts):
        expected_mean, expected_variance = product_of_factors(policy, rows)
        assert mean[column] == pytest.approx(expected_mean, rel=1e-4, abs=1e-5)
        assert variance[column] == pytest.approx(expected_variance, rel=1e-4)


def test_the_variance_of_a_factor_has_a_minimum_in_numpy_and_in_torch() -> None:
    spec = make_spec()
    policy = random_policy(spec)
    last = published_layout(spec).views(policy.vector)
    last["context_encoder.1.weight"][:] = 0
    last["context_encoder.1.bias"][:] = outputs = [0.5, -2, -200, -200]  # whose softplus is 0
    inference = TaskInference(policy, 3)
    Transitions(inference, spec).add()
    of_torch = product_of_gaussians(torch.tensor(outputs).reshape(1, 1, 4))
    for mean, variance in (inference.posterior(), of_torch):
        np.testing.assert_allclose(mean[0], [0.5, -2], rtol=1e-6)
        np.testing.assert_allclose(variance[0], MIN_VARIANCE, rtol=1e-6)


def test_the_posterior_without_context_is_the_standard_normal_distribution() -> None:
    inference = TaskInference(random_policy(make_spec()), 3)
    mean, variance = inference.posterior()
    assert (mean == 0).all()
    assert (variance == 1).all()


def test_the_posterior_follows_from_the_weights_that_are_loaded_now() -> None:
    spec = make_spec()
    policy = random_policy(spec)
    inference = TaskInference(policy, 3)
    transitions = Transitions(inference, spec)
    transitions.add()
    other = random_policy(spec, seed=1)
    policy.load(other.vector)
    mean, _ = inference.posterior()
    expected, _ = product_of_factors(other, transitions.contexts[0])
    assert mean[0] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_z_is_drawn_with_mean_and_variance_of_the_posterior() -> None:
    spec = make_spec()
    inference = TaskInference(random_policy(spec), 3)
    Transitions(inference, spec).add()
    mean, variance = inference.posterior()
    random, draws = np.random.default_rng(3), []
    for _ in range(4000):
        inference.sample_posterior(random, ALL)
        draws.append(inference.z.copy())
    assert np.mean(draws, axis=0) == pytest.approx(mean, abs=4 * float(np.sqrt(variance.max() / 4000)))
    assert np.var(draws, axis=0) == pytest.approx(variance, rel=0.15)


def test_z_of_columns_that_are_not_drawn_does_not_change() -> None:
    inference = TaskInference(random_policy(make_spec()), 3)
    random = np.random.default_rng(0)
    inference.sample_prior(random, ALL)
    before = inference.z.copy()
    inference.sample_prior(random, np.array([False, True, False]))
    inference.sample_posterior(random, np.array([False, False, False]))
    changed = (inference.z != before).any(axis=1)
    assert changed.tolist() == [False, True, False]


def test_reset_forgets_the_context_and_z() -> None:
    spec = make_spec()
    inference = TaskInference(random_policy(spec), 3)
    Transitions(inference, spec).add()
    inference.sample_posterior(np.random.default_rng(0), ALL)
    inference.reset()
    assert not inference.context_sizes.any()
    assert not inference.z.any()
    assert (inference.posterior().variance == 1).all()


def test_a_snapshot_continues_bit_for_bit() -> None:
    spec = make_spec()
    policy = random_policy(spec)
    first, second = TaskInference(policy, 3), TaskInference(policy, 3)
    transitions = Transitions(first, spec)
    for where in (ALL, np.array([True, False, True]), ALL):
        transitions.add(where)
    first.sample_prior(np.random.default_rng(0), ALL)
    state = first.snapshot()
    expected = [first.z.tobytes(), _next_z(first, spec)]
    first.reset()  # the snapshot must not change meanwhile
    transitions.add()
    second.restore(state)
    assert [second.z.tobytes(), _next_z(second, spec)] == expected


def _next_z(inference: TaskInference, spec: PolicySpec) -> bytes:
    """Return z after another transition in each column."""
    Transitions(inference, spec).add()
    inference.sample_posterior(np.random.default_rng(1), ALL)
    return inference.z.tobytes()


def test_the_task_variable_is_an_input_of_the_policy() -> None:
    policy = random_policy(make_spec())
    inference = TaskInference(policy, 3)
    observation = {"observation": np.zeros((3, 4), np.float32)}
    without = policy.greedy(inference.with_task(observation)).copy()
    inference.sample_prior(np.random.default_rng(0), ALL)
    assert (inference.with_task(observation)[TASK_VARIABLE] == inference.z).all()
    assert (policy.greedy(inference.with_task(observation)) != without).all()


def test_discrete_actions_are_one_hot_inputs_of_the_context_encoder() -> None:
    spec = make_spec(action=ActionSpec("discrete", (), nvec=(3,)), distribution="categorical")
    policy = random_policy(spec)
    arrays = published_layout(spec).views(policy.vector)
    assert arrays["context_encoder.0.weight"].shape == (5, 4 + 3 + 1)
    means = []
    for choice in range(3):
        inference = TaskInference(policy, 1)
        observation = {"observation": np.zeros((1, 4), np.float32)}
        inference.observe(observation, np.array([choice]), np.zeros(1), observation, np.ones(1, np.bool_))
        means.append(tuple(inference.posterior().mean[0]))
    assert len(set(means)) == 3


def test_a_policy_file_with_a_context_encoder_is_read_back_and_checked() -> None:
    spec = make_spec()
    assert read_spec(spec.to_json()) == spec
    with pytest.raises(ConfigError, match="context encoder supports plain networks"):
        read_spec(make_spec(normalize=True).to_json())
    wrong = spec.to_json()
    wrong["context_encoder"]["latent_size"] = -1
    with pytest.raises(ConfigError, match="latent_size"):
        read_spec(wrong)
