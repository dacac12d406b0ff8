"""Threads of a learner: those of torch and BLAS, or those among which an algorithm divides its updates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import torch

from offbeat.config.resolve import resolve
from offbeat.core.process.threads import ThreadCounts, usable_cores
from offbeat.runtime.runtimes import build

HALVES = min(2, usable_cores())


@pytest.fixture(autouse=True)
def _counts_restored() -> Iterator[None]:
    counts = ThreadCounts()
    yield
    counts.restore()


@pytest.mark.parametrize(
    ("algorithm", "env", "given", "of_learner", "of_torch"),
    [
        ("sac", "Pendulum-v1", None, HALVES, 1),
        ("sac", "Pendulum-v1", 2, 2, 1),
        ("sac", "CartPole-v1", None, 1, 1),
        ("sac", "CartPole-v1", 3, 3, 3),
        ("ppo", "CartPole-v1", 3, 3, 3),
    ],
)
def test_torch_has_the_threads_of_the_learner_unless_updates_are_divided(algorithm, env, given, of_learner, of_torch):
    config = resolve(algorithm, env, flags={"learner_threads": given, "lag": "exact"})
    with closing(build(config)) as parts:
        assert (parts.threads, parts.blas_threads, torch.get_num_threads()) == (of_learner, of_torch, of_torch)
        assert parts.plan.actor_threads == of_torch, "with lag exact actors compute as the learner does in serial"
