from __future__ import annotations

from threading import Event, Timer

from offbeat.api.running import prepare
from offbeat.api.running.prepare import notifying_if_slow


def test_a_reminder_that_is_being_shown_ends_before_the_caller_goes_on(monkeypatch):
    monkeypatch.setattr(prepare, "REMIND_S", 0.001)
    is_shown, may_end, shown = Event(), Event(), list[str]()

    def notify(message: str) -> None:
        is_shown.set()
        may_end.wait(timeout=60)
        shown.append(message)

    with notifying_if_slow("testing an env", notify):
        assert is_shown.wait(timeout=60)
        Timer(0.2, may_end.set).start()
    assert {message.partition(" after")[0] for message in shown} == {"still testing an env"}
