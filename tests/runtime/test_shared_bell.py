from __future__ import annotations

import threading

import pytest

from offbeat.runtime.board import Bell, SharedBell

PATIENCE_S = 10.0
LONG_S = 60.0
"""A sleep that a test never waits for."""


class Sleeper(threading.Thread):
    """Sleeps on a bell until something has happened."""

    def __init__(self, bell: SharedBell, happened: threading.Event, looks: threading.Semaphore) -> None:
        super().__init__(daemon=True)
        self._bell, self._happened, self._looks = bell, happened, looks

    def run(self) -> None:
        while not self._happened.is_set():
            self._bell.sleep(LONG_S, self._look)

    def _look(self) -> bool:
        happened = self._happened.is_set()
        self._looks.release()
        return happened


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_ring_wakes_all_threads_that_sleep_on_the_bell(threads):
    bell, happened, looks = Bell.make(), threading.Event(), threading.Semaphore(0)
    shared = SharedBell(bell)
    sleepers = [Sleeper(shared, happened, looks) for _ in range(threads)]
    for sleeper in sleepers:
        sleeper.start()
    for _ in sleepers:
        assert looks.acquire(timeout=PATIENCE_S)
    happened.set()
    bell.ring()
    for sleeper in sleepers:
        sleeper.join(PATIENCE_S)
    assert not any(sleeper.is_alive() for sleeper in sleepers)
    bell.close()


def test_a_thread_that_stops_listening_lets_the_next_one_listen():
    bell, looks = Bell.make(), threading.Semaphore(0)
    shared = SharedBell(bell)
    first, second = threading.Event(), threading.Event()
    sleepers = [Sleeper(shared, happened, looks) for happened in (first, second)]
    for sleeper in sleepers:
        sleeper.start()
        assert looks.acquire(timeout=PATIENCE_S)
    for happened, sleeper in zip((first, second), sleepers, strict=True):
        happened.set()
        bell.ring()
        sleeper.join(PATIENCE_S)
        assert not sleeper.is_alive()
    bell.close()


def test_nobody_sleeps_for_what_has_happened_before(monkeypatch):
    bell = Bell.make()
    monkeypatch.setattr(bell, "sleep", lambda _seconds: pytest.fail("it has slept"))
    SharedBell(bell).sleep(LONG_S, unless=lambda: True)
    bell.close()
