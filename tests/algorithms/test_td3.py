from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.sac import by_autograd, perturb, random_samples
from tests.reference.td3 import TD3Twin, new_td3
from tests.support.replay_runs import small_sac
from tests.support.replay_updates import (
    prepared,
    published,
    update,
)
from tests.support.runs import weights_of
from tests.support.thorough import examples

from offbeat.algorithms.td3_config import TD3Config
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.seeding import stream
from offbeat.workers.updates import REFUSED_IN_A_ROW, UpdateMetrics, Updates

SMALL = TD3Config(hidden_sizes=(6, 5), learning_rate=1e-2, ema_rate=0.1, adam_eps=1e-3)


# --- the update ---------------------------------------------------------------------------------------------

configs = st.builds(
    replace,
    st.just(SMALL),
    hidden_sizes=st.sampled_from([(4,), (6, 5)]),
    activation=st.sampled_from(["tanh", "relu"]),
    critics=st.integers(1, 3),
    layer_norm=st.booleans(),
    policy_delay=st.integers(1, 3),
    target_policy_noise=st.sampled_from([0.0, 0.2, 1.0]),
    target_noise_clip=st.sampled_from([0.0, 0.5]),
    max_grad_norm=st.sampled_from([None, 0.05]),
    policy_learning_rate=st.sampled_from([None, 3e-3]),
    critic_learning_rate=st.sampled_from([None, 2e-3]),
)


@examples(100, derandomize=True)
@given(
    configs, st.sampled_from(["box", "matrix"]), st.booleans(), st.booleans(), st.integers(1, 6), st.integers(0, 2**31)
)
def test_td3_updates_equal_those_of_separate_modules_with_torchs_adam(config, action, autograd, weighted, rows, seed):
    algorithm = new_td3(action, replace(config, prioritized=weighted), seed=seed)
    if autograd:
        by_autograd(algorithm)
    perturb(algorithm, 0.3, seed)
    twin = TD3Twin(config, algorithm.weights())
    rates, updates = algorithm.start(0.5), Updates(algorithm)
    for number in range(4):
        minibatch = prepared(algorithm, rows, seed + number, weighted=weighted)
        assert updates.apply(number, minibatch, rates, UpdateMetrics())
        twin.update(number, minibatch, rates)
    ours, theirs = algorithm.weights(), twin.arrays()
    assert ours.keys() == {*theirs, "uniform", "exploration_noise"}
    for name, array in theirs.items():
        # Adam divides by the size of a gradient: where that is near zero, rounding grows. A rate is 1e-3 or more.
        np.testing.assert_allclose(ours[name], array, rtol=1e-6, atol=1e-5, err_msg=name)


def test_policy_and_ema_networks_change_in_every_nth_update_alone():
    algorithm = new_td3("box", replace(SMALL, policy_delay=3))
    perturb(algorithm, 0.3)
    changed = []
    for number in range(6):
        before = {name: array.copy() for name, array in algorithm.weights().items()}
        update(algorithm, number=number)
        after = algorithm.weights()
        changed.append({name.split(".")[0] for name in after if not np.array_equal(after[name], before[name])})
    slow = {"policy_body", "policy_head", "ema_policy_body", "ema_policy_head", "ema_critics"}
    assert changed[0] == {"critics", *slow, "uniform"}
    assert changed[3] == {"critics", *slow}
    assert changed[1] == changed[2] == changed[4] == changed[5] == {"critics"}


def test_a_policy_stage_that_is_refused_each_time_ends_the_run_though_other_updates_have_none():
    algorithm = new_td3("box", replace(SMALL, policy_delay=3))
    algorithm.policy.values.fill_(math.nan)
    updates, minibatch, metrics = Updates(algorithm), prepared(algorithm, 8, 0), UpdateMetrics()
    last = 3 * (REFUSED_IN_A_ROW - 1)
    for number in range(last):
        assert updates.apply(number, minibatch, algorithm.start(0.0), metrics) == (number % 3 != 0)
    with pytest.raises(RunFailed, match=rf"last {REFUSED_IN_A_ROW} updates.*refused"):
        updates.apply(last, minibatch, algorithm.start(0.0), metrics)


def test_each_minibatch_samples_standard_normal_noise_from_the_given_stream():
    algorithm = new_td3("box", SMALL)
    samples, random = random_samples(algorithm.spec, 500, 0), stream(0, "test")
    first, second = (algorithm.minibatch(samples, random)["next_noise"] for _ in range(2))
    assert torch.equal(algorithm.minibatch(samples, stream(0, "test"))["next_noise"], first)
    assert first.shape == (500, 2)
    assert first.dtype == torch.float32
    assert torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1].abs() < 0.12
    assert abs(first.std().item() - 1) < 0.1


def test_several_policies_with_box_actions_have_the_same_bits_in_serial_and_processes(tmp_path):
    pytest.importorskip("mpe2")
    world: dict[str, Any] = {"env_kwargs": {"continuous_actions": True}, "policies": "separate", "utd_ratio": "1/4"}
    layout: dict[str, Any] = {"actors": 2, "max_ahead": 1, "lag": "exact", "steps": 200, "algorithm": "td3"}
    env = "pettingzoo:mpe2/simple_adversary_v3"
    serial, processes = (
        small_sac(tmp_path / runtime, env, runtime=runtime, **world, **layout) for runtime in ("serial", "processes")
    )
    assert processes.metrics["updates"] == serial.metrics["updates"] > 0
    assert weights_of(processes.path) == weights_of(serial.path)


# --- exploration --------------------------------------------------------------------------------------------


def test_actions_are_uniform_until_the_first_update_and_then_have_gaussian_noise():
    algorithm = new_td3("box", replace(SMALL, exploration_noise=0.2))
    observation = {"observation": np.ones((4000, 3), np.float32)}
    before = published(algorithm).act(observation, stream(0, "test")).action
    assert np.abs(before.std(axis=0) - 1 / math.sqrt(3)).max() < 0.03
    update(algorithm)
    policy = published(algorithm)
    acted = policy.act(observation, stream(0, "test"))
    noise = acted.action - policy.greedy(observation)
    assert not acted.recorded
    assert np.abs(noise.mean(axis=0)).max() < 0.02
    assert np.abs(noise.std(axis=0) - 0.2).max() < 0.01
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.06


def test_explored_actions_are_clipped_to_the_range_of_the_policy():
    algorithm = new_td3("matrix", replace(SMALL, exploration_noise=5.0))
    update(algorithm)
    observation = {"observation": np.ones((50, 3), np.float32)}
    action = published(algorithm).act(observation, stream(0, "test")).action
    assert action.shape == (50, 2, 2)
    assert action.dtype == np.float32
    assert np.abs(action).max() == 1


def test_exploration_noise_is_that_of_the_settings_and_not_of_loaded_weights():
    first, second = (new_td3("box", replace(SMALL, exploration_noise=noise)) for noise in (0.3, 0.1))
    update(first)
    assert first.weights()["exploration_noise"] == np.float32(0.3)
    second.load_weights(first.weights())
    assert second.weights()["exploration_noise"] == np.float32(0.1)


# --- what is refused ----------------------------------------------------------------------------------------


def test_the_precision_of_other_networks_is_refused():
    with pytest.raises(ConfigError, match=r"precision is bf16.*not supported by TD3"):
        replace(SMALL, precision="bf16")
