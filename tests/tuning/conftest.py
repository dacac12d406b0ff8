"""Benchmarks in tests measure each part once: no test depends on how fast it was."""

from __future__ import annotations

import pytest


@pytest.fixture
def measured_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `bench` measure each cost once, and accept it: so short a measurement may well be wrong."""
    from offbeat.tuning import bench

    monkeypatch.setattr(bench, "SECONDS", 0.0)
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "MAX_FRACTION", 1e9)
