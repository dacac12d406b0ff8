"""Fast paths are registered for exact classes."""

from __future__ import annotations

import gc
from typing import Any
from weakref import ref

import pytest
from tests.support.models import policy_spec
from tests.support.shard_cases import SHARD_CASES

from offbeat.algorithms import fast_paths
from offbeat.algorithms.fast_paths import autograd_notice, register
from offbeat.algorithms.ppo import PPO, PPOConfig
from offbeat.fastpath.ppo import PPOFastPath
from offbeat.models.collective import ALONE
from offbeat.workers.gradients import Gradients


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


@pytest.mark.parametrize(
    "case", ["ppo, fast path", "ppo, gru", "a2c", "sac, fast path", "sac, gru", "td3, fast path", "dqn"]
)
def test_the_memory_of_an_algorithm_is_freed_when_it_is_closed(case):
    """Only reference counts free memory: the garbage collector may take long to come."""
    algorithm, minibatches = SHARD_CASES[case](ALONE)
    Gradients(algorithm).of(minibatches[0])(algorithm.stages[0])
    parts = [ref(algorithm), *map(ref, filter(None, [getattr(algorithm, "_fast", None)]))]
    gc.disable()
    try:
        algorithm.close()
        algorithm.close()  # nothing happens
        del algorithm
        assert [part() for part in parts] == [None] * len(parts)
    finally:
        gc.enable()
