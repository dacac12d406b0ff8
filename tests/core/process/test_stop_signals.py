"""Which stop signals a run takes for a first and for a second one, and which handlers it replaces."""

from __future__ import annotations

import signal
import time

from offbeat.core.process import stop_signals
from offbeat.core.process.stop_signals import StopRequest, replaceable_handlers


def test_a_signal_soon_after_the_first_is_the_same_and_a_later_one_is_a_second(monkeypatch):
    request = StopRequest()
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert request.signal is None
    assert request.take(signal.SIGTERM) == "first"
    now += stop_signals.REPEATED_WITHIN_S - 0.01
    assert request.take(signal.SIGINT) == "repeated"
    now += 0.02
    assert request.take(signal.SIGHUP) == "repeated"  # of the terminal, which the user has closed after Ctrl-C
    assert request.take(signal.SIGINT) == "second"
    assert request.signal is signal.SIGTERM


def test_ignored_signals_and_handlers_that_cannot_be_restored_are_not_replaced(monkeypatch):
    handlers = {signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: None}
    monkeypatch.setattr(signal, "getsignal", handlers.__getitem__)
    assert replaceable_handlers() == {signal.SIGTERM: signal.SIG_DFL}
