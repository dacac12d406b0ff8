"""What every test process does: nothing that its tests start outlives it, even if it is killed with -9."""

from __future__ import annotations

from tests.reference import survivors


def pytest_configure() -> None:
    """Begin before any test, in each of xdist's processes too."""
    survivors.mark_and_watch()
