"""The signals that stop a run: the first lets it save, a second ends it at once."""

from __future__ import annotations

import signal
import time
from typing import Literal

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that a terminal, a service manager or a batch scheduler sends to all processes of a run at once."""
REPEATED_WITHIN_S = 0.5
"""Seconds after the first signal in which another one counts as the same: `timeout` sends one to the process and one to
its process group, and wrappers pass on a Ctrl-C that the process has received too."""


class StopRequest:
    """Whether a stop signal was received."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The first stop signal; None: no signal yet."""
        self._received_at = 0.0

    def take(self, number: int) -> Literal["first", "repeated", "second"]:
        """Take a signal in its handler; return which one it is. A repeated one is the first, sent once more."""
        if self.signal is None:
            self._received_at = time.monotonic()  # first, because another handler may interrupt this one
            self.signal = signal.Signals(number)
            return "first"
        return "repeated" if time.monotonic() < self._received_at + REPEATED_WITHIN_S else "second"
