from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
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


def test_a_reminder_names_ctrl_c_only_in_the_main_thread(monkeypatch):
    monkeypatch.setattr(prepare, "REMIND_S", 0.001)

    def remedy() -> str:
        shown: SimpleQueue[str] = SimpleQueue()
        with notifying_if_slow("testing an env", shown.put):
            return shown.get(timeout=60).partition("if it hangs, ")[2]

    with ThreadPoolExecutor() as pool:
        assert (remedy(), pool.submit(remedy).result()) == ("press Ctrl-C", "kill the process")
