"""Warns of tensors of the user's algorithm that no checkpoint seems to have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbeat.api.caller_warnings import warn_caller
from offbeat.core.errors import UnsavedTensor

if TYPE_CHECKING:
    from offbeat.runtime.parts import Parts


def unsaved_tensors(parts: Parts) -> tuple[str, ...]:
    """Return the messages about such tensors, one for each class of algorithm; each is a Python warning too."""
    for text in parts.warnings:
        warn_caller(text, UnsavedTensor)
    return parts.warnings
