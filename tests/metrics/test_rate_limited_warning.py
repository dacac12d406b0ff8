"""Warnings that come often."""

from __future__ import annotations

from offbeat.metrics import rate_limited_warning
from offbeat.metrics.rate_limited_warning import RateLimitedWarning


def test_repeated_warnings_are_logged_once_a_minute_with_their_count(monkeypatch):
    shown: list[str] = []
    warn = RateLimitedWarning(shown.append)
    for _ in range(3):
        warn("no room")
    monkeypatch.setattr(rate_limited_warning, "monotonic", lambda: float("inf"))
    warn("still no room")
    assert shown == ["no room", "still no room; 2 more since the last warning"]
