from __future__ import annotations

from functools import partial
from threading import Event, Timer
from types import SimpleNamespace

from offbeat.runtime import deadline
from offbeat.runtime.deadline import CONFIRM_S, StallWatch, notifying_if_slow


def test_a_reminder_that_is_being_shown_ends_before_the_caller_goes_on(monkeypatch):
    monkeypatch.setattr(deadline, "REMIND_S", 0.001)
    is_shown, may_end, shown = Event(), Event(), list[str]()

    def notify(message: str) -> None:
        is_shown.set()
        may_end.wait(timeout=60)
        shown.append(message)

    with notifying_if_slow("testing an env", notify):
        assert is_shown.wait(timeout=60)
        Timer(0.2, may_end.set).start()
    assert [message.partition(" after")[0] for message in shown] == ["still testing an env"]


def test_each_deadline_that_has_passed_has_the_whole_time_to_be_renewed(monkeypatch):
    watched = SimpleNamespace(has_passed=True, time=1.0)
    watch = StallWatch([watched])  # type: ignore[list-item]
    stalled = []
    for now, passed in [(2.0, 1.0), (2.0 + 0.9 * CONFIRM_S, 1.9), (2.0 + 1.2 * CONFIRM_S, 1.9), (9.0, 1.9)]:
        watched.time = passed
        monkeypatch.setattr(deadline, "monotonic", partial(float, now))
        stalled.append(watch.has_stalled(0))
    assert stalled == [False, False, False, True]
