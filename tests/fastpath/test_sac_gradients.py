"""What only the analytic gradients of SAC have. What they share with TD3's is in test_replay_gradients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.reference.analytic_gradients import (
    ALPHA,
    ExpectedOfSAC,
    Minibatch,
    Networks,
    SACSide,
    assert_as_autograd,
    assert_near,
)

from offbeat.fastpath.sac_gradients import SACGradients


@pytest.fixture
def networks() -> Networks:
    return SACSide().networks()


def test_clipped_deviations_get_no_gradient():
    networks = SACSide().networks(actions=6)
    head = networks.policy.arrays()
    head["policy_head.weight"][6:] = 0  # exactly at the bounds, and beyond
    head["policy_head.bias"][6:] = torch.tensor([2.0, 2.001, 30.0, -20.0, -20.001, -90.0])
    minibatch = networks.minibatch(16)
    fast = SACSide().fast(networks)
    assert_as_autograd(networks, fast, minibatch, ExpectedOfSAC(networks, minibatch))
    inside = networks.policy.layout.views(networks.policy.gradients)["policy_head.bias"][6:] != 0
    assert inside.tolist() == [True, False, False, True, False, False]


def test_log_probabilities_of_extreme_actions_are_exact():
    networks = SACSide().networks(actions=4)
    head = networks.policy.arrays()
    head["policy_head.weight"][...] = 0
    head["policy_head.bias"][:4] = torch.tensor([-60.0, -9.0, 9.0, 60.0])
    minibatch = networks.minibatch(16)
    fast = SACSide().fast(networks)
    fast.policy_gradients(minibatch)
    assert_near(fast._workspace.sampled.log_prob, ExpectedOfSAC(networks, minibatch).log_prob)


def stale_prefetches(networks: Networks, fast: SACGradients) -> Iterator[Minibatch]:
    """Yield minibatches for a policy stage that what the last critic stage has sent ahead is not for."""
    first, second = networks.minibatch(6, seed=1), networks.minibatch(6, seed=2)
    fast.critic_gradients(first)
    yield second  # another minibatch
    fast.critic_gradients(first)
    fast.critic_gradients(second)
    yield first
    fast.critic_gradients(first)
    fast.policy_gradients(first)
    networks.policy.values.mul_(1.1)  # the policy has been changed since
    yield first


@pytest.mark.parametrize("policy_delay", [1, 2])
def test_prefetched_actions_are_used_only_for_their_minibatch_and_policy(networks, policy_delay):
    fast = SACSide().fast(networks, policy_delay=policy_delay)
    for minibatch in stale_prefetches(networks, fast):
        fast.policy_gradients(minibatch)
        assert_near(networks.policy.gradients, ExpectedOfSAC(networks, minibatch).policy_gradient)


def test_changed_temperatures_are_used(networks, monkeypatch):
    fast, minibatch = SACSide().fast(networks), networks.minibatch(6)
    expected = ExpectedOfSAC(networks, minibatch)
    fast.critic_gradients(minibatch)
    fast.policy_gradients(minibatch)
    assert_as_autograd(networks, fast, minibatch, expected)
    monkeypatch.setattr(networks.algorithm, "temperature", lambda: torch.tensor(2.0))
    (critic, *_), (policy, metrics, _) = fast.critic_gradients(minibatch), fast.policy_gradients(minibatch)
    assert critic != pytest.approx(expected.critic_loss)
    assert policy == pytest.approx(expected.policy_loss - (2.0 - ALPHA) * float(metrics["entropy"]), rel=1e-5)


@pytest.mark.parametrize(("rows", "critics"), [(256, 2), (97, 3)])
def test_one_and_two_threads_give_the_same_log_probabilities(rows, critics):
    networks = SACSide().networks(hidden=(256, 256), critics=critics, inputs=17, actions=6)
    minibatch, results = networks.minibatch(rows), []
    for threads in (1, 2):
        fast = SACSide().fast(networks, threads)
        fast.critic_gradients(minibatch)
        fast.policy_gradients(minibatch)
        results.append(fast._workspace.sampled.log_prob.tolist())
    assert results[0] == results[1]
