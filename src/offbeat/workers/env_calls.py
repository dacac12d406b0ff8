"""The env calls of an actor: their watch, and how long they take."""

from __future__ import annotations

from offbeat.envs.call_watch import UNWATCHED, EnvCallWatch
from offbeat.metrics.timings import Timings


class EnvCalls:
    """The env calls of one actor: their watch and their duration."""

    def __init__(self, watch: EnvCallWatch = UNWATCHED) -> None:
        self.watch = watch
        self.timings = Timings()
        self.longest_stall = 0.0
        """Duration of the longest call so far, in seconds."""

    def add(self, started: float, ended: float) -> None:
        """Count a call that started and ended at these times."""
        self.timings.add("env", ended - started)
        self.longest_stall = max(self.longest_stall, ended - started)
