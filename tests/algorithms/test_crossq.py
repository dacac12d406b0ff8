from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.crossq import CrossQTwin, new_crossq, set_moments
from tests.reference.sac import by_autograd, perturb, random_samples
from tests.support.replay_updates import (
    prepared,
    update,
)
from tests.support.thorough import examples

from offbeat.algorithms.base import Minibatch
from offbeat.algorithms.crossq import CrossQ
from offbeat.algorithms.crossq_config import CrossQConfig
from offbeat.core.errors import ConfigError
from offbeat.core.seeding import stream
from offbeat.workers.updates import UpdateMetrics, Updates

SMALL = CrossQConfig(hidden_sizes=(6, 5), learning_rate=1e-2, adam_eps=1e-3)


# --- the update ---------------------------------------------------------------------------------------------

configs = st.builds(
    replace,
    st.just(SMALL),
    hidden_sizes=st.sampled_from([(4,), (6, 5)]),
    activation=st.sampled_from(["tanh", "relu"]),
    critics=st.integers(1, 3),
    policy_delay=st.integers(1, 3),
    temperature=st.sampled_from([None, 0.1]),
    max_grad_norm=st.sampled_from([None, 0.05]),
    policy_learning_rate=st.sampled_from([None, 3e-3]),
    critic_learning_rate=st.sampled_from([None, 2e-3]),
    # A bias before a normalisation has a gradient of zero. With the default, Adam would make its rounding errors large.
    adam_eps=st.just(0.1),
)


@examples(100, derandomize=True)
@given(
    config=configs,
    action=st.sampled_from(["box", "matrix"]),
    autograd=st.booleans(),
    weighted=st.booleans(),
    renormalized=st.booleans(),
    rows=st.integers(1, 6),
    seed=st.integers(0, 2**31),
)
def test_updates_equal_those_of_a_twin_that_normalises_unit_by_unit(
    config, action, autograd, weighted, renormalized, rows, seed
):
    algorithm = new_crossq(action, replace(config, prioritized=weighted), seed=seed)
    if autograd:
        by_autograd(algorithm)
    perturb(algorithm, 0.3, seed)
    set_moments(algorithm, seed, renormalized=renormalized)
    twin = CrossQTwin(config, algorithm.weights())
    rates, updates = algorithm.start(0.5), Updates(algorithm)
    for number in range(4):
        minibatch = prepared(algorithm, rows, seed + number, weighted=weighted)
        assert updates.apply(number, minibatch, rates, UpdateMetrics())
        twin.update(number, minibatch, rates)
    ours, theirs = algorithm.weights(), twin.arrays()
    assert ours.keys() == {*theirs, "uniform"}
    for name, array in theirs.items():
        # Adam divides by the size of a gradient: where that is near zero, rounding grows. A rate is 1e-3 or more.
        np.testing.assert_allclose(ours[name], array, rtol=1e-5, atol=3e-5, err_msg=name)


def test_there_are_no_slow_copies_and_the_moments_change_in_every_update():
    algorithm = new_crossq("box", SMALL)
    perturb(algorithm, 0.1)
    assert not [name for name in algorithm.weights() if name.startswith("ema")]
    changed = []
    for number in range(3):
        before = {name: array.copy() for name, array in algorithm.weights().items()}
        update(algorithm, number=number)
        after = algorithm.weights()
        changed.append({name.split(".")[0] for name in after if not np.array_equal(after[name], before[name])})
    policy = {"policy_body", "policy_head", "log_alpha"}
    assert changed[0] == {"critics", "critic_moments", "uniform", *policy}
    assert changed[1] == changed[2] == {"critics", "critic_moments"}


def test_targets_bootstrap_after_a_truncation_but_not_after_a_termination():
    algorithm = new_crossq("box", SMALL)
    terminated = torch.tensor([True, False] * 3)
    samples = random_samples(algorithm.spec, 6, 0)
    samples["discount"] = torch.where(terminated, 0.0, 0.9)
    minibatch = algorithm.minibatch(samples, stream(0, "test"))
    values = torch.ones(2, 6)
    before, after = (algorithm.targets(minibatch, factor * values, torch.zeros(6)) for factor in (1, 2))
    assert torch.equal(before[terminated], samples["reward"][terminated])
    assert torch.equal(after != before, ~terminated)


def test_targets_of_a_subclass_give_the_critics_no_gradient_through_the_values_of_next_actions():
    class OwnTargets(CrossQ):
        def targets(self, minibatch: Minibatch, next_values: torch.Tensor, log_prob: torch.Tensor) -> torch.Tensor:
            soft_values = next_values.amin(dim=0) - self.temperature() * log_prob
            targets: torch.Tensor = minibatch["reward"] + minibatch["discount"] * soft_values
            return targets

    plain = new_crossq("box", SMALL)
    for algorithm in (plain, own := OwnTargets(plain.config, plain.spec, seed=0)):
        perturb(algorithm, 0.3)
        loss = algorithm.critic_loss(prepared(algorithm, 6, 0)).loss
        assert isinstance(loss, torch.Tensor)
        loss.backward()
    torch.testing.assert_close(own.critics.gradients, plain.critics.gradients)


def test_a_refused_update_leaves_the_moments_as_they_were():
    algorithm = new_crossq("box", SMALL)
    minibatch = prepared(algorithm, 8, 0)
    before = algorithm.moments.values.clone()
    broken = {**minibatch, "reward": torch.full((8,), torch.nan)}
    assert not Updates(algorithm).apply(0, broken, algorithm.start(0.0), UpdateMetrics())
    assert torch.equal(algorithm.moments.values, before)
    assert algorithm.moments.updates == 0


@pytest.mark.parametrize("autograd", [False, True])
def test_a_variance_that_overflows_refuses_the_update_and_does_not_reach_the_moments(autograd):
    algorithm = new_crossq("box", SMALL)
    if autograd:
        by_autograd(algorithm)
    samples = random_samples(algorithm.spec, 8, 0)
    samples["observation"][0] = 1e20
    before = algorithm.moments.values.clone()
    minibatch = algorithm.minibatch(samples, stream(0, "test"))
    assert not Updates(algorithm).apply(0, minibatch, algorithm.start(0.0), UpdateMetrics())
    assert torch.equal(algorithm.moments.values, before)


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"precision": "bf16"}, "precision is bf16.*not supported by CrossQ"),
        ({"layer_norm": True}, "layer_norm is true.*not supported by CrossQ.*batch normalisation"),
    ],
)
def test_settings_of_other_networks_are_refused(settings: dict[str, Any], words):
    with pytest.raises(ConfigError, match=words):
        replace(SMALL, **settings)
