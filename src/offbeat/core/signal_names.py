"""The names of signals, for messages."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGKILL; most real-time signals have none: 'signal 40'."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
