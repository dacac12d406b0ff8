"""The learner: turns what a learning step takes in into updates, and publishes what came of them.

`UnrollLearner` learns from batches of unrolls; `ReplayLearner` (replay_learner.py) from a replay. Where the data comes
from is the feed's business (feed.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter as clock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.algorithms.base import Algorithm, OnPolicyAlgorithm
from offbeat.core.seeding import key_of, stream
from offbeat.memory.weights import Weights
from offbeat.metrics.timings import Timings
from offbeat.workers.feed import Feed, Taken
from offbeat.workers.updates import UpdateCounter, UpdateMetrics, Updates


@dataclass(frozen=True)
class Learned:
    """What one learning step did."""

    env_steps: int
    """Valid rows that it took in."""
    updates: int
    """Updates, refused ones included."""
    refused: int
    """Updates that were not applied, as their gradients were not finite."""
    metrics: dict[str, float]
    """Means over the updates."""
    episode_returns: NDArray[np.float64]
    """Of the episodes that ended in what it took in, row by row."""
    episode_lengths: NDArray[np.int32]
    info: NDArray[np.float64]
    """[2, K]: sums and counts of what infos reported in what it took in, by the names in `EnvSpec.info`."""


class Learner(ABC):
    """What every learner has: an algorithm, its optimizers, a feed, and weights to publish."""

    def __init__(
        self,
        algorithm: Algorithm,
        feed: Feed,
        weights: Weights,
        *,
        seed: int,
        timings: Timings,
        counter: UpdateCounter | None = None,
        place: int = 0,
    ) -> None:
        """Prepare to learn one policy.

        Args:
            algorithm: what is learned.
            feed: gives what each learning step takes in.
            weights: where versions are published.
            seed: of the run.
            timings: what the time goes into.
            counter: of all learners, where others change the same parameters.
            place: of the policy among those of the run.
        """
        self.feed = feed
        self._algorithm, self._weights, self._timings = algorithm, weights, timings
        self._seed, self._key = seed, key_of(place)
        self._updates = Updates(algorithm, counter)
        self.progress = 0.0
        """What the version that was published last carries: the training's progress in the step that made it."""

    def _random(self, step: int) -> np.random.Generator:
        """Return the random stream of a learning step."""
        return stream(self._seed, "learn", step, *self._key)

    @abstractmethod
    def learn(self, step: int, progress: float) -> Learned:
        """Take learning step `step`, and publish version `step + 1`; `progress` runs from 0 to 1 over `steps`."""

    @abstractmethod
    def rehearse(self, step: int) -> float:
        """Do the updates of a step again, for measuring them; return the env steps that are so much work."""

    def publish(self, version: int, progress: float = 0.0) -> None:
        """Publish the policy as it is now, which a learning step at this progress has made."""
        self.progress = progress
        self._updates.pull()
        self._algorithm.write_published(self._weights.open(version))
        self._weights.commit(version, progress)
        self.feed.published(version)

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs besides the weights."""
        own = {"algorithm": self._algorithm.state(), "adam": self._updates.state(), "progress": self.progress}
        return {**own, **self.feed.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over `state()`."""
        self._algorithm.restore(state["algorithm"])
        self.restore_own(state)

    def restore_own(self, state: Mapping[str, Any]) -> None:
        """Take over what in `state()` is this learner's alone, where others learn the same parameters."""
        self._updates.restore(state["adam"])
        self.progress = state["progress"]
        self.feed.restore(state)


class UnrollLearner(Learner):
    """Learns from each batch of unrolls once."""

    _algorithm: OnPolicyAlgorithm

    def learn(self, step: int, progress: float) -> Learned:
        begun = clock()
        rates = self._algorithm.start(progress)
        taken = self.feed.take(step)
        loaded = clock()
        batch = self._algorithm.prepare(taken.batch)
        prepared = clock()
        update_metrics, updates = UpdateMetrics(), 0
        for minibatch in self._algorithm.minibatches(batch, self._random(step)):
            self._updates.apply(updates, minibatch, rates, update_metrics)
            updates += 1
        updated = clock()
        metrics = self._algorithm.finish(batch)
        self.publish(step + 1, progress)
        self._timings.add("learn/load", loaded - begun)
        self._timings.add("learn/prepare", prepared - loaded)
        self._timings.add("learn/update", updated - prepared)
        self._timings.add("learn/publish", clock() - updated)
        self._timings.add("learn", clock() - begun)
        metrics = {**update_metrics.summed_up(), **metrics, "learning_rate": max(rates.values())}
        return summary(taken, step, updates, update_metrics.refused, metrics)

    def rehearse(self, step: int) -> float:
        return self.learn(step, 0.0).env_steps


def summary(taken: Taken, step: int, updates: int, refused: int, metrics: Mapping[str, float]) -> Learned:
    """Return what learning step `step` did.

    Args:
        taken: what it took in.
        step: which it is.
        updates: those that were made, refused ones included.
        refused: those that were not applied.
        metrics: what the updates reported.
    """
    rows, lag = taken.rows, step - taken.versions
    ended = rows["episode_length"] > 0
    lags = {"policy_lag_min": lag.min(), "policy_lag_mean": lag.mean(), "policy_lag_max": lag.max()}
    return Learned(
        env_steps=int(rows["valid"].sum()),
        updates=updates,
        refused=refused,
        metrics={**metrics, **{name: float(value) for name, value in lags.items()}},
        episode_returns=rows["episode_return"][ended],
        episode_lengths=rows["episode_length"][ended],
        info=reported(rows.get("info", np.zeros((0, 0, 0)))),
    )


def reported(info: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return sums and counts, [2, K], of the numbers in [T, B, K]; those that are not finite are none."""
    known = np.isfinite(info)
    return np.stack([np.where(known, info, 0.0).sum(axis=(0, 1)), known.sum(axis=(0, 1))])
