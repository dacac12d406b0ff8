"""What every test process does: nothing that its tests start outlives it, even if it is killed with -9."""

from __future__ import annotations

import signal

from hypothesis import settings
from tests.reference import survivors

settings.register_profile("offbeat", deadline=None)  # no test depends on how fast a machine is
settings.load_profile("offbeat")


def pytest_configure() -> None:
    """Begin before any test, in each of xdist's processes too."""
    survivors.mark_and_watch()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup would have ignored, in what tests start too
