"""What only the analytic gradients of TD3 have. What they share with SAC's is in test_replay_gradients."""

from __future__ import annotations

import pytest
from tests.reference.analytic_gradients import ExpectedOfTD3, TD3Side, assert_as_autograd


@pytest.mark.parametrize("smoothing", [(0.0, 0.5), (0.2, 0.0), (0.2, 0.5), (9.0, 0.5)])
def test_next_actions_have_clipped_noise_and_stay_between_the_bounds(smoothing):
    class Expected(ExpectedOfTD3):
        def __init__(self, *arguments):
            self.smoothing = smoothing
            super().__init__(*arguments)

    side = TD3Side()
    networks = side.networks(actions=3)
    networks.ema_policy.mul_(3)  # some actions are so near a bound that the sum is clipped
    minibatch = networks.minibatch(16)
    expected = Expected(networks, minibatch)
    assert expected.margin > 1e-6
    if min(smoothing) > 0:
        assert (expected.next_action().abs() == 1).any()
    settings = dict(zip(("target_policy_noise", "target_noise_clip"), smoothing, strict=True))
    assert_as_autograd(networks, side.fast(networks, 2, **settings), minibatch, expected)
