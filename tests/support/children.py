"""Child processes, as a test sees them. Children import this with what they run, so it does without torch."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from offbeat.runtime.children.child import Child


def take_reports_until(child: Child, holds: Callable[[], bool], seconds: float = 120.0) -> None:
    """Take the reports of a child until a condition holds; the limit keeps a broken test from hanging."""
    deadline = monotonic() + seconds
    while not holds():
        assert monotonic() < deadline, "what was waited for did not come"
        assert not child.failure, child.failure
        child.take_reports(0.1)
