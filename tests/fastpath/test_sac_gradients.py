from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.reference import sac_gradients as twin
from tests.reference.thorough import examples
from torch import Tensor

from offbeat.core.types import ActionSpec, Leaf
from offbeat.fastpath.kernels import BlasKernels, OneDNNKernels
from offbeat.fastpath.sac_gradients import SACGradients
from offbeat.fastpath.two_threads import TwoThreadExecutor
from offbeat.models import onednn
from offbeat.models.critics import Critics
from offbeat.models.dense import Unfilled
from offbeat.models.flat import FlatParameters
from offbeat.models.policy_network import Body, PolicyNetwork, Uniform
from offbeat.models.spec import Activation, PolicySpec

ALPHA = 0.3
KERNELS = [BlasKernels(), OneDNNKernels()] if onednn.works() else [BlasKernels()]
Minibatch = dict[str, Tensor]


class Networks:
    """Parameters of all networks, on flat buffers as an algorithm has them."""

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (9, 8),
        activation: Activation = "relu",
        critics: int = 2,
        inputs: int = 3,
        actions: int = 2,
        seed: int = 0,
    ) -> None:
        box = ActionSpec("box", (actions,), low=(-1.0,) * actions, high=(1.0,) * actions)
        leaves = (Leaf("observation", (inputs,), "float32"),)
        self.spec = PolicySpec(leaves, box, hidden, activation, "tanh_gaussian", normalize=False)
        generator = torch.Generator().manual_seed(seed)
        self.policy = FlatParameters(PolicyNetwork(self.spec, Uniform(generator), head_gain=1.0))
        body = Body(replace(self.spec, hidden_sizes=()), Unfilled())
        settings: Any = {"critics": critics, "choices": None, "action_size": actions, "generator": generator}
        ensemble = Critics(body, hidden, activation, **settings)
        self.critics = FlatParameters(ensemble)
        self.ema = torch.zeros_like(self.critics.values)
        for name, view in self.critics.layout.views(self.ema).items():
            view[...] = self.critics.arrays()[name] * (1 + 0.1 * torch.randn(view.shape, generator=generator))
        self.count, self.depth = critics, len(hidden) + 1

    def fast(self, threads: Literal[1, 2] = 1, **settings: Any) -> SACGradients:
        executor = TwoThreadExecutor(threads)
        parts = (self.spec, self.policy, self.critics, self.ema)
        return SACGradients(*parts, temperature=lambda: ALPHA, executor=executor, **settings)

    def policy_layers(self, flat: Tensor) -> twin.Parameters:
        views = self.policy.layout.views(flat)
        return [(views[f"{name}.weight"], views[f"{name}.bias"]) for name in self.spec.layer_names()]

    def critic_layers(self, flat: Tensor) -> list[twin.Parameters]:
        views = self.critics.layout.views(flat)
        return [
            [(views[f"weights.{i}"][e], views[f"biases.{i}"][e]) for i in range(self.depth)] for e in range(self.count)
        ]

    def minibatch(self, rows: int, *, weighted: bool = False, seed: int = 1) -> Minibatch:
        generator = torch.Generator().manual_seed(seed)
        inputs, actions = self.spec.inputs, self.spec.action_size
        result = {
            "observation": torch.randn(rows, inputs, generator=generator),
            "next_observation": torch.randn(rows, inputs, generator=generator),
            "action": torch.rand(rows, actions, generator=generator) * 2 - 1,
            "noise": torch.randn(rows, actions, generator=generator),
            "next_noise": torch.randn(rows, actions, generator=generator),
            "reward": torch.randn(rows, generator=generator),
            "discount": 0.99 * (torch.rand(rows, generator=generator) > 0.2).float(),
        }
        return result | ({"weight": torch.rand(rows, generator=generator)} if weighted else {})


class Expected:
    """What autograd says, in float64."""

    def __init__(self, networks: Networks, minibatch: Mapping[str, Tensor]) -> None:
        rows = {name: tensor.double() for name, tensor in minibatch.items()}
        activation = networks.spec.activation
        flat_policy = networks.policy.values.double().requires_grad_()
        flat_critics = networks.critics.values.double().requires_grad_()
        policy, critics = networks.policy_layers(flat_policy), networks.critic_layers(flat_critics)
        ema = networks.critic_layers(networks.ema.double())

        target = twin.targets(rows, policy, ema, ALPHA, activation)
        loss, self.errors = twin.critic_loss(rows, critics, target, activation)
        self.critic_loss = float(loss.detach())
        (self.critic_gradient,) = torch.autograd.grad(loss, flat_critics)

        loss, self.log_prob = twin.policy_loss(rows, policy, critics, ALPHA, activation)
        self.policy_loss = float(loss.detach())
        (self.policy_gradient,) = torch.autograd.grad(loss, flat_policy)
        self._find_margins(rows, policy, critics, activation)

    @torch.no_grad()
    def _find_margins(self, rows, policy, critics, activation) -> None:
        """Find how far the rows are from where rounding decides about the gradient."""
        action, _ = twin.draw(rows["observation"], rows["noise"], policy, activation)
        drawn, recorded = (torch.cat((rows["observation"], a), dim=1) for a in (action, rows["action"]))
        kinks = [twin.nearest_kink(rows["observation"], policy, activation)]
        kinks += [twin.nearest_kink(x, critic, activation) for critic in critics for x in (drawn, recorded)]
        values = twin.values(rows["observation"], action, critics, activation)
        ordered = values.sort(dim=0).values
        self.least = values.argmin(dim=0)
        self.margin = min([*kinks, *(ordered[1:2] - ordered[:1]).flatten().tolist()])


def assert_near(actual: Tensor | np.ndarray[Any, Any], expected: Tensor, floor: float = 0.0) -> None:
    """Within 1e-5 of the norm, and of the largest, or of `floor` where that is more."""
    difference = torch.as_tensor(actual).double() - expected
    assert difference.norm() <= 1e-5 * max(float(expected.norm()), floor)
    assert difference.abs().max() <= 1e-5 * max(float(expected.abs().max()), floor)


def assert_as_autograd(
    networks: Networks, fast: SACGradients, minibatch: Minibatch, expected: Expected, floor: float = 0.0
) -> None:
    for group in (networks.policy, networks.critics):
        for view in group.layout.views(group.gradients).values():
            view.fill_(torch.nan)  # all of them are to be written
    loss, metrics, _ = fast.critic(minibatch)
    assert loss == pytest.approx(expected.critic_loss, rel=1e-5, abs=1e-5)
    assert metrics["critic_loss"] == loss
    assert_near(networks.critics.gradients, expected.critic_gradient, floor)
    assert_near(fast.errors(), expected.errors, floor)

    loss, metrics, _ = fast.policy(minibatch)
    assert loss == pytest.approx(expected.policy_loss, rel=1e-5, abs=1e-5)
    assert metrics["policy_loss"] == loss
    assert metrics["entropy"] == pytest.approx(-float(expected.log_prob.mean()), rel=1e-5, abs=1e-5)
    assert_near(networks.policy.gradients, expected.policy_gradient, floor)
    assert_near(fast.log_prob, expected.log_prob, floor)


@pytest.fixture
def networks() -> Networks:
    return Networks()


@examples(80)
@given(
    st.integers(0, 2**31 - 1),
    st.lists(st.integers(1, 12), max_size=3).map(tuple),
    st.sampled_from(["relu", "tanh"]),
    st.integers(1, 3),
    st.integers(1, 11),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_losses_and_gradients_equal_those_of_autograd(
    seed, hidden, activation, critics, rows, actions, weighted, sample_ahead, threads
):
    networks = Networks(hidden=hidden, activation=activation, critics=critics, actions=actions, seed=seed)
    minibatch = networks.minibatch(rows, weighted=weighted, seed=seed + 1)
    expected = Expected(networks, minibatch)
    assume(expected.margin > 1e-5)
    fast = networks.fast(threads, sample_ahead=sample_ahead, weighted=weighted)
    # With so few rows all of them may come out near 0, as differences of numbers near 1.
    assert_as_autograd(networks, fast, minibatch, expected, floor=1.0)


@pytest.mark.parametrize("kernels", KERNELS, ids=lambda kernels: type(kernels).__name__)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize(("critics", "rows"), [(2, 128), (3, 101)])
def test_losses_and_gradients_equal_those_of_autograd_for_wide_networks(kernels, activation, critics, rows):
    # 256 units would have some ReLU near its kink in any minibatch.
    networks = Networks(hidden=(70, 65), activation=activation, critics=critics, inputs=17, actions=6)
    for seed in range(50):
        minibatch = networks.minibatch(rows, seed=seed)
        expected = Expected(networks, minibatch)
        if expected.margin > 1e-6:
            break
    assert expected.margin > 1e-6
    assert set(expected.least.tolist()) == set(range(critics))
    assert_as_autograd(networks, networks.fast(2, kernels=kernels), minibatch, expected)


def test_clipped_deviations_get_no_gradient():
    networks = Networks(actions=6)
    head = networks.policy.arrays()
    head["policy_head.weight"][6:] = 0  # exactly at the bounds, and beyond
    head["policy_head.bias"][6:] = torch.tensor([2.0, 2.001, 30.0, -20.0, -20.001, -90.0])
    minibatch = networks.minibatch(16)
    fast = networks.fast()
    assert_as_autograd(networks, fast, minibatch, Expected(networks, minibatch))
    inside = networks.policy.layout.views(networks.policy.gradients)["policy_head.bias"][6:] != 0
    assert inside.tolist() == [True, False, False, True, False, False]


def test_log_probabilities_of_extreme_actions_are_exact():
    networks = Networks(actions=4)
    head = networks.policy.arrays()
    head["policy_head.weight"][...] = 0
    head["policy_head.bias"][:4] = torch.tensor([-60.0, -9.0, 9.0, 60.0])
    minibatch = networks.minibatch(16)
    fast = networks.fast()
    fast.policy(minibatch)
    assert_near(fast.log_prob, Expected(networks, minibatch).log_prob)


@pytest.mark.parametrize("kernels", KERNELS, ids=lambda kernels: type(kernels).__name__)
@pytest.mark.parametrize(("rows", "critics"), [(256, 2), (255, 2), (1, 2), (64, 1), (97, 3)])
def test_one_and_two_threads_give_the_same_bits(kernels, rows, critics):
    networks = Networks(hidden=(256, 256), critics=critics, inputs=17, actions=6)
    minibatch = networks.minibatch(rows, weighted=True)
    results = []
    for threads in (1, 2, 2, 1):
        fast = networks.fast(threads, kernels=kernels, weighted=True)
        for _ in range(3):
            critic, policy = fast.critic(minibatch), fast.policy(minibatch)
            gradients = networks.critics.gradients.tolist() + networks.policy.gradients.tolist()
            results.append((critic, policy, gradients, fast.errors().tolist(), fast.log_prob.tolist()))
    assert all(result == results[0] for result in results[1:])


def test_the_alignment_gaps_of_the_buffers_stay_zero(networks):
    minibatch, fast = networks.minibatch(7), networks.fast()
    fast.critic(minibatch)
    fast.policy(minibatch)
    for group in (networks.policy, networks.critics):
        gaps = torch.ones(group.layout.size, dtype=torch.bool)
        for view in group.layout.views(gaps).values():
            view.fill_(value=False)
        assert gaps.any()
        assert not group.gradients[gaps].any()


def test_the_size_of_minibatches_may_change(networks):
    fast = networks.fast(2)
    for rows in (5, 12, 1, 5):
        minibatch = networks.minibatch(rows, seed=rows)
        expected = Expected(networks, minibatch)
        assert expected.margin > 1e-6
        assert_as_autograd(networks, fast, minibatch, expected)


def stale_prefetches(networks: Networks, fast: SACGradients) -> Iterator[Minibatch]:
    """Yield minibatches for a policy stage that what the last critic stage has sent ahead is not for."""
    first, second = networks.minibatch(6, seed=1), networks.minibatch(6, seed=2)
    fast.critic(first)
    yield second  # another minibatch
    fast.critic(first)
    fast.critic(second)
    yield first
    fast.critic(first)
    fast.policy(first)
    networks.policy.values.mul_(1.1)  # the policy has been changed since
    yield first


@pytest.mark.parametrize("sample_ahead", [True, False])
def test_prefetched_actions_are_used_only_for_their_minibatch_and_policy(networks, sample_ahead):
    fast = networks.fast(sample_ahead=sample_ahead)
    for minibatch in stale_prefetches(networks, fast):
        fast.policy(minibatch)
        assert_near(networks.policy.gradients, Expected(networks, minibatch).policy_gradient)


def test_changed_parameters_and_temperatures_are_used(networks):
    alpha = [ALPHA]
    parts = (networks.spec, networks.policy, networks.critics, networks.ema)
    fast, minibatch = (
        SACGradients(*parts, temperature=lambda: alpha[0], executor=TwoThreadExecutor(1)),
        networks.minibatch(6),
    )
    fast.critic(minibatch)
    fast.policy(minibatch)
    for values in (networks.policy.values, networks.critics.values, networks.ema):
        values.mul_(1.2)
    assert_as_autograd(networks, fast, minibatch, Expected(networks, minibatch))
    alpha[0] = 2.0
    (critic, *_), (policy, metrics, _) = fast.critic(minibatch), fast.policy(minibatch)
    assert critic != pytest.approx(Expected(networks, minibatch).critic_loss)
    at_first = Expected(networks, minibatch).policy_loss
    assert policy == pytest.approx(at_first - (2.0 - ALPHA) * float(metrics["entropy"]), rel=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [1e30, float("inf"), float("nan")])
def test_an_overflow_makes_the_losses_non_finite_without_warnings(networks, threads, size):
    fast = networks.fast(threads)
    networks.critics.values.fill_(size)
    networks.ema.fill_(size)
    networks.policy.values.mul_(1e30)
    minibatch = networks.minibatch(6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses = [fast.critic(minibatch).loss, fast.policy(minibatch).loss]
    assert not np.isfinite(losses).any()


def test_an_error_in_one_thread_is_raised(networks):
    executor: TwoThreadExecutor = networks.fast(2)._executor
    with closing(executor):
        minibatch = networks.minibatch(4)
        fast = SACGradients(
            networks.spec, networks.policy, networks.critics, networks.ema, temperature=lambda: 1.0, executor=executor
        )
        with pytest.raises(KeyError, match="next_noise"):
            fast.critic({name: rows for name, rows in minibatch.items() if name != "next_noise"})
        with pytest.raises(KeyError, match="action"):  # on the helper's side
            fast.critic({name: rows for name, rows in minibatch.items() if name != "action"})
        fast.critic(minibatch)
