"""What `make test` leaves to `make test-all`: more values of what one value has already shown."""

from __future__ import annotations

from typing import Any

import pytest


def thorough(*values: Any) -> list[Any]:
    """Return parameters that only `make test-all` takes; a tuple has one value for each name."""
    return [
        pytest.param(*(value if type(value) is tuple else (value,)), marks=pytest.mark.thorough) for value in values
    ]
