"""A sign of life during work that takes a moment and has nothing to count."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


def busy(what: str, *, shown: bool = True) -> AbstractContextManager[object]:
    """Say what is being done while it lasts; on a terminal only, and gone afterwards."""
    if not shown:
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(what)
