"""The feed of batches of unrolls."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter as clock
from typing import Any

from offbeat.algorithms.base import Batch
from offbeat.core.types import Tree
from offbeat.memory.unrolls import Unrolls
from offbeat.metrics.timings import LOAD, LOADER, Timings
from offbeat.workers.feed import REPORTED, Feed, Taken, WaitForCommits, env_steps_in
from offbeat.workers.loader import NO_LOADER, LoadAhead, Loader
from offbeat.workers.staging import DeviceBuffers, Staging


class UnrollFeed(Feed):
    """Returns batches of unrolls. A batch that is used several times stays on the device until its last use.

    With N resident batches and `ahead` batches that are loaded ahead, there are N + `ahead` buffers, and batch b has
    buffers b % (N + `ahead`). The loader may load `ahead` batches that have not been used. So it can load batch b only
    when batch b - N has been used for the first time: then batch b - N - `ahead` has been used for the last time.
    """

    def __init__(self, unrolls: Unrolls, staging: Staging, ahead: LoadAhead = NO_LOADER) -> None:
        """Make the feed of a learner.

        Args:
            unrolls: the slots that actors write.
            staging: moves batches to the device.
            ahead: how many batches are loaded ahead, once `load_ahead` is called.
        """
        self._unrolls, self._pace, self._ahead = unrolls, unrolls.pace, ahead
        self._buffers = [staging.buffers() for _ in range(self._pace.resident_batches + ahead.depth)]
        self._in_use: dict[int, Batch] = {}
        """Batches on the device that the learner uses, or uses again, by number."""
        self._learned = 0
        """Number of finished learning steps."""
        self._wait_for_commits: WaitForCommits | None = None
        self._loader: Loader[Batch] | None = None

    def env_steps(self, step: int) -> int:
        return self._env_steps_of_batch(step) if self._pace.is_first_use(step) else 0

    def env_steps_per_use(self, step: int) -> float:
        return self._env_steps_of_batch(step) / self._pace.passes

    def _env_steps_of_batch(self, step: int) -> int:
        return env_steps_in(self._rows(self._unrolls.arrays_of(step)))

    def _rows(self, arrays: Tree) -> Tree:
        return {name: arrays[name][:-1] for name in REPORTED if name in arrays}

    def take(self, step: int, timings: Timings) -> Taken:
        arrays, number = self._unrolls.arrays_of(step), self._pace.batch_of(step)
        if number not in self._in_use:
            self._in_use[number] = self._loaded(number, step, timings)
            self._buffers_of(number).use()
        is_first_use = self._pace.is_first_use(step)
        return Taken(self._rows(arrays), arrays["behavior_version"], self._in_use[number], is_first_use=is_first_use)

    def _loaded(self, number: int, step: int, timings: Timings) -> Batch:
        """Return a batch on the device: from the loader, or loaded here. `step` is the learning step that uses it."""
        if self._wait_for_commits is None:
            return self._load(number, timings, LOAD)
        if self._loader is None:
            # After a resume, batches that are used again are loaded too: the oldest of them is the first.
            first = self._pace.resident(step).start
            self._loader = Loader("batch", self._load_committed, first, self._ahead)
        self._loader.allow(self._pace.batches_used(step + 1) + self._ahead.depth)
        return self._loader.take(number, timings)

    def _load_committed(self, number: int, timings: Timings) -> Batch:
        """Load a batch in the loader's thread, once its tickets are committed."""
        assert self._wait_for_commits is not None
        self._wait_for_commits(self._pace.acted_before_learn(self._pace.first_use(number)), self._is_closed)
        return self._load(number, timings, LOADER)

    def _is_closed(self) -> bool:
        return self._loader is None or self._loader.closed

    def _load(self, number: int, timings: Timings, name: str) -> Batch:
        """Load a batch in this thread; its time is added under `name`."""
        started = clock()
        tensors = self._buffers_of(number).load(self._unrolls.arrays_of(self._pace.first_use(number)))
        timings.add(name, clock() - started)
        return tensors

    def _buffers_of(self, number: int) -> DeviceBuffers:
        return self._buffers[number % len(self._buffers)]

    @property
    def loader_timings(self) -> tuple[str, ...]:
        return (LOAD,) if self._ahead.depth else ()

    def load_ahead(self, wait_for_commits: WaitForCommits) -> None:
        self._wait_for_commits = wait_for_commits if self._ahead.depth else None

    def stop_loading(self) -> None:
        if self._loader is not None:
            self._loader.close()
        self._wait_for_commits = self._loader = None
        self._in_use.clear()

    def use_metrics(self, step: int) -> dict[str, float]:
        if self._pace.passes == 1:
            return {}
        uses = (step + 1) / self._pace.batches_used(step + 1)
        return {"batch_uses": uses, "resident_share": 1.0 - self._pace.is_first_use(step)}

    def published(self, version: int) -> None:
        self._learned = version
        for number in [number for number in self._in_use if self._pace.last_use(number) < version]:
            del self._in_use[number]
            self._buffers_of(number).release()

    def state(self, *, with_rows: bool = True) -> dict[str, Any]:
        return {"batches": {"learned": self._learned, "resident": self._resident_arrays() if with_rows else {}}}

    def restore(self, state: Mapping[str, Any]) -> None:
        saved = state["batches"]
        self._learned = saved["learned"]
        arrays = self._resident_arrays()
        for name, rows in saved["resident"].items():
            arrays[name][...] = rows

    def _resident_arrays(self) -> Tree:
        """Return the arrays of the batches that are used again, as views, by number of the batch and field."""
        return {
            f"{number}/{name}": array
            for number in self._pace.resident(self._learned)
            for name, array in self._unrolls.arrays_of(self._pace.first_use(number)).items()
        }
