"""Here processes of runs start as users start them: what happens to them while they start is a part of these tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _as_users_start_them(fresh_children: None) -> None:
    """Start each child of a run as a new Python."""
