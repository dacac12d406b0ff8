"""The loader: a thread that prepares the learner's next data while the learner trains.

Items are loaded in a fixed order, and only as far ahead as the learner allows. So the data of a learning step does not
depend on the speed of the thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from math import inf
from time import perf_counter as clock
from typing import Generic, NamedTuple, TypeVar

from offbeat.core.errors import Closed, RunFailed
from offbeat.core.process.threads import join_all, start_thread
from offbeat.metrics.timings import LOAD_WAIT, Timings

Item = TypeVar("Item")

POLL_S = 1.0
"""Seconds between two checks whether an item is there."""


class LoadAhead(NamedTuple):
    """How far data is loaded ahead."""

    depth: int
    """Number of batches, with a replay of minibatches. 0: the learner loads its data itself, without a thread."""
    stall_timeout_s: float
    """Seconds that the learner waits for the thread, before it counts as hung."""


NO_LOADER = LoadAhead(0, inf)
"""The learner loads its data itself."""


class Loader(Generic[Item]):
    """Loads items `first`, `first` + 1, ... in a thread."""

    def __init__(self, name: str, load: Callable[[int, Timings], Item], first: int, ahead: LoadAhead) -> None:
        """Start the thread. It loads nothing before `allow`.

        Args:
            name: what it loads, for messages: "batch".
            load: returns an item, and adds the time that it takes to the timings of the thread. It may raise `Closed`.
            first: number of the first item.
            ahead: has the time limit.

        Raises:
            RunFailed: the thread cannot be started.
        """
        self._name, self._load, self._first, self._stall_timeout_s = name, load, first, ahead.stall_timeout_s
        self._changed = threading.Condition()
        self._stop = first
        """Items below this number may be loaded."""
        self._loaded: dict[int, tuple[Item, Timings]] = {}
        self._error: BaseException | None = None
        self.closed = False
        self._thread = threading.Thread(target=self._run, name=f"offbeat loader of {name}", daemon=True)
        start_thread(self._thread)

    def allow(self, stop: int) -> None:
        """Let items below `stop` be loaded. Their order is fixed, and a number that was allowed stays allowed."""
        with self._changed:
            self._stop = max(self._stop, stop)
            self._changed.notify_all()

    def take(self, number: int, timings: Timings) -> Item:
        """Wait for an item and return it, once; the wait and the time of loading are added to `timings`.

        Raises:
            RunFailed: the loader did not load it in time.
        """
        started = clock()
        with self._changed:
            self._wait_for(number)
            item, spent = self._loaded.pop(number, (None, None))
            error = self._error
        timings.add(LOAD_WAIT, clock() - started)
        if item is not None and spent is not None:
            timings.merge(spent.seconds)
            return item
        if error is not None:
            error.add_note(f"This error is from the thread that loads each {self._name} ahead (load_ahead).")
            raise error
        raise RunFailed(
            f"the loader made no progress in time: {self._name} {number} was not loaded within "
            f"{self._stall_timeout_s:g} s (stall_timeout_s). Pass --set load_ahead=0 to load without a thread"
        )

    def _wait_for(self, number: int) -> None:
        """Wait for an item, an error or the time limit. The time in which this process is stopped does not count."""
        idle_s = 0.0
        while not self._changed.wait_for(lambda: number in self._loaded or self._error is not None, POLL_S):
            idle_s += POLL_S
            if idle_s >= self._stall_timeout_s:
                return

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        join_all([self._thread])

    def _run(self) -> None:
        try:
            for number in count(self._first):
                self._wait_until_allowed(number)
                timings = Timings()
                item = self._load(number, timings)
                with self._changed:
                    self._loaded[number] = item, timings
                    self._changed.notify_all()
        except Closed:
            return
        except BaseException as error:  # noqa: BLE001 - `take` raises it
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _wait_until_allowed(self, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.closed or number < self._stop)
        if self.closed:
            raise Closed
