from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.reference.sac import BOUNDED, Twin, bounded_spec, by_autograd, new_sac, perturb, random_samples
from tests.support.models import ACTIONS, OBSERVATIONS, random_observation
from tests.support.replay_updates import (
    prepared,
    published,
    update,
)
from tests.support.thorough import examples

from offbeat.algorithms.replay_actor_critic import CRITIC, POLICY
from offbeat.algorithms.sac_config import SACConfig
from offbeat.algorithms.soft_actor_critic import TEMPERATURE
from offbeat.core.errors import ConfigError
from offbeat.core.fields import build
from offbeat.core.seeding import stream
from offbeat.core.types import ActionSpec, EnvSpec
from offbeat.workers.updates import UpdateMetrics, Updates

SMALL = SACConfig(hidden_sizes=(6, 5), learning_rate=1e-2, ema_rate=0.1, adam_eps=1e-3)
FIXED = replace(SMALL, temperature=0.1)


# --- the update ---------------------------------------------------------------------------------------------

configs = st.builds(
    replace,
    st.just(SMALL),
    hidden_sizes=st.sampled_from([(), (4,), (6, 5)]),
    activation=st.sampled_from(["tanh", "relu"]),
    critics=st.integers(1, 3),
    layer_norm=st.booleans(),
    policy_delay=st.integers(1, 2),
    temperature=st.sampled_from([None, 0.0, 0.3]),
    initial_temperature=st.sampled_from([1.0, 0.05]),
    target_entropy=st.sampled_from([None, -3.0]),
    max_grad_norm=st.sampled_from([None, 0.05]),
    policy_learning_rate=st.sampled_from([None, 3e-3]),
    critic_learning_rate=st.sampled_from([None, 2e-3]),
    temperature_learning_rate=st.sampled_from([None, 1e-3]),
).map(
    lambda config: (
        config
        if config.temperature is None
        else replace(config, initial_temperature=1.0, target_entropy=None, temperature_learning_rate=None)
    )
)


@examples(100, derandomize=True)
@given(
    configs, st.sampled_from(sorted(BOUNDED)), st.booleans(), st.booleans(), st.integers(1, 6), st.integers(0, 2**31)
)
def test_sac_updates_equal_those_of_separate_modules_with_torchs_adam(config, action, autograd, weighted, rows, seed):
    assume(config.hidden_sizes or BOUNDED[action].kind != "box")
    algorithm = new_sac(action, replace(config, prioritized=weighted), seed=seed)
    if autograd:
        by_autograd(algorithm)
    perturb(algorithm, 0.3, seed)
    twin = Twin(config, algorithm.spec, algorithm.weights())
    rates, updates = algorithm.start(0.5), Updates(algorithm)
    for number in range(3):
        minibatch = prepared(algorithm, rows, seed + number, weighted=weighted)
        assert updates.apply(number, minibatch, rates, UpdateMetrics())
        twin.update(number, minibatch, rates)
    ours, theirs = algorithm.weights(), twin.arrays()
    assert ours.keys() == {*theirs, "uniform"}
    for name, array in theirs.items():
        # Adam divides by the size of a gradient: where that is near zero, rounding grows. A rate is 1e-3 or more.
        np.testing.assert_allclose(ours[name], array, rtol=1e-6, atol=1e-5, err_msg=name)


def test_a_fixed_temperature_has_no_update_stage():
    learned, fixed = new_sac("box", SMALL), new_sac("box", FIXED)
    assert [stage.name for stage in learned.stages] == [CRITIC, POLICY, TEMPERATURE]
    assert [stage.name for stage in fixed.stages] == [CRITIC, POLICY]
    assert fixed.groups.keys() == fixed.start(0.0).keys() == {CRITIC, POLICY}
    assert "log_alpha" not in fixed.weights()


@pytest.mark.parametrize(("action", "target"), [("box", -2.0), ("matrix", -4.0), ("discrete", 0.7 * math.log(3))])
def test_the_temperature_changes_in_the_direction_of_the_target_entropy(action, target):
    config = replace(SMALL, initial_temperature=0.5)
    algorithm = new_sac(action, config)
    assert algorithm._target_entropy == pytest.approx(target)
    entropy = update(algorithm)["entropy"]
    for shift in (-0.1, 0.1):
        algorithm = new_sac(action, config)
        algorithm._target_entropy = entropy + shift  # whether or not any policy could meet it
        assert update(algorithm)["temperature"] == pytest.approx(0.5)
        assert np.sign(algorithm.temperature().item() - 0.5) == np.sign(shift)


def test_with_masks_the_default_target_entropy_is_that_of_the_allowed_choices():
    algorithm = new_sac("masked", SMALL)
    minibatch = prepared(algorithm, 8, 0)
    allowed = minibatch["mask"].sum(dim=1).tolist()
    assert len(set(allowed)) > 1
    expected = 0.7 * sum(map(math.log, allowed)) / 8
    assert float(algorithm.entropy_target(minibatch)) == pytest.approx(expected)
    assert new_sac("masked", replace(SMALL, target_entropy=0.2)).entropy_target(minibatch) == 0.2


def test_metrics_describe_the_update():
    for action in ("discrete", "box"):
        algorithm = new_sac(action, SMALL)
        minibatch = prepared(algorithm, 8, 0)
        with torch.no_grad():
            q_mean = algorithm.values(minibatch).mean().item()
        figures = update(algorithm)
        assert figures["q_mean"] == pytest.approx(q_mean, rel=1e-5)
        assert figures["temperature"] == pytest.approx(1.0)
        assert {"critic_loss", "policy_loss", "temperature_loss", "entropy"} < figures.keys()


# --- minibatches --------------------------------------------------------------------------------------------


def test_observations_are_concatenated_and_actions_flattened():
    algorithm = new_sac("matrix", replace(SMALL, prioritized=True), observation="dict")
    samples = random_samples(algorithm.spec, 5, 0, weighted=True)
    minibatch = algorithm.minibatch(samples, stream(0, "test"))
    for prefix, name in (("", "observation"), ("next/", "next_observation")):
        leaves = [samples[prefix + leaf.name].float().reshape(5, -1) for leaf in OBSERVATIONS["dict"]]
        torch.testing.assert_close(minibatch[name], torch.cat(leaves, 1), rtol=0, atol=0)
    assert torch.equal(minibatch["action"], samples["action"].reshape(5, 4))
    for name in ("reward", "discount", "weight"):
        assert torch.equal(minibatch[name], samples[name])


def test_each_minibatch_samples_separate_noise_for_both_actions_from_the_given_stream():
    algorithm = new_sac("box", SMALL)
    samples, random = random_samples(algorithm.spec, 500, 0), stream(0, "test")
    first, second = algorithm.minibatch(samples, random), algorithm.minibatch(samples, random)
    again = algorithm.minibatch(samples, stream(0, "test"))
    drawn = [minibatch[name] for minibatch in (first, second) for name in ("noise", "next_noise")]
    assert all(noise.shape == (500, 2) and noise.dtype == torch.float32 for noise in drawn)
    assert torch.equal(again["noise"], first["noise"])
    assert torch.equal(again["next_noise"], first["next_noise"])
    stacked = torch.stack([noise.flatten() for noise in drawn])
    assert (torch.corrcoef(stacked) - torch.eye(4)).abs().max() < 0.12
    assert (stacked.std(dim=1) - 1).abs().max() < 0.1


def test_discrete_actions_sample_no_noise():
    algorithm = new_sac("discrete", SMALL)
    random = stream(0, "test")
    assert "noise" not in algorithm.minibatch(random_samples(algorithm.spec, 5, 0), random)
    assert random.random() == stream(0, "test").random()


def test_observations_are_normalized_with_the_statistics_of_earlier_tickets():
    algorithm = new_sac("box", replace(SMALL, normalize_observations=True), observation="dict")
    random = np.random.default_rng(0)
    seen = {name: torch.from_numpy(leaf) for name, leaf in random_observation(algorithm.spec, 50, random).items()}
    assert algorithm.finish(seen) == {}
    rows = torch.cat([seen[leaf.name].double().reshape(50, -1) for leaf in OBSERVATIONS["dict"]], 1)
    samples = random_samples(algorithm.spec, 5, 1)
    minibatch = algorithm.minibatch(samples, stream(0, "test"))
    for prefix, name in (("", "observation"), ("next/", "next_observation")):
        raw = torch.cat([samples[prefix + leaf.name].double().reshape(5, -1) for leaf in OBSERVATIONS["dict"]], 1)
        expected = ((raw - rows.mean(0)) / rows.std(0, correction=0)).clamp(-10, 10)
        torch.testing.assert_close(minibatch[name].double(), expected, rtol=1e-4, atol=1e-4)
    policy = published(algorithm)
    observation = {name: leaf.numpy() for name, leaf in seen.items()}
    again = ((rows - rows.mean(0)) / rows.std(0, correction=0)).clamp(-10, 10)
    parameters = algorithm.policy_network(again.float())[0].detach()
    np.testing.assert_allclose(policy.forward(observation), parameters, atol=1e-4)


def test_without_normalization_new_tickets_change_no_state():
    algorithm = new_sac("box", SMALL)
    before = algorithm.minibatch(random_samples(algorithm.spec, 5, 0), stream(0, "test"))["observation"].clone()
    algorithm.finish({"observation": torch.randn(9, 3)})
    after = algorithm.minibatch(random_samples(algorithm.spec, 5, 0), stream(0, "test"))["observation"]
    assert torch.equal(after, before)


# --- what is published and kept -----------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["discrete", "box"])
def test_actions_are_uniform_until_the_first_update(action):
    algorithm = new_sac(action, SMALL)
    perturb(algorithm, 3.0)
    observation = {"observation": np.ones((4000, 3), np.float32)}
    before = published(algorithm).act(observation, stream(0, "test")).action
    update(algorithm)
    after = published(algorithm).act(observation, stream(0, "test")).action
    if action == "discrete":
        assert np.bincount(before, minlength=3).min() > 1200
        assert np.bincount(after, minlength=3).min() < 1000
    else:
        assert np.abs(before.mean(axis=0)).max() < 0.05
        assert np.abs(before.std(axis=0) - 1 / math.sqrt(3)).max() < 0.03
        assert np.abs(after.std(axis=0) - 1 / math.sqrt(3)).max() > 0.06


def test_an_update_that_was_refused_does_not_end_uniform_actions():
    algorithm = new_sac("box", SMALL)
    minibatch = {**prepared(algorithm, 4, 0), "reward": torch.full((4,), math.nan)}
    assert not Updates(algorithm).apply(0, minibatch, algorithm.start(0.0), UpdateMetrics())
    assert algorithm.weights()["uniform"] == [1]


def test_sac_records_no_fields_besides_those_of_the_env():
    assert new_sac("box", SMALL).fields() == new_sac("discrete", SMALL).fields() == []


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["discrete", "box"])
def test_layer_normalization_is_that_of_the_critics_alone(action):
    algorithm, without = (new_sac(action, replace(SMALL, layer_norm=given)) for given in (True, False))
    added = algorithm.weights().keys() - without.weights().keys()
    kinds = ("critics.scales", "critics.shifts", "ema_critics.scales", "ema_critics.shifts")
    assert added == {f"{kind}.{layer}" for kind in kinds for layer in range(2)}
    assert algorithm.spec == without.spec


LIMIT = 2 * math.log(2)


def env_of(action: ActionSpec) -> EnvSpec:
    return EnvSpec("Test-v0", OBSERVATIONS["vector"], action, 4)


@pytest.mark.parametrize(
    ("action", "changes", "words"),
    [
        (ACTIONS["discrete"], {"target_entropy": 1.2}, "1.2, .*less than 1.099 .*--set target_entropy=0.769"),
        (ACTIONS["box"], {"target_entropy": LIMIT}, "less than 1.386 .*--set target_entropy=-2"),
    ],
)
def test_target_entropies_that_no_policy_has_are_refused(action, changes, words):
    with pytest.raises(ConfigError, match=words):
        replace(SMALL, **changes).policy_spec(env_of(action))


@pytest.mark.parametrize(("action", "distribution"), [("discrete", "categorical"), ("box", "tanh_gaussian")])
def test_the_distribution_matches_the_action_space(action, distribution):
    spec = bounded_spec(action, build(SACConfig, {"temperature": "none", "max_grad_norm": "none"}, "[sac]"))
    assert (spec.distribution, spec.activation, spec.hidden_sizes) == (distribution, "relu", (256, 256))
    assert spec.outputs == (3 if action == "discrete" else 4)


@pytest.mark.parametrize(
    ("changes", "rates"),
    [
        ({}, (3e-4, 3e-4, 3e-4)),
        ({"learning_rate": 1e-3, "critic_learning_rate": 2e-3}, (2e-3, 1e-3, 1e-3)),
        ({"policy_learning_rate": 1e-4, "temperature_learning_rate": 5e-5}, (3e-4, 1e-4, 5e-5)),
    ],
)
def test_each_parameter_group_has_its_own_learning_rate_or_the_common_one(changes: dict[str, Any], rates):
    algorithm = new_sac("box", SACConfig(hidden_sizes=(4,), **changes))
    given = algorithm.start(0.7)
    assert (given[CRITIC], given[POLICY], given[TEMPERATURE]) == rates
