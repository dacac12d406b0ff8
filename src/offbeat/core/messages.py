"""A function in place of those that show messages to the user."""

from __future__ import annotations


def ignore(*_messages: object) -> None:
    """Show no message."""
