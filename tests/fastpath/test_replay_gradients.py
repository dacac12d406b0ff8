"""What holds for the analytic gradients of SAC and of TD3."""

from __future__ import annotations

import warnings
from contextlib import closing

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.reference.analytic_gradients import OPERATORS, SIDES, Side, assert_as_autograd
from tests.support.thorough import examples

from offbeat.fastpath.two_threads import TwoThreadExecutor


@pytest.fixture(params=SIDES)
def side(request) -> Side:
    return SIDES[request.param]


@examples(120)
@given(
    st.sampled_from(sorted(SIDES)),
    st.integers(0, 2**31 - 1),
    st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["relu", "tanh"]),
    st.integers(1, 3),
    st.integers(1, 11),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_losses_and_gradients_equal_those_of_autograd(
    name, seed, hidden, activation, critics, rows, actions, layer_norm, weighted, threads
):
    side = SIDES[name]
    networks = side.networks(
        hidden=hidden, activation=activation, critics=critics, layer_norm=layer_norm, actions=actions, seed=seed
    )
    minibatch = networks.minibatch(rows, weighted=weighted, seed=seed + 1)
    expected = side.expected(networks, minibatch)
    assume(expected.margin > 1e-5)
    assume(expected.deviation > 0.05)
    fast = side.fast(networks, threads, prioritized=weighted)
    # With so few rows all of them may come out near 0, as differences of numbers near 1.
    assert_as_autograd(networks, fast, minibatch, expected, floor=1.0)


@pytest.mark.parametrize("operators", OPERATORS, ids=lambda operators: type(operators).__name__)
@pytest.mark.parametrize(
    ("activation", "layer_norm", "critics", "rows"), [("relu", False, 2, 128), ("tanh", True, 3, 101)]
)
@pytest.mark.parametrize("name", ["sac", "td3"])
def test_losses_and_gradients_equal_those_of_autograd_for_wide_networks(
    name, activation, layer_norm, critics, rows, operators
):
    side = SIDES[name]
    # 256 units would have some ReLU near its kink in any minibatch.
    networks = side.networks(
        hidden=(70, 65), activation=activation, critics=critics, layer_norm=layer_norm, inputs=17, actions=6
    )
    for seed in range(50):
        minibatch = networks.minibatch(rows, seed=seed)
        expected = side.expected(networks, minibatch)
        if expected.margin > 1e-6:
            break
    assert expected.margin > 1e-6
    assert expected.policy_critics == side.policy_critics(critics)
    assert_as_autograd(networks, side.fast(networks, 2, operators), minibatch, expected)


@pytest.mark.parametrize("operators", OPERATORS, ids=lambda operators: type(operators).__name__)
@pytest.mark.parametrize(
    ("name", "rows", "critics", "layer_norm"),
    [
        ("sac", 256, 2, False),
        ("td3", 255, 2, True),
        ("sac", 1, 2, False),
        ("td3", 64, 1, True),
        ("sac", 97, 3, False),
        ("td3", 97, 3, False),
    ],
)
def test_one_and_two_threads_give_the_same_bits(name, rows, critics, layer_norm, operators):
    side = SIDES[name]
    networks = side.networks(hidden=(256, 256), critics=critics, layer_norm=layer_norm, inputs=17, actions=6)
    minibatch = networks.minibatch(rows, weighted=True)
    results = []
    for threads in (1, 2):
        fast = side.fast(networks, threads, operators, prioritized=True)
        for _ in range(2):
            critic, policy = fast.critic_gradients(minibatch), fast.policy_gradients(minibatch)
            gradients = [group.gradients.numpy().tobytes() for group in (networks.critics, networks.policy)]
            results.append((*critic[:2], *policy[:2], gradients, fast.errors().tolist()))
    assert all(result == results[0] for result in results[1:])


def test_the_alignment_gaps_of_the_buffers_stay_zero(side):
    networks = side.networks()
    minibatch, fast = networks.minibatch(7), side.fast(networks)
    fast.critic_gradients(minibatch)
    fast.policy_gradients(minibatch)
    for group in (networks.policy, networks.critics):
        gaps = torch.ones(group.layout.size, dtype=torch.bool)
        for view in group.layout.views(gaps).values():
            view.fill_(value=False)
        assert gaps.any()
        assert not group.gradients[gaps].any()


def test_the_size_of_minibatches_may_change(side):
    networks = side.networks()
    fast = side.fast(networks, 2)
    for rows in (5, 12, 1, 5):
        minibatch = networks.minibatch(rows, seed=rows)
        expected = side.expected(networks, minibatch)
        assert expected.margin > 1e-6
        assert_as_autograd(networks, fast, minibatch, expected)


def test_changed_parameters_are_used(side):
    networks = side.networks()
    fast, minibatch = side.fast(networks), networks.minibatch(6)
    fast.critic_gradients(minibatch)
    fast.policy_gradients(minibatch)
    for values in networks.values():
        values.mul_(1.2)
    assert_as_autograd(networks, fast, minibatch, side.expected(networks, minibatch))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [1e30, float("inf"), float("nan")])
def test_an_overflow_makes_the_losses_non_finite_without_warnings(side, threads, size):
    networks = side.networks()
    fast = side.fast(networks, threads)
    networks.critics.values.fill_(size)
    networks.ema.fill_(size)
    networks.policy.values.mul_(1e30)
    minibatch = networks.minibatch(6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses = [fast.critic_gradients(minibatch).loss, fast.policy_gradients(minibatch).loss]
    assert not np.isfinite(losses).any()


def test_an_error_in_one_thread_is_raised(side):
    networks = side.networks()
    fast = side.fast(networks, 2)
    executor: TwoThreadExecutor = fast._executor
    with closing(executor):
        minibatch = networks.minibatch(4)
        for missing in ("next_noise", "action"):  # SAC's helper reads the action
            with pytest.raises(KeyError, match=missing):
                fast.critic_gradients({name: rows for name, rows in minibatch.items() if name != missing})
        fast.critic_gradients(minibatch)
