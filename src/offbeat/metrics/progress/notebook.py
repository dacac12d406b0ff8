"""What a notebook shows below the running cell: the text of a run, which is replaced in place, and pictures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from offbeat.core.argument_notation import as_shown
from offbeat.metrics.progress.status import Status
from offbeat.metrics.progress.views import Lines

Show = Callable[[str], None]
"""Shows a text in the place of the one before."""


def display_of_notebook() -> Show | None:
    """Return what shows a text below the running cell; None outside of a notebook.

    It uses IPython, which each kernel of Jupyter has loaded. Nothing is imported here.
    """
    ipython = _ipython_of_notebook()
    if ipython is None:
        return None
    handle: Any = None

    def show(text: str) -> None:
        nonlocal handle
        if handle is None:
            handle = ipython.display.display({"text/plain": text}, raw=True, display_id=True)
        else:
            handle.update({"text/plain": text}, raw=True)

    return show


_PICTURES = {".png": "Image", ".jpg": "Image", ".jpeg": "Image", ".svg": "SVG"}
"""Suffix -> the class of IPython that shows it."""


def show_picture(file: Path) -> None:
    """Show a picture below the running cell, if this is a notebook and a browser can show its format."""
    ipython, kind = _ipython_of_notebook(), _PICTURES.get(file.suffix.lower())
    if ipython is not None and kind is not None:
        ipython.display.display(getattr(ipython.display, kind)(filename=str(file)))


def _ipython_of_notebook() -> Any:
    """Return the module IPython in a kernel of Jupyter, else None: IPython in a terminal has no kernel."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return ipython if hasattr(shell, "kernel") else None


class NotebookLines(Lines):
    """Shows all messages, and below them the last line of `Lines`, which is replaced every few seconds."""

    def __init__(self, show: Show, **options: Any) -> None:
        """Show with `show`; `options` are those of `Lines`."""
        super().__init__(sys.stderr, **options)
        self._show_text = show
        self._messages: list[str] = []
        self._line = ""
        self._last: Status | None = None

    def update(self, status: Status) -> None:
        """Show the status if the one that is shown is a few seconds old."""
        self._last = status
        super().update(status)

    def message(self, text: str) -> None:
        """Show ``text`` permanently, above the line."""
        self._messages.append(as_shown(text))
        self._redraw()

    def replace_line(self, text: str) -> None:
        """Show ``text`` in the place of the last line."""
        self._line = text
        self._redraw()

    def close(self, summary: str) -> None:
        """Show the last status, without its phase, then the bottleneck and the summary."""
        self._line, self._unshown = "", self._last
        super().close(summary)

    def _redraw(self) -> None:
        self._show_text("\n".join(filter(None, [*self._messages, self._line])))
