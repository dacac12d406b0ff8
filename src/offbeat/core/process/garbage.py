"""Garbage collection while modules are imported: it would traverse all that they create, and find no garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_collection(*, freeze: bool = False) -> Iterator[None]:
    """Pause garbage collection in this block, which imports modules: torch takes more time with it.

    Args:
        freeze: Whether all later collections, also the one at exit, leave out what there is at the end of the block.
            It is for processes that only run offbeat, because a caller's garbage would be left out too.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if freeze:
            gc.freeze()
        if enabled:
            gc.enable()
