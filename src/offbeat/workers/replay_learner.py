"""The learner for a replay: each learning step takes in one ticket and makes the updates that are due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from time import perf_counter as clock

from offbeat.algorithms.base import ReplayAlgorithm
from offbeat.metrics.timings import UPDATE
from offbeat.workers.learner import Learned, Learner
from offbeat.workers.replay_feed import ReplayFeed, Sampled
from offbeat.workers.updates import UpdateMetrics


class ReplayLearner(Learner):
    """See the module's docstring."""

    _algorithm: ReplayAlgorithm
    feed: ReplayFeed

    def _learn(self, step: int, progress: float) -> Learned:
        started = clock()
        taken = self.feed.take(step, self.timings)
        rates, update_metrics = self._start(progress), UpdateMetrics()
        for sampled in self._minibatches(step, taken.due):
            self._update(sampled, rates, update_metrics)
        self.feed.count(taken.due)
        update_metrics.add(self._algorithm.finish(taken.batch), self._algorithm.finish)
        self.publish(step + 1, progress)
        self.timings.add("learn", clock() - started)
        update_metrics.add(self._own_metrics(rates) | self.feed.ratio_metrics() | self.feed.sizes())
        return Learned.of_step(taken, step, taken.due, update_metrics)

    def _minibatches(self, step: int, updates: int) -> Iterator[Sampled]:
        """Yield the minibatches of this number of updates of a learning step."""
        random = self._random(step)
        return self.feed.minibatches(updates, random, partial(self._algorithm.minibatch, random=random), self.timings)

    def _update(self, sampled: Sampled, rates: Mapping[str, float], update_metrics: UpdateMetrics) -> None:
        started, number = clock(), self.feed.run_updates
        self._updates.pull()
        applied = self._updates.apply(number, sampled.minibatch, rates, update_metrics)
        if applied and self.feed.prioritized:
            self.feed.update_priorities(sampled.samples, self._algorithm.priorities(sampled.minibatch))
        update_metrics.add_spread("sample_age", number - sampled.samples.behavior_updates)
        self.feed.run_updates = number + 1
        self.timings.add(UPDATE, clock() - started)

    def _rehearse(self, step: int) -> float:
        rates = self._start(0.0)
        for sampled in self._minibatches(step, 1):
            self._update(sampled, rates, UpdateMetrics())
        return self.feed.env_steps_per_update(step)
