"""One loaded policy that several threads of a program use at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image, ImageSequence
from tests.support.loaded_policies import loaded

import offbeat

THREADS = 4


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    """Let Python switch between threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_that_share_a_policy_without_a_memory_get_the_actions_of_one_thread():
    policy = loaded("Pendulum-v1", hidden_sizes=(64, 64))
    random = np.random.default_rng(1)
    batches = [random.normal(size=(1 + number % 3, 3)).astype(np.float32) for number in range(1000)]
    alone = [policy(batch) for batch in batches]
    with ThreadPoolExecutor(THREADS) as threads:
        together = list(threads.map(policy, batches))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("core", ["none", "gru"])
def test_evaluations_of_one_policy_in_several_threads_have_the_scores_of_one_thread(core):
    policy = loaded("CartPole-v1", hidden_sizes=(64, 64), core=core)

    def returns(seed: int) -> tuple[object, ...]:
        result = offbeat.evaluate(policy, episodes=10, seed=seed)
        return result.return_mean, result.return_min, result.return_max

    alone = [returns(seed) for seed in range(THREADS)]
    assert len(set(alone)) > 1
    with ThreadPoolExecutor(THREADS) as threads:
        assert list(threads.map(returns, range(THREADS))) == alone


def test_a_recurrent_policy_can_be_watched_in_several_threads(tmp_path):
    policy = loaded("CartPole-v1", hidden_sizes=(64,), core="gru")

    def frames(name: str) -> int:
        path = tmp_path / f"{name}.gif"
        offbeat.watch(policy, video=path, seed=3)
        with Image.open(path) as images:
            return sum(1 for _ in ImageSequence.Iterator(images))

    alone = frames("alone")
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(frames, ["first", "second"])) == [alone, alone]
