"""What is notified of env calls, so that one that takes too long can be detected."""

from __future__ import annotations

from typing import Protocol


class EnvCallWatch(Protocol):
    """Is notified before and after each env call, so that a call that takes too long can be detected."""

    def enter(self, *, resets: bool) -> None:
        """Note that an env call starts; `resets`: whether an episode may start in the call. May raise `Closed`."""

    def leave(self) -> None:
        """Note that the env call has returned.

        If it raises an exception, only the code that goes on afterwards calls this. Until then the call counts as
        running, so that envs which hang while they are closed are noticed.
        """


class _Unwatched:
    """A watch that does nothing: for checks and evaluations that are no part of a run."""

    def enter(self, *, resets: bool) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""


UNWATCHED: EnvCallWatch = _Unwatched()
