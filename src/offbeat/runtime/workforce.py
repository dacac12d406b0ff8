"""The workforce of a run, as its training loop sees it: those who act and learn, and what is saved of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from offbeat.core.types import Tree


class Workforce(ABC):
    """Actors and a learner, or lock-free workers."""

    @property
    @abstractmethod
    def restarts(self) -> int:
        """Workers started again after a death."""

    @property
    @abstractmethod
    def longest_stall(self) -> float:
        """Seconds of the longest call of an env."""

    @abstractmethod
    def spent(self) -> Iterable[Mapping[str, float]]:
        """Return the seconds of each worker beside this process, by what they went into."""

    @abstractmethod
    def start(self, statistics: Mapping[str, Any]) -> None:
        """Prepare a new run, whose normalisers are new, or those of another run's state, by policy; nobody acts yet."""

    @abstractmethod
    def begin_episodes(self) -> None:
        """Let all begin to act, in new episodes."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what resuming needs beside what is the same in every run."""

    @abstractmethod
    def checkpoint_arrays(self) -> Tree | None:
        """Return what a checkpoint keeps of the memory, as views of it; None for nothing."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any], arrays: Tree | None) -> tuple[bool, str]:
        """Take over `state()` and `checkpoint_arrays()`, and let all act.

        Returns:
            Whether the episodes under way go on too, and a message about the memory.
        """
