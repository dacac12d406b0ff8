"""The error for a key that a run does not have."""

from __future__ import annotations

from collections.abc import Iterable

from offbeat.config.registry import ALGORITHMS
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.fields import hints_of


def unknown_key(key: str, known: Iterable[str], remedy: str) -> ConfigError:
    """Return the error for an unknown key: it names the algorithms that have the key, or else the nearest known key."""
    owners = [name for name, entry in ALGORITHMS.items() if key in hints_of(entry.config_class())]
    if not owners:
        return unknown("key", key, known, remedy)
    return ConfigError(
        f"{key} is a setting of {', '.join(owners)}, and not of the algorithm of this run: leave it out, or train with "
        f"one of these. {remedy}"
    )
