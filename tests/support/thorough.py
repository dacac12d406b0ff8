"""What `make test` leaves to `make test-all`: more values of what one value has already shown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

THOROUGH = True
"""Whether thorough tests run too; set before the tests are loaded."""


def thorough(*values: Any) -> list[Any]:
    """Return parameters that only `make test-all` takes; a tuple has one value for each name."""
    return [
        pytest.param(*(value if type(value) is tuple else (value,)), marks=pytest.mark.thorough) for value in values
    ]


def examples(number: int, **others: Any) -> settings:
    """Let Hypothesis try `number` examples in `make test-all`, a quarter of them in `make test`."""
    return settings(max_examples=number if THOROUGH else -(-number // 4), deadline=None, **others)


def stride(number: int) -> int:
    """Return the distance between values that are tried: 1 in `make test-all`, `number` in `make test`."""
    return 1 if THOROUGH else number
