"""The env calls of an actor or evaluator: their watch, and how long they take."""

from __future__ import annotations

from typing import Protocol

from offbeat.metrics.timings import Timings


class EnvCallWatch(Protocol):
    """Is notified before and after each env call, so that a call that takes too long can be detected."""

    def enter(self, *, resets: bool) -> None:
        """Note that an env call starts; `resets`: whether an episode may start in the call. May raise `Closed`."""

    def leave(self) -> None:
        """Note that the env call has returned.

        If it raises an exception, only the code that goes on afterwards calls this. Until then the call counts as
        running, so that envs which hang while they are closed are noticed.
        """


class Unwatched:
    """A watch that does nothing: for measurements, and for evaluations that are no part of a run."""

    def enter(self, *, resets: bool) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""


class EnvCalls:
    """The env calls of one actor: their watch and their duration."""

    def __init__(self, watch: EnvCallWatch | None = None) -> None:
        self.watch = watch or Unwatched()
        self.timings = Timings()
        self.longest_stall = 0.0
        """Duration of the longest call so far, in seconds."""

    def add(self, started: float, ended: float) -> None:
        """Count a call that started and ended at these times."""
        self.timings.add("env", ended - started)
        self.longest_stall = max(self.longest_stall, ended - started)
