from __future__ import annotations

from functools import partial
from types import SimpleNamespace

from offbeat.runtime import deadline
from offbeat.runtime.deadline import CONFIRM_S, StallWatch


def test_each_deadline_that_has_passed_has_the_whole_time_to_be_renewed(monkeypatch):
    watched = SimpleNamespace(has_passed=True, time=1.0)
    watch = StallWatch([watched])  # type: ignore[list-item]
    stalled = []
    for now, passed in [(2.0, 1.0), (2.0 + 0.9 * CONFIRM_S, 1.9), (2.0 + 1.2 * CONFIRM_S, 1.9), (9.0, 1.9)]:
        watched.time = passed
        monkeypatch.setattr(deadline, "monotonic", partial(float, now))
        stalled.append(watch.has_stalled(0))
    assert stalled == [False, False, False, True]
