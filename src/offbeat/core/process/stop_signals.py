"""The signals that stop a run: the first lets it save, a second ends it at once."""

from __future__ import annotations

import math
import signal
import time
from typing import Any, Literal

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that a terminal, a service manager or a batch scheduler sends to all processes of a run at once.

SIGHUP is that of a terminal that was closed, also by a lost connection.
"""
REPEATED_WITHIN_S = 0.5
"""Seconds after the first signal in which another one counts as the same: `timeout` sends one to the process and one to
its process group, and wrappers pass on a Ctrl-C that the process has received too."""


def replaceable_handlers() -> dict[signal.Signals, Any]:
    """Return the handlers of the stop signals that may be replaced.

    One that was not set from Python cannot be restored. A signal that is ignored stays so: a shell lets the commands
    that it starts in the background ignore SIGINT, which it sends to those in the foreground, and nohup SIGHUP.
    """
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    return {number: handler for number, handler in handlers.items() if handler not in (None, signal.SIG_IGN)}


class StopRequest:
    """Whether a stop signal was received."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The first stop signal; None: no signal yet."""
        self._taken = False
        self._received_at = math.inf

    def take(self, number: int) -> Literal["first", "repeated", "second"]:
        """Take a signal in its handler; return which one it is. A repeated one is the first, sent once more.

        SIGHUP is never a second one: the kernel and the shell send it each, also to a run that the user has just
        stopped.
        """
        if self._taken:
            soon = time.monotonic() < self._received_at + REPEATED_WITHIN_S
            return "repeated" if soon or number == signal.SIGHUP else "second"
        self._taken = True  # before any call, in which the handler of another signal could run
        self._received_at = time.monotonic()
        self.signal = signal.Signals(number)
        return "first"
