"""Policies in torch act as the network says that is learned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support.models import policy_spec, random_observation, random_vector

from offbeat.core.types import Leaf
from offbeat.models.acting import make_policy
from offbeat.models.actor_critic import ActorCritic
from offbeat.models.flat import FlatParameters
from offbeat.models.mlp import NumpyNetwork
from offbeat.models.policy_network import CoreState
from offbeat.models.published import parameter_shapes, published_layout
from offbeat.models.spec import PolicySpec
from offbeat.models.spec_file import read_spec
from offbeat.models.torch_acting import TorchNetwork

IMAGES = (Leaf("observation/image", (36, 36, 3), "uint8"), Leaf("observation/place", (3,), "float32"))
SPECS = {
    "nature cnn": replace(policy_spec("discrete", normalize=True), observation=IMAGES, encoder="nature_cnn"),
    "impala": replace(policy_spec("box"), observation=IMAGES[:1], encoder="impala_resnet", hidden_sizes=()),
    "layer norm": replace(policy_spec("multidiscrete"), layer_norm=True),
    "gru": replace(policy_spec("discrete", normalize=True), core="gru", core_size=6),
    "lstm": replace(policy_spec("box", activation="relu"), core="lstm", core_size=5, hidden_sizes=()),
    "all": replace(
        policy_spec("multidiscrete"),
        observation=IMAGES,
        encoder="nature_cnn",
        core="lstm",
        core_size=4,
        layer_norm=True,
    ),
    "bf16": replace(policy_spec("discrete"), precision="bf16"),
    "gru, bf16": replace(policy_spec("discrete"), core="gru", core_size=6, precision="bf16"),
    "lstm, bf16": replace(policy_spec("box"), core="lstm", core_size=5, precision="bf16"),
}


def published(spec: PolicySpec, seed: int = 0) -> tuple[ActorCritic, np.ndarray]:
    """A network, and its policy as it is published, with statistics that do something."""
    generator = torch.Generator().manual_seed(seed)
    network = ActorCritic(spec, shared=True, log_std_init=-0.5, generator=generator)
    flat, vector = FlatParameters(network), random_vector(spec, np.random.default_rng(seed))
    policy = [name for name, _ in parameter_shapes(spec)]
    views = published_layout(spec).views(vector)
    for name in policy:
        views[name][...] = flat.arrays()[name].numpy()
    return network, vector


def inputs(spec: PolicySpec, policy, observation):
    inputs = torch.from_numpy(policy.inputs(observation))
    return inputs, {leaf.name: torch.from_numpy(observation[leaf.name]) for leaf in spec.encoded}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_torch_acting_uses_the_learned_network(spec):
    random = np.random.default_rng(3)
    network, vector = published(spec)
    policy = make_policy(spec)
    assert isinstance(policy.network, TorchNetwork)
    policy.load(vector)
    observation = random_observation(spec, 4, random)
    state = random.normal(size=(4, spec.state_size)).astype(np.float32)
    core_state = CoreState(torch.from_numpy(state.copy()), torch.zeros(1, 4, dtype=torch.bool))
    vector_of, encoded = inputs(spec, policy, observation)
    with torch.no_grad():
        distribution, _ = network.distribution_and_values(vector_of, encoded, core_state if spec.recurrent else None)
    acted = policy.act(observation, np.random.default_rng(0), state)
    log_prob = distribution.log_prob(torch.from_numpy(acted.action)).detach()
    np.testing.assert_allclose(acted.recorded["behavior_log_prob"], log_prob.numpy(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["gru", "lstm", "all"])
def test_core_states_of_acting_equal_those_of_learning(name):
    spec, random = SPECS[name], np.random.default_rng(4)
    network, vector = published(spec)
    policy = make_policy(spec)
    policy.load(vector)
    rows, columns = 5, 3
    observations = [random_observation(spec, columns, random) for _ in range(rows)]
    state = np.zeros((columns, spec.state_size), np.float32)
    acted = []
    for row, observation in enumerate(observations):
        acted.append(policy.act(observation, np.random.default_rng(row), state))
        if row == 2:
            state[1] = 0
    resets = torch.zeros(rows, columns, dtype=torch.bool)
    resets[2, 1] = True
    whole = {leaf: np.concatenate([o[leaf] for o in observations]) for leaf in observations[0]}
    with torch.no_grad():
        start = CoreState(torch.zeros(columns, spec.state_size), resets)
        vector_of, encoded = inputs(spec, policy, whole)
        distribution, _ = network.distribution_and_values(vector_of, encoded, start)
    actions = torch.from_numpy(np.concatenate([each.action for each in acted]))
    recorded = np.concatenate([each.recorded["behavior_log_prob"] for each in acted])
    np.testing.assert_allclose(recorded, distribution.log_prob(actions).detach().numpy(), atol=1e-5, rtol=1e-5)


def test_load_copies_new_weights_into_the_network():
    spec = SPECS["gru"]
    policy, observation = make_policy(spec), random_observation(SPECS["gru"], 2, np.random.default_rng(0))
    outputs = []
    for seed in (0, 1):
        _, vector = published(spec, seed)
        policy.load(vector)
        vector[:] = np.nan
        outputs.append(policy.forward(observation, np.zeros((2, spec.state_size), np.float32)).copy())
    assert np.isfinite(outputs).all()
    assert not np.allclose(outputs[0], outputs[1])


def test_acting_with_a_core_without_a_state_is_refused():
    with pytest.raises(ValueError, match="zeros at first"):
        make_policy(SPECS["gru"]).forward(random_observation(SPECS["gru"], 2, np.random.default_rng(0)))


def test_a_plain_policy_spec_acts_in_numpy():
    assert isinstance(make_policy(policy_spec("discrete")).network, NumpyNetwork)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_policy_spec_is_unchanged_by_json(spec):
    assert read_spec(spec.to_json()) == spec
