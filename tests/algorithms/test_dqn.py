from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import dqn as slow
from tests.reference.dqn import Twin, new_dqn, perturb
from tests.support.models import ACTIONS, random_observation
from tests.support.replay_updates import (
    prepared,
    published,
    update,
)
from tests.support.thorough import examples

from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.core.seeding import stream
from offbeat.core.types import EnvSpec, Leaf
from offbeat.models.tensor_inputs import flatten_tensors
from offbeat.workers.updates import UpdateMetrics, Updates

SMALL = DQNConfig(hidden_sizes=(6, 5), learning_rate=1e-2, ema_rate=0.1, adam_eps=1e-3, exploration_fraction=0.5)


# --- the update ---------------------------------------------------------------------------------------------

configs = st.builds(
    replace,
    st.just(SMALL),
    hidden_sizes=st.sampled_from([(), (4,), (6, 5)]),
    activation=st.sampled_from(["tanh", "relu"]),
    double=st.booleans(),
    ema_rate=st.sampled_from([0.1, 1.0]),
    ema_every=st.integers(1, 3),
    max_grad_norm=st.sampled_from([None, 0.05]),
)


@examples(60, derandomize=True)
@given(configs, st.sampled_from(["vector", "masked"]), st.booleans(), st.integers(1, 6), st.integers(0, 2**31))
def test_dqn_updates_equal_those_of_plain_modules_with_torchs_adam(config, observation, weighted, rows, seed):
    algorithm = new_dqn(replace(config, prioritized=weighted), observation=observation, seed=seed)
    perturb(algorithm, 0.3, seed)
    twin, updates, rates = Twin(config, algorithm.weights()), Updates(algorithm), algorithm.start(0.5)
    for number in range(4):
        minibatch = prepared(algorithm, rows, seed + number, weighted=weighted)
        assert updates.apply(number, minibatch, rates, UpdateMetrics())
        twin.update(minibatch)
        if weighted:
            np.testing.assert_allclose(algorithm.priorities(minibatch), twin.errors, rtol=1e-3, atol=1e-5)
    ours, theirs = algorithm.weights(), twin.arrays()
    assert ours.keys() == {*theirs, "epsilon", "updates"}
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, rtol=1e-5, atol=1e-5, err_msg=name)
    assert ours["updates"] == [4]


def test_metrics_describe_the_update():
    algorithm = new_dqn(SMALL)
    minibatch = prepared(algorithm, 8, 0)
    chosen = algorithm.network(minibatch["observation"])[0].gather(1, minibatch["action"][:, None])
    figures = update(algorithm, progress=0.25)
    assert figures["q_mean"] == pytest.approx(chosen.mean().item(), rel=1e-5)
    assert figures["epsilon"] == pytest.approx(1 - 0.95 / 2)
    assert {"critic_loss", "grad_norm"} < figures.keys()


# --- exploring ----------------------------------------------------------------------------------------------


@given(st.floats(0, 1), st.sampled_from([0.0, 0.04, 1.0]), st.sampled_from([0.0, 0.16, 1.0]))
def test_epsilon_decays_linearly_and_then_stays_constant(progress, final, fraction):
    config = replace(SMALL, final_epsilon=final, exploration_fraction=fraction)
    assert config.epsilon(progress) == pytest.approx(slow.epsilon(config, progress))
    assert config.epsilon(1.0) == pytest.approx(final)


def test_actions_are_random_before_the_first_update_and_with_probability_epsilon_after_it():
    algorithm = new_dqn(SMALL)
    perturb(algorithm, 1.0)
    observation = {"observation": np.ones((20_000, 3), np.float32)}

    def shares() -> np.ndarray:
        action = published(algorithm).act(observation, stream(0, "test")).action
        return np.bincount(action, minlength=3) / len(action)

    algorithm.start(0.4)
    assert np.abs(shares() - 1 / 3).max() < 0.02
    update(algorithm, progress=0.4)
    epsilon = 1 - 0.95 * 0.8
    best = published(algorithm).greedy(observation)[0]
    expected = np.full(3, epsilon / 3)
    expected[best] += 1 - epsilon
    assert np.abs(shares() - expected).max() < 0.02


def test_a_refused_update_changes_neither_epsilon_nor_the_update_count():
    algorithm = new_dqn(SMALL)
    minibatch = {**prepared(algorithm, 4, 0), "reward": torch.full((4,), math.nan)}
    assert not Updates(algorithm).apply(0, minibatch, algorithm.start(0.5), UpdateMetrics())
    kept = algorithm.weights()
    assert (float(kept["epsilon"][0]), int(kept["updates"][0])) == (1, 0)


# --- what is published and kept -----------------------------------------------------------------------------


def test_the_published_policy_computes_the_q_values_of_the_network():
    algorithm = new_dqn(replace(SMALL, normalize_observations=True), observation="dict")
    observation = random_observation(algorithm.spec, 6, np.random.default_rng(0))
    tensors = {name: torch.from_numpy(leaf) for name, leaf in observation.items()}
    algorithm.finish(tensors)
    seen = algorithm._statistics.normalized(flatten_tensors(algorithm.spec.vectors, tensors))
    values = algorithm.network(seen)[0].detach().numpy()
    np.testing.assert_allclose(published(algorithm).forward(observation), values, atol=1e-5)
    np.testing.assert_array_equal(published(algorithm).greedy(observation), values.argmax(1))


def test_normalization_leaves_observations_that_are_images_alone_as_they_are():
    images = (Leaf("observation", (36, 36, 3), "uint8"),)
    config = replace(SMALL, normalize_observations=True)
    algorithm = DQN(config, config.policy_spec(EnvSpec("Test-v0", images, ACTIONS["discrete"], 4)), seed=0)
    before = algorithm.state()
    assert algorithm.finish({"observation": torch.ones(5, 36, 36, 3, dtype=torch.uint8)}) == {}
    np.testing.assert_equal(algorithm.state(), before)
