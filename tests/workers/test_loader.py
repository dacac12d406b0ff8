from __future__ import annotations

import threading
import time
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.support.copying_device import CopyingBuffers

from offbeat.core.errors import Closed, RunFailed
from offbeat.core.pace import OnPolicyPace
from offbeat.core.process import threads
from offbeat.metrics.timings import Timings
from offbeat.workers import loader as loader_module
from offbeat.workers import staging
from offbeat.workers.loader import LoadAhead, Loader
from offbeat.workers.staging import Staging
from offbeat.workers.unroll_feed import UnrollFeed

PATIENCE_S = 30.0
"""No test waits longer, whatever fails."""
AHEAD = LoadAhead(2, PATIENCE_S)


def squares(number: int, timings: Timings) -> int:
    timings.add("load", 1.0)
    return number**2


def test_items_are_loaded_in_order_and_never_further_than_allowed():
    loaded: list[int] = []
    waits = threading.Semaphore(0)

    def load(number: int, _timings: Timings) -> int:
        loaded.append(number)
        waits.release()
        return number

    loader = Loader("item", load, 5, AHEAD)
    timings = Timings()
    assert loaded == []
    for number in range(5, 20):
        loader.allow(number + 3)
        assert loader.take(number, timings) == number
        assert loaded == list(range(5, 5 + len(loaded)))
        assert len(loaded) <= number + 3 - 5
    for _ in range(17):
        assert waits.acquire(timeout=PATIENCE_S)
    assert loaded == list(range(5, 22)), "all that was allowed"
    loader.close()


def test_the_time_of_the_loader_and_the_wait_for_it_are_added_to_the_timings():
    timings, loader = Timings(), Loader("item", squares, 0, AHEAD)
    loader.allow(3)
    assert [loader.take(number, timings) for number in range(3)] == [0, 1, 4]
    loader.close()
    assert timings.seconds["load"] == 3.0
    assert timings.seconds["learn/load_wait"] > 0


def test_an_error_is_raised_in_place_of_its_item_and_not_before():
    def load(number: int, _timings: Timings) -> int:
        return 12 // (2 - number)

    loader = Loader("batch", load, 0, AHEAD)
    loader.allow(3)
    assert [loader.take(number, Timings()) for number in range(2)] == [6, 12]
    with pytest.raises(ZeroDivisionError) as caught:
        loader.take(2, Timings())
    assert caught.value.__notes__ == ["This error is from the thread that loads each batch ahead (load_ahead)."]
    loader.close()


def test_a_loader_that_hangs_is_an_error_with_its_name_and_does_not_delay_the_end(monkeypatch):
    monkeypatch.setattr(threads, "CLOSE_S", 0.01)
    monkeypatch.setattr(loader_module, "POLL_S", 0.01)
    ended = threading.Event()
    loader = Loader("batch", lambda _number, _timings: ended.wait(PATIENCE_S), 0, LoadAhead(1, 0.05))
    loader.allow(1)
    with pytest.raises(RunFailed, match=r"the loader made no progress.*batch 0.*0\.05 s \(stall_timeout_s\)"):
        loader.take(0, Timings())
    loader.close()
    ended.set()
    monkeypatch.undo()
    loader.close()  # waits for the thread, which a later test would find


def test_the_time_in_which_the_process_is_stopped_does_not_count(monkeypatch):
    looks, readings = threading.Semaphore(0), count(0, 1000)

    def jumping_clock() -> int:
        looks.release()
        return next(readings)

    def load(number: int, _timings: Timings) -> int:
        looks.acquire()
        return number

    loader = Loader("item", load, 0, AHEAD)
    loader.allow(2)
    monkeypatch.setattr(threading, "_time", jumping_clock)  # the clock of the waits for a condition
    assert loader.take(1, Timings()) == 1, "item 0 ends the first wait, and 1000 s have passed"
    loader.close()


def test_a_loader_whose_thread_cannot_be_started_says_which_limit_to_raise():
    at_the_limit = patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread"))
    with at_the_limit, pytest.raises(RunFailed, match=r"'offbeat loader of batch' cannot be started .*ulimit -u"):
        Loader("batch", squares, 0, AHEAD)


@pytest.mark.parametrize("allowed", [0, 1])
def test_a_closed_loader_ends_whether_it_waits_for_permission_or_for_tickets(allowed):
    started = threading.Event()

    def load(_number: int, _timings: Timings) -> int:
        started.set()
        while not loader.closed:
            threading.Event().wait(0.01)
        raise Closed

    loader = Loader("batch", load, 0, AHEAD)
    loader.allow(allowed)
    assert started.wait(PATIENCE_S if allowed else 0.0) == bool(allowed)
    loader.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "offbeat loader of batch"]


# --- batches of unrolls -------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [{}, {"resident_batches": 2, "passes": 2}])
def test_no_batch_is_loaded_into_buffers_that_are_in_use(monkeypatch, layout):
    monkeypatch.setitem(staging.BUFFERS, "cpu", CopyingBuffers)  # which refuse it
    arrays = {"reward": np.zeros((2, 1), np.float32), "behavior_version": np.zeros(1)}
    unrolls: Any = SimpleNamespace(pace=OnPolicyPace(1, max_lag=9, **layout), arrays_of=lambda _step: arrays)
    feed = UnrollFeed(unrolls, Staging("cpu"), AHEAD)
    feed.load_ahead(lambda *_all_are_committed: None)
    try:
        for step in range(8):
            feed.take(step, Timings())
            time.sleep(0.02)  # the thread loads all that it may
            feed.published(step + 1)
    finally:
        feed.stop_loading()
