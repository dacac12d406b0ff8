"""The learner: in each learning step it takes data from its feed, makes updates, and publishes the new weights.

`UnrollLearner` learns from batches of unrolls, `ReplayLearner` (replay_learner.py) from a replay. The feed (feed.py)
provides the data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter as clock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from offbeat.algorithms.base import Algorithm, OnPolicyAlgorithm
from offbeat.algorithms.returned import require_minibatches
from offbeat.core.errors import RunFailed
from offbeat.core.seeding import key_of, stream
from offbeat.core.types import NOT_ENDED
from offbeat.memory.weights import Weights
from offbeat.metrics.timings import PREPARE, PUBLISH, UPDATE, Timings
from offbeat.workers.encoder_metrics import EncoderMetrics
from offbeat.workers.episodes import sums_and_counts
from offbeat.workers.feed import Feed, Taken, env_steps_in
from offbeat.workers.updates import UpdateCounter, UpdateMetrics, Updates


@dataclass(frozen=True)
class Learned:
    """The result of one learning step."""

    env_steps: int
    """Env steps in its data."""
    agent_steps: int
    """Decisions in its data: the valid rows. With one agent per env they are the env steps."""
    updates: int
    """Updates, refused ones included."""
    refused: int
    """Updates that were not applied because the loss or a gradient was not finite."""
    metrics: dict[str, float]
    """Metrics of the step; those of updates are means over the updates."""
    episode_returns: NDArray[np.float64]
    """[episodes]: returns of the episodes that ended in its data, row by row."""
    episode_lengths: NDArray[np.int32]
    """[episodes]: lengths of the same episodes."""
    info: NDArray[np.float64]
    """[2, K]: sums and counts of the numbers in the infos of its data, in the order of `EnvSpec.info`."""

    @classmethod
    def of_step(cls, taken: Taken, step: int, updates: int, update_metrics: UpdateMetrics) -> Learned:
        """Return the result of a learning step. Env steps, episodes and lag are those of the first use of the data.

        Args:
            taken: the data of the step.
            step: its number.
            updates: updates of the step, refused ones included.
            update_metrics: metrics of the step.
        """
        if not taken.is_first_use:
            return cls.without_rows(updates, update_metrics)
        rows = taken.rows
        ended = rows["episode_length"] != NOT_ENDED
        update_metrics.add_spread("policy_lag", step - taken.versions)
        return cls(
            env_steps=env_steps_in(rows),
            agent_steps=int(rows["valid"].sum()),
            updates=updates,
            refused=update_metrics.refused,
            metrics=update_metrics.summary(),
            episode_returns=rows["episode_return"][ended],
            episode_lengths=rows["episode_length"][ended],
            info=sums_and_counts(rows.get("info", np.zeros((0, 0, 0)))).sum(axis=(1, 2)),
        )

    @classmethod
    def without_rows(cls, updates: int, update_metrics: UpdateMetrics) -> Learned:
        """Return the result of a learning step without new data; the arguments are those of `of_step`."""
        none, metrics = np.zeros(0), update_metrics.summary()
        return cls(0, 0, updates, update_metrics.refused, metrics, none, none.astype(np.int32), np.zeros((2, 0)))


class Learner(ABC):
    """Base of all learners: has an algorithm, its optimizers, a feed, and the weights to publish."""

    def __init__(
        self,
        algorithm: Algorithm,
        feed: Feed,
        weights: Weights,
        *,
        seed: int,
        timings: Timings,
        counter: UpdateCounter | None = None,
        policy_index: int = 0,
    ) -> None:
        """Make the learner of one policy.

        Args:
            algorithm: the algorithm, with the parameters to learn.
            feed: gives the data of each learning step.
            weights: the versions of the weights are published here.
            seed: seed of the run.
            timings: the time of each learning step is added here.
            counter: counts the updates of all learners, if other learners change the same parameters (Hogwild).
            policy_index: index of the policy in the run's policies.
        """
        self.feed = feed
        self._algorithm, self._weights, self.timings = algorithm, weights, timings
        self._seed, self._key = seed, key_of(policy_index)
        self._updates = Updates(algorithm, counter)
        networks = {name: group.parameters.module for name, group in algorithm.groups.items()}
        self._encoder_metrics = EncoderMetrics(networks)
        self.progress = 0.0
        """Training progress that the newest version was published with."""

    @property
    def updates_made(self) -> int:
        """Number of updates that this learner has made, refused ones included. It may be read in another thread."""
        return self._updates.made

    def _random(self, step: int) -> np.random.Generator:
        """Return the random stream of a learning step."""
        return stream(self._seed, "learn", step, *self._key)

    def _start(self, progress: float) -> Mapping[str, float]:
        """Start a learning step of the algorithm; return the learning rate of each parameter group.

        Raises:
            RunFailed: the algorithm, which may be the user's, gives no rate for a group, or one that cannot be used.
        """
        rates, groups = self._algorithm.start(progress), self._algorithm.groups
        with suppress(TypeError):  # a rate that is None or text
            if isinstance(rates, Mapping) and all(0 <= rates.get(group, math.nan) < math.inf for group in groups):
                return rates
        raise RunFailed(
            f"{type(self._algorithm).__qualname__}.start returned {rates!r} at progress {progress:g}, but a dict with "
            f"the learning rate of each parameter group ({', '.join(groups)}) is expected, finite and at least 0"
        )

    @torch.enable_grad()
    def learn(self, step: int, progress: float) -> Learned:
        """Make learning step `step` and publish version `step + 1`; `progress`: training progress, from 0 to 1.

        Gradients are enabled meanwhile, and then as before, whatever the env or a generator of the algorithm has set.
        """
        return self._learn(step, progress)

    @torch.enable_grad()
    def rehearse(self, step: int) -> float:
        """Repeat updates of a step, to measure their time; return the number of env steps that they stand for.

        Gradients are enabled as in `learn`.
        """
        return self._rehearse(step)

    @abstractmethod
    def _learn(self, step: int, progress: float) -> Learned:
        """Do the work of `learn`."""

    @abstractmethod
    def _rehearse(self, step: int) -> float:
        """Do the work of `rehearse`."""

    def _own_metrics(self, rates: Mapping[str, float]) -> dict[str, float]:
        """Return metrics of the encoders, and the largest learning rate of the parameter groups."""
        return {**self._encoder_metrics.read(), "learning_rate": max(rates.values())}

    def publish(self, version: int, progress: float = 0.0) -> None:
        """Publish the present weights as this version, with the training progress of the step that made them."""
        started = clock()
        self.progress = progress
        self._updates.pull()
        self._algorithm.write_published(self._weights.open(version))
        self._weights.commit(version, progress)
        self.feed.published(version)
        self.timings.add(PUBLISH, clock() - started)

    def state(self, *, with_rows: bool = True) -> dict[str, Any]:
        """Return the state that a resumed run needs, without the weights; `with_rows`: see `Feed.state`."""
        own = {"algorithm": self._algorithm.state(), "adam": self._updates.state(), "progress": self.progress}
        return {**own, **self.feed.state(with_rows=with_rows)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self._algorithm.restore(state["algorithm"])
        self.restore_own(state)

    def restore_own(self, state: Mapping[str, Any]) -> None:
        """Restore only what other learners of the same parameters do not share: optimizers, progress and feed."""
        self._updates.restore(state["adam"])
        self.progress = state["progress"]
        self.feed.restore(state)


class UnrollLearner(Learner):
    """Learns from batches of unrolls, one batch per learning step. A batch may be used in several learning steps."""

    _algorithm: OnPolicyAlgorithm

    def _learn(self, step: int, progress: float) -> Learned:
        started = clock()
        rates = self._start(progress)
        taken = self.feed.take(step, self.timings)
        loaded = clock()
        batch = self._algorithm.prepare(taken.batch)
        prepared = clock()
        update_metrics, updates = UpdateMetrics(), 0
        minibatches = self._algorithm.minibatches(batch, self._random(step))
        for minibatch in require_minibatches(minibatches, self._algorithm.minibatches):
            self._updates.apply(updates, minibatch, rates, update_metrics)
            updates += 1
        updated = clock()
        if taken.is_first_use:
            self._algorithm.update_statistics(batch)
        update_metrics.add(self._algorithm.finish(batch), self._algorithm.finish)
        self.publish(step + 1, progress)
        self.timings.add(PREPARE, prepared - loaded)
        self.timings.add(UPDATE, updated - prepared)
        self.timings.add("learn", clock() - started)
        update_metrics.add(self._own_metrics(rates) | self.feed.use_metrics(step))
        return Learned.of_step(taken, step, updates, update_metrics)

    def _rehearse(self, step: int) -> float:
        self._learn(step, 0.0)
        return self.feed.env_steps_per_use(step)


class UntrainedLearner(Learner):
    """Publishes the same weights in every learning step, for a policy that acts and does not learn."""

    def _learn(self, step: int, progress: float) -> Learned:
        self.publish(step + 1, progress)
        return Learned.without_rows(0, UpdateMetrics())

    def _rehearse(self, step: int) -> float:
        return self._learn(step, 0.0).env_steps
