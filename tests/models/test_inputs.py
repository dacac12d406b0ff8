from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.models import OBSERVATIONS, policy_spec, policy_specs, random_observation
from tests.support.thorough import examples

from offbeat.algorithms.statistics import Statistics
from offbeat.models.inputs import flatten, one_hot_inputs
from offbeat.models.storage import PrivateStorage
from offbeat.models.tensor_inputs import flatten_tensors


@examples(60)
@given(policy_specs(), st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_numpy_and_torch_flatten_observations_equally(spec, seed, rows):
    observation = random_observation(spec, rows, np.random.default_rng(seed))
    inputs = flatten(spec.vectors, observation)
    assert inputs.shape == (rows, spec.inputs)
    assert inputs.dtype == np.float32
    tensors = {f"next/{name}": torch.from_numpy(leaf) for name, leaf in observation.items()}
    np.testing.assert_array_equal(flatten_tensors(spec.vectors, tensors, "next/"), inputs)
    folded = {name: leaf[:, None] for name, leaf in tensors.items()}
    np.testing.assert_array_equal(flatten_tensors(spec.vectors, folded, "next/")[:, 0], inputs)


def test_discrete_leaves_are_one_hot_encoded_in_the_order_of_the_leaves():
    spec = policy_spec("discrete", observation="choices")
    card, dice, place = np.array([2]), np.array([[[1, 7], [0, 3]]]), np.array([[0.5, -1.0, 4.0]], np.float32)
    observation = {"observation/card": card, "observation/dice": dice, "observation/place": place}
    [row] = flatten(spec.vectors, observation)
    assert np.flatnonzero(row).tolist() == [2, 4 + 1, 7 + 7, 307 + 0, 309 + 3, 314, 315, 316]
    assert row[-3:].tolist() == [0.5, -1.0, 4.0]
    assert one_hot_inputs(spec.vectors).tolist() == [True] * 314 + [False] * 3


def test_a_single_leaf_of_float32_is_not_copied():
    given = np.zeros((4, 3), np.float32)
    assert np.shares_memory(flatten(OBSERVATIONS["vector"], {"observation": given}), given)


@pytest.mark.parametrize("observation", ["choices", "masked choices"])
def test_discrete_leaves_are_never_normalized_and_numeric_leaves_are(observation):
    spec, random = policy_spec("discrete", observation=observation, normalize=True), np.random.default_rng(0)
    statistics = Statistics(spec, PrivateStorage(), returns=False, device="cpu")
    rows = torch.from_numpy(flatten(spec.vectors, random_observation(spec, 50, random)))
    statistics.update(rows, torch.zeros(0))
    seen = statistics.normalized(rows)
    assert torch.equal(seen[:, :-3], rows[:, :-3])
    torch.testing.assert_close(seen[:, -3:].mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(seen[:, -3:].std(0, correction=0), torch.ones(3), atol=1e-4, rtol=0)
    assert statistics.published["observation_scale"][:-3].tolist() == [1] * (spec.inputs - 3)
