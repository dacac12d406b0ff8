"""The learner on a replay: takes in one ticket a learning step, and makes the updates that it makes due.

Every update of a step samples from the same tickets, those up to the one that it took in, however much more is
committed by then: so what is learned does not depend on who was quicker.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter as clock
from typing import Any

import numpy as np

from offbeat.algorithms.base import Batch, ReplayAlgorithm
from offbeat.core.pace import ReplayPace
from offbeat.core.seeding import stream
from offbeat.core.types import Tree
from offbeat.memory.replay.base import AnyReplay
from offbeat.memory.weights import Weights
from offbeat.metrics.timings import Timings
from offbeat.workers.learner import Learned, Learner, summary
from offbeat.workers.updates import UpdateCounter, UpdateMetrics


class ReplayLearner(Learner):
    """See the module's docstring."""

    _algorithm: ReplayAlgorithm

    def __init__(
        self,
        algorithm: ReplayAlgorithm,
        replay: AnyReplay,
        pace: ReplayPace,
        weights: Weights,
        *,
        saves_replay: bool,
        seed: int,
        device: str,
        timings: Timings,
        counter: UpdateCounter | None = None,
    ) -> None:
        super().__init__(algorithm, weights, seed=seed, device=device, timings=timings, counter=counter)
        self._replay, self._pace, self._saves_replay = replay, pace, saves_replay
        self._valid = self._due = 0
        """Valid transitions taken in, and the updates that they made due. The ratio is held on these two: both count
        from the run's beginning, or from a resume without the replay."""
        self._made = 0
        """Updates of the whole run; refused ones count too."""
        self._had = np.zeros(pace.versions, np.int64)
        """The updates that each version of the weights has had, those that a ticket may be acted with."""

    def valid_rows(self, step: int) -> int:
        return int(self._replay.ticket(step)["valid"].sum())

    def learn(self, step: int, progress: float) -> Learned:
        begun = clock()
        rows = self._take_in(step)
        due = max(0, self._pace.due(self._valid) - self._due)  # more may have been made where one died in the middle
        rates, random, update_metrics = (
            self._algorithm.start(progress),
            stream(self._seed, "learn", step),
            UpdateMetrics(),
        )
        taken_in = clock()
        for _ in range(due):
            self._update(random, rates, update_metrics)
        self._due += due
        updated = clock()
        metrics = self._algorithm.finish(self._observations(rows))
        self.publish(step + 1, progress)
        self._timings.add("learn/load", taken_in - begun)
        self._timings.add("learn/publish", clock() - updated)
        self._timings.add("learn", clock() - begun)
        metrics = {**update_metrics.summed_up(), **metrics, **self._ratio(), "learning_rate": max(rates.values())}
        return summary(rows, step - rows["behavior_version"], due, update_metrics.refused, metrics)

    def _take_in(self, step: int) -> Tree:
        """Let the step's ticket be sampled; return its rows."""
        rows = self._replay.ticket(step)
        self._replay.take_in(step, acted_at=int(self._had[rows["behavior_version"][0] % len(self._had)]))
        self._valid += int(np.count_nonzero(rows["valid"]))
        return rows

    def _update(self, random: np.random.Generator, rates: Mapping[str, float], update_metrics: UpdateMetrics) -> None:
        begun = clock()
        self._updates.pull()
        samples = self._replay.sample(random)
        staged = self._staging.tensors(samples.arrays)
        loaded = clock()
        minibatch = self._algorithm.minibatch(staged, random)
        prepared = clock()
        applied = self._updates.apply(self._made, minibatch, rates, update_metrics)
        if applied and self._replay.prioritized:
            self._replay.update_priorities(samples, self._algorithm.priorities(minibatch))
        update_metrics.add_spread("sample_age", self._made - samples.acted_at)
        self._made += 1
        self._timings.add("learn/load", loaded - begun)
        self._timings.add("learn/prepare", prepared - loaded)
        self._timings.add("learn/update", clock() - prepared)

    def _observations(self, rows: Tree) -> Batch:
        """Return the observations of a ticket's transitions, [M, ...] by leaf."""
        taken = {name: rows[name][rows["valid"]] for name in self._replay.leaves}
        return self._staging.moved(taken)

    def _ratio(self) -> dict[str, float]:
        """Return the ratio that has been reached; nothing in the warm-up."""
        beyond = self._valid - self._pace.warmup
        size = {"replay_size": float(self.size)}
        if beyond <= 0:
            return size
        ratio = self._due / beyond
        return {"utd_ratio": ratio, "samples_per_insert": ratio * self._replay.transitions, **size}

    def publish(self, version: int, progress: float = 0.0) -> None:
        super().publish(version, progress)
        self._had[version % len(self._had)] = self._made

    def rehearse(self, step: int) -> float:
        random, rates = stream(self._seed, "learn", step), self._algorithm.start(0.0)
        self._update(random, rates, UpdateMetrics())
        return float(1 / self._pace.utd_ratio)

    def checkpoint_arrays(self) -> Tree | None:
        return self._replay.arrays() if self._saves_replay else None

    def attach(self, arrays: Tree | None, step: int) -> str:
        if arrays is not None:
            self._replay.load(arrays)
            return f"the replay of {self._replay.valid} transitions restored"
        self._replay.reset(step)
        self._valid = self._due = 0
        return "the checkpoint has no replay: it warms up again, and the ratio counts from here"

    @property
    def size(self) -> int:
        """Transitions that can be sampled."""
        return self._replay.valid

    @property
    def ratio_state(self) -> tuple[int, int, int]:
        """The ticket from which on the ratio is held, the transitions since then, and the updates."""
        return self._replay.origin, self._valid, self._due

    def find(self, priorities: Tree, due: int, made: int) -> None:
        """Go on after `restore` with the rows that its memory holds, and with these priorities.

        Args:
            priorities: of the rows, where there are some.
            due: updates that the ratio is held on, with those of a learner that went on from here before and died.
            made: updates of the whole run, with those too.
        """
        self._replay.attach(priorities)
        self._due, self._made = due, made

    def recover(self, step: int, ratio_state: tuple[int, int, int], made: int) -> None:
        """Go on at `step` in the place of a learner that died, with the rows that its memory holds.

        Args:
            step: the first learning step that was not finished.
            ratio_state: as the property was after the one before; updates that came later count too.
            made: updates of the whole run.
        """
        origin, self._valid, self._due = ratio_state
        self._made = made
        self._replay.recover(origin, step, acted_at=made)

    def state(self) -> dict[str, Any]:
        counted = {"valid": self._valid, "due": self._due, "made": self._made, "had": self._had}
        replay = self._replay.state() if self._saves_replay else None
        return {**super().state(), "replay": replay, "counted": counted}

    def restore_own(self, state: Mapping[str, Any]) -> None:
        super().restore_own(state)
        if state["replay"] is not None:
            self._replay.restore(state["replay"])
        counted = state["counted"]
        self._valid, self._due, self._made = counted["valid"], counted["due"], counted["made"]
        self._had[:] = counted["had"]
