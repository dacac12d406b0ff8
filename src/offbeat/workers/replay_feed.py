"""The feed of a replay.

All updates of a learning step sample from the same tickets: those up to the ticket of the step, even if later tickets
are already committed. So the result does not depend on the speed of the actors. A loader samples the next minibatches
of the same step ahead, with the same random numbers in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter as clock
from typing import Any, NamedTuple

import numpy as np

from offbeat.algorithms.base import Batch, Minibatch
from offbeat.core.pace import RatioCounts, ReplayPace
from offbeat.core.types import ENV_STEP, Array, Tree
from offbeat.memory.replay.base import Replay, Samples, priorities_in
from offbeat.metrics.timings import LOAD, LOADER, PREPARE, Timings
from offbeat.workers.feed import Feed, Taken, WaitForCommits, env_steps_in
from offbeat.workers.loader import NO_LOADER, LoadAhead, Loader
from offbeat.workers.staging import DeviceBuffers, Staging

MakeMinibatch = Callable[[Batch], Minibatch]
"""Makes the minibatch of an update from samples on the device."""


class Sampled(NamedTuple):
    """The data of one update."""

    samples: Samples
    minibatch: Minibatch
    """On the device."""


class _Source(NamedTuple):
    """What the minibatches of a learning step are made with."""

    random: np.random.Generator
    make_minibatch: MakeMinibatch


class _Priorities(NamedTuple):
    """Priorities of an update that are not used yet."""

    number: int
    """Number of the minibatch of the update."""
    samples: Samples
    errors: Array


class ReplayFeed(Feed):
    """Takes tickets into a replay and samples from it, once for each update that the pace makes due."""

    def __init__(
        self,
        replay: Replay,
        pace: ReplayPace,
        staging: Staging,
        *,
        saved: bool,
        priority_delay: int = 0,
        ahead: LoadAhead = NO_LOADER,
    ) -> None:
        """Make the feed of a replay.

        Args:
            replay: the replay of this learner.
            pace: says how many updates are due for a number of transitions.
            staging: moves samples to the device.
            saved: whether checkpoints include the replay.
            priority_delay: number of updates that are still sampled without the priorities of an update.
            ahead: how many minibatches are sampled ahead, once `load_ahead` is called; with priorities at most
                `priority_delay`.
        """
        self._replay, self._pace, self._staging, self._saved = replay, pace, staging, saved
        self._ahead, self._priority_delay = ahead, priority_delay
        self._buffers = [staging.buffers() for _ in range(ahead.depth + 1)]
        self._counted_transitions = self._counted_updates = 0
        """Transitions that the tickets taken in have completed, and updates of the learning steps that took them in.
        The update ratio is computed from these two counts. Both start with the run, or with a resume without the
        replay."""
        self.run_updates = 0
        """Updates of the whole run so far, refused ones included."""
        self._updates_at_version = np.zeros(pace.versions, np.int64)
        """[versions]: `run_updates` when a version of the weights was published, for each version that may still
        act."""
        self._minibatches_given = 0
        """Number of minibatches that this feed has given to the learner."""
        self._source: _Source | None = None
        self._unused = deque[_Priorities]()
        """Priorities that are not used yet, in the order of the updates."""
        self._loads_ahead = False
        self._loader: Loader[Sampled] | None = None

    def env_steps(self, step: int) -> int:
        return env_steps_in(self._replay.ticket(step))

    def take(self, step: int, timings: Timings) -> Taken:
        started = clock()
        rows = self._replay.ticket(step)
        versions = rows["behavior_version"]
        self._counted_transitions += self._replay.take_in(step, behavior_updates=self._updates_of(versions[0]))
        # Not below 0: a worker that died in this step may have made more.
        due = max(0, self._pace.due(self._counted_transitions) - self._counted_updates)
        observations = {name: rows[name][rows["valid"]] for name in self._replay.leaves}
        taken = Taken(rows, versions, self._staging.moved(observations), due)
        timings.add(LOAD, clock() - started)
        return taken

    def _updates_of(self, version: int) -> int:
        """Return the number of updates that were made before this version was published."""
        return int(self._updates_at_version[version % len(self._updates_at_version)])

    # --- minibatches ----------------------------------------------------------------------------------------

    def minibatches(
        self, updates: int, random: np.random.Generator, make_minibatch: MakeMinibatch, timings: Timings
    ) -> Iterator[Sampled]:
        """Yield the minibatches of the updates of a learning step. Each is valid until the next one.

        Args:
            updates: number of minibatches.
            random: the random stream of the step.
            make_minibatch: makes a minibatch from samples on the device. It may draw from `random`. With a loader it is
                called in another thread, so it must only read what does not change between the updates of a step.
            timings: the time is added here.
        """
        self._source = _Source(random, make_minibatch)
        stop = self._minibatches_given + updates
        for number in range(self._minibatches_given, stop):
            sampled = self._next(number, stop, timings)
            self._minibatches_given = number + 1
            yield sampled
            self._buffers_of(number).release()
        self._use_priorities(before=stop)

    def _next(self, number: int, stop: int, timings: Timings) -> Sampled:
        """Return a minibatch: from the loader, or made here. Those from `stop` on are of later learning steps."""
        if not self._loads_ahead:
            return self._load(number, timings, (LOAD, PREPARE))
        if self._loader is None:
            self._loader = Loader("minibatch", self._load_in_thread, number, self._ahead)
        self._loader.allow(min(stop, number + 1 + self._ahead.depth))
        sampled = self._loader.take(number, timings)
        self._buffers_of(number).use()
        return sampled

    def _load_in_thread(self, number: int, timings: Timings) -> Sampled:
        return self._load(number, timings, (LOADER, LOADER))

    def _load(self, number: int, timings: Timings, names: tuple[str, str]) -> Sampled:
        """Sample and make a minibatch in this thread; the times of the two are added under `names`."""
        assert self._source is not None
        started, buffers = clock(), self._buffers_of(number)
        self._use_priorities(before=number - self._priority_delay)
        samples = self._replay.sample(self._source.random)
        tensors = buffers.load(samples.arrays)
        buffers.use()
        loaded = clock()
        minibatch = self._source.make_minibatch(tensors)
        timings.add(names[0], loaded - started)
        timings.add(names[1], clock() - loaded)
        return Sampled(samples, minibatch)

    def _buffers_of(self, number: int) -> DeviceBuffers:
        return self._buffers[number % len(self._buffers)]

    @property
    def loader_timings(self) -> tuple[str, ...]:
        return (LOAD, PREPARE) if self._ahead.depth else ()

    # The argument is not needed: the tickets of a learning step are committed when the step begins to sample.
    def load_ahead(self, wait_for_commits: WaitForCommits) -> None:  # noqa: ARG002
        self._loads_ahead = self._ahead.depth > 0

    def stop_loading(self) -> None:
        if self._loader is not None:
            self._loader.close()
        self._loads_ahead, self._loader = False, None

    # --- priorities -----------------------------------------------------------------------------------------

    @property
    def prioritized(self) -> bool:
        """Whether the replay samples by priority."""
        return self._replay.prioritized

    def update_priorities(self, samples: Samples, errors: Array) -> None:
        """Set the priorities of the last minibatch from its TD errors, [M].

        They are used `priority_delay` + 1 updates later, or in the next learning step if that is earlier.
        """
        if self._priority_delay:
            self._unused.append(_Priorities(self._minibatches_given - 1, samples, errors.copy()))
        else:
            self._replay.update_priorities(samples, errors)

    def _use_priorities(self, before: int) -> None:
        """Use the priorities of the updates before this number."""
        while self._unused and self._unused[0].number < before:
            _, samples, errors = self._unused.popleft()
            self._replay.update_priorities(samples, errors)

    # --- counts ---------------------------------------------------------------------------------------------

    def env_steps_per_update(self, step: int) -> float:
        """Return the number of env steps per update, if all env steps have as many decisions as those of `step`."""
        rows = self._replay.ticket(step)
        if ENV_STEP not in rows:
            return float(1 / self._pace.utd_ratio)
        decisions = max(1, int(np.count_nonzero(rows["valid"])))
        return float(env_steps_in(rows) / decisions / self._pace.utd_ratio)

    def count(self, updates: int) -> None:
        """Count the updates of a finished learning step."""
        self._counted_updates += updates

    def published(self, version: int) -> None:
        self._updates_at_version[version % len(self._updates_at_version)] = self.run_updates

    def sizes(self) -> dict[str, float]:
        return {"replay_size": float(self._replay.size), **self._replay.metrics()}

    def ratio_metrics(self) -> dict[str, float]:
        """Return metrics of the update ratio so far; none during the warm-up."""
        after_warmup = self._counted_transitions - self._pace.warmup
        if after_warmup <= 0:
            return {}
        ratio = self._counted_updates / after_warmup
        return {"utd_ratio": ratio, "samples_per_insert": ratio * self._replay.transitions}

    # --- state ----------------------------------------------------------------------------------------------

    def checkpoint_arrays(self) -> Tree | None:
        return self._replay.arrays() if self._saved else None

    def load_checkpoint(self, arrays: Tree | None, step: int) -> str:
        if arrays is not None:
            self._replay.load(arrays)
            return f"the replay of {self._replay.size} transitions restored"
        self._replay.reset(step)
        self._counted_transitions = self._counted_updates = 0
        return "the checkpoint has no replay: it warms up again, and the ratio counts from here"

    def state(self, *, with_rows: bool = True) -> dict[str, Any]:  # noqa: ARG002 - `checkpoint_arrays` has all rows
        counted = {
            "valid": self._counted_transitions,
            "due": self._counted_updates,
            "made": self.run_updates,
            "updates_at_version": self._updates_at_version,
        }
        return {"replay": self._replay.state() if self._saved else None, "counted": counted}

    def restore(self, state: Mapping[str, Any]) -> None:
        if state["replay"] is not None:
            self._replay.restore(state["replay"])
        counted = state["counted"]
        self._counted_transitions, self._counted_updates = counted["valid"], counted["due"]
        self.run_updates = counted["made"]
        self._updates_at_version[:] = counted["updates_at_version"]

    def priorities(self) -> Tree:
        return priorities_in(self.checkpoint_arrays() or {})

    def memory_state(self) -> dict[str, Any]:
        # Independent of save_replay: a resumed run whose checkpoints omit the replay may have restored an earlier one.
        return {"replay": self._replay.state(), "priorities": priorities_in(self._replay.arrays())}

    def attach_memory(self, memory: Mapping[str, Any]) -> None:
        self._replay.restore(memory["replay"])
        self._replay.attach(memory["priorities"])

    def ratio(self, run_updates: int) -> RatioCounts:
        return RatioCounts(self._replay.origin, self._counted_transitions, run_updates - self._counted_updates)

    def recover(self, step: int, ratio: RatioCounts, run_updates: int) -> None:
        self._counted_transitions, self._counted_updates = ratio.valid, run_updates - ratio.updates_before
        self.run_updates = run_updates
        self._replay.recover(ratio.origin, step, behavior_updates=run_updates)

    def attach_worker_memory(
        self, state: Mapping[str, Any], priorities: Tree, step: int, ratio: RatioCounts, run_updates: int
    ) -> None:
        if state["replay"] is None:
            self.load_checkpoint(None, step)
        else:
            self._replay.attach(priorities)
            self._counted_updates, self.run_updates = run_updates - ratio.updates_before, run_updates
