"""What tests of measurements share."""

from __future__ import annotations

import pytest

from offbeat.tuning import other_load


@pytest.fixture(autouse=True)
def _the_load_of_the_machine_is_observed_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each measurement: no test depends on this load."""
    monkeypatch.setattr(other_load, "SAMPLE_S", 0.02)
