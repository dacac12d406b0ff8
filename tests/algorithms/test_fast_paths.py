"""Fast paths are registered for exact classes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.models import policy_spec

from offbeat.algorithms import fast_paths
from offbeat.algorithms.fast_paths import autograd_notice, register
from offbeat.algorithms.ppo import PPO, PPOConfig
from offbeat.fastpath.ppo import PPOFastPath


class MyPPO(PPO):
    """PPO, unchanged."""


def made(algorithm_class: type[PPO], **settings: Any) -> PPO:
    config = PPOConfig(hidden_sizes=(8,), **settings)
    return algorithm_class(config, policy_spec("discrete"), seed=0, corrected=False)


def test_a_subclass_has_a_fast_path_only_if_it_is_registered_for_that_class(monkeypatch):
    assert made(PPO).stages[0].gradients is not None
    assert made(MyPPO).stages[0].gradients is None
    monkeypatch.setattr(fast_paths, "_ENTRIES", dict(fast_paths._ENTRIES))
    register(MyPPO, PPOFastPath, applies=PPOFastPath.applies)
    mine = made(MyPPO)
    assert mine.stages[0].gradients is not None
    assert autograd_notice(mine) == ""


@pytest.mark.parametrize(("settings", "noticed"), [({}, True), ({"shared_trunk": True}, False)])
def test_the_autograd_notice_appears_only_where_the_settings_allow_a_fast_path(settings, noticed):
    assert ("MyPPO is trained with autograd" in autograd_notice(made(MyPPO, **settings))) is noticed
    assert autograd_notice(made(PPO, **settings)) == ""
