"""The view of a run in a notebook: text below the running cell, which is replaced in place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from offbeat.core.argument_notation import as_shown
from offbeat.metrics.progress import Lines

Show = Callable[[str], None]
"""Shows a text in the place of the one before."""


def display_of_notebook() -> Show | None:
    """Return what shows a text below the running cell; None outside of a notebook.

    It uses IPython, which each kernel of Jupyter has loaded. Nothing is imported here.
    """
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if not hasattr(shell, "kernel"):  # IPython in a terminal has no kernel
        return None
    handle: Any = None

    def show(text: str) -> None:
        nonlocal handle
        if handle is None:
            handle = ipython.display.display({"text/plain": text}, raw=True, display_id=True)
        else:
            handle.update({"text/plain": text}, raw=True)

    return show


class NotebookLines(Lines):
    """Shows all messages, and below them the last line of `Lines`, which is replaced every few seconds."""

    def __init__(self, show: Show, **options: Any) -> None:
        """Show with `show`; `options` are those of `Lines`."""
        super().__init__(sys.stderr, **options)
        self._show_text = show
        self._messages: list[str] = []
        self._line = ""

    def message(self, text: str) -> None:
        """Show ``text`` permanently, above the line."""
        self._messages.append(as_shown(text))
        self._redraw()

    def replace_line(self, text: str) -> None:
        """Show ``text`` in the place of the last line."""
        self._line = text
        self._redraw()

    def _redraw(self) -> None:
        self._show_text("\n".join(filter(None, [*self._messages, self._line])))
