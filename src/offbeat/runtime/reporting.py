"""How a run notifies the user, and reports its processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from offbeat.runtime.children.supervised import Supervised


class Notify(Protocol):
    """Shows a message to the user and writes it to the log."""

    def __call__(self, text: str, details: str = "", /) -> None:
        """Show and log `text`; only log `details`."""


def without_details(notify: Callable[[str], None]) -> Notify:
    """Return a `Notify` for the time in which a run has no log."""

    def notify_of_text(text: str, _details: str = "", /) -> None:
        notify(text)

    return notify_of_text


class Reporting(NamedTuple):
    """The functions that are called with messages, and when processes of a run change."""

    notify: Notify
    """Is called with each message for the user, such as that of a restart."""
    processes_changed: Callable[[str, Sequence[Supervised]], None]
    """Is called with a role and all its processes whenever one of them was started."""
