"""What every test process does: nothing that its tests start outlives it, even if it is killed with -9."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings
from tests.reference import survivors

settings.register_profile("offbeat", deadline=None)  # no test depends on how fast a machine is
settings.load_profile("offbeat")


KINDS = {
    "chaos": ("chaos",),
    "docs": ("docs",),
    "exact": ("test_exactness", "test_matrix"),
    "learning": ("test_learning",),
}
"""Marker -> folders and files whose tests have it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the kind of its file."""
    for item in items:
        places = {*item.path.parent.parts, item.path.stem}
        for kind, names in KINDS.items():
            if places & set(names):
                item.add_marker(kind)


def pytest_configure() -> None:
    """Begin before any test, in each of xdist's processes too."""
    survivors.mark_and_watch()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup would have ignored, in what tests start too
