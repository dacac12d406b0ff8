"""Updates of an algorithm that learns from a replay, and what holds for each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from tests.reference.sac import random_samples
from tests.support.models import random_observation

from offbeat.algorithms.base import Minibatch, ReplayAlgorithm
from offbeat.api.playing.load import policy_of
from offbeat.core.seeding import stream
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec
from offbeat.models.spec_file import read_spec
from offbeat.workers.updates import UpdateMetrics, Updates


class Learning(ReplayAlgorithm, Protocol):
    """An algorithm with the spec of its policy."""

    spec: PolicySpec


def prepared(algorithm: Learning, rows: int, seed: int, *, weighted: bool = False) -> Minibatch:
    """Return a minibatch of random rows."""
    samples = random_samples(algorithm.spec, rows, seed, weighted=weighted)
    return algorithm.minibatch(samples, stream(seed, "learn", 0))


def update(
    algorithm: Learning, seed: int = 0, *, number: int = 0, rows: int = 8, progress: float = 0.0
) -> dict[str, float]:
    """Make one update; return its metrics."""
    metrics = UpdateMetrics()
    assert Updates(algorithm).apply(number, prepared(algorithm, rows, seed), algorithm.start(progress), metrics)
    return metrics.summary()


def published(algorithm: Learning) -> ActingPolicy:
    """Return the policy that actors have after a publication."""
    policy = make_policy(algorithm.spec)
    vector = np.full(published_layout(algorithm.spec).size, np.nan, np.float32)
    algorithm.write_published(vector)
    policy.load(vector)
    return policy


def require_same_actions_from_a_checkpoint(algorithm: Learning) -> None:
    """Require that a policy loaded from a checkpoint acts as the published one, before and after the first update."""
    observation = random_observation(algorithm.spec, 6, np.random.default_rng(0))
    algorithm.finish({name: torch.from_numpy(leaf) for name, leaf in observation.items()})
    for _ in range(2):
        loaded = policy_of(read_spec(algorithm.spec.to_json()), algorithm.weights())
        policy = published(algorithm)
        np.testing.assert_array_equal(loaded.greedy(observation), policy.greedy(observation))
        ours, theirs = (each.act(observation, stream(1, "test")).action for each in (loaded, policy))
        np.testing.assert_array_equal(ours, theirs)
        update(algorithm)


def require_same_update_from_weights_and_state(make: Callable[[int], Learning]) -> None:
    """Require that the next update depends on weights and state alone; `make(seed)` makes an algorithm."""
    first, second = make(1), make(2)
    seen = random_observation(first.spec, 30, np.random.default_rng(0))
    first.finish({name: torch.from_numpy(leaf) for name, leaf in seen.items()})
    update(first)
    second.load_weights({name: array.copy() for name, array in first.weights().items()})
    second.restore(first.state())
    assert update(first, seed=7) == update(second, seed=7)
    ours, theirs = first.weights(), second.weights()
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)
