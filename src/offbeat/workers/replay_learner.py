"""The learner for a replay: each learning step takes in one ticket and makes the updates that are due."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter as clock

import numpy as np

from offbeat.algorithms.base import ReplayAlgorithm
from offbeat.workers.feed import ReplayFeed
from offbeat.workers.learner import Learned, Learner, summary
from offbeat.workers.updates import UpdateMetrics


class ReplayLearner(Learner):
    """See the module's docstring."""

    _algorithm: ReplayAlgorithm
    feed: ReplayFeed

    def learn(self, step: int, progress: float) -> Learned:
        started = clock()
        taken = self.feed.take(step)
        rates, random = self._algorithm.start(progress), self._random(step)
        update_metrics = UpdateMetrics()
        taken_in = clock()
        for _ in range(taken.due):
            self._update(random, rates, update_metrics)
        self.feed.count(taken.due)
        updated = clock()
        metrics = self._algorithm.finish(taken.batch)
        self.publish(step + 1, progress)
        self.timings.add("learn/load", taken_in - started)
        self.timings.add("learn/publish", clock() - updated)
        self.timings.add("learn", clock() - started)
        replay_metrics = {**self.feed.ratio_metrics(), **self.feed.sizes(), "learning_rate": max(rates.values())}
        metrics = {**update_metrics.summary(), **metrics, **replay_metrics}
        return summary(taken, step, taken.due, update_metrics.refused, metrics)

    def _update(self, random: np.random.Generator, rates: Mapping[str, float], update_metrics: UpdateMetrics) -> None:
        started, number = clock(), self.feed.made
        self._updates.pull()
        samples, sampled = self.feed.sample(random)
        loaded = clock()
        minibatch = self._algorithm.minibatch(sampled, random)
        prepared = clock()
        applied = self._updates.apply(number, minibatch, rates, update_metrics)
        if applied and self.feed.prioritized:
            self.feed.update_priorities(samples, self._algorithm.priorities(minibatch))
        update_metrics.add_spread("sample_age", number - samples.behavior_updates)
        self.feed.made = number + 1
        self.timings.add("learn/load", loaded - started)
        self.timings.add("learn/prepare", prepared - loaded)
        self.timings.add("learn/update", clock() - prepared)

    def rehearse(self, step: int) -> float:
        random, rates = self._random(step), self._algorithm.start(0.0)
        self._update(random, rates, UpdateMetrics())
        return self.feed.env_steps_per_update(step)
