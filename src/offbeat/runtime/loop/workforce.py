"""The workforce: the interface of a training loop to the actors and the learner, or to the lock-free workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from offbeat.core.types import Tree
from offbeat.metrics.rate_limited_warning import RateLimitedWarning
from offbeat.runtime.acting import Workers
from offbeat.runtime.plan import ActorSnapshot
from offbeat.runtime.reporting import Notify
from offbeat.workers.actor import NOT_SAVABLE


class Workforce(ABC):
    """Actors and a learner, or lock-free workers: starts them, and saves and restores their state."""

    def __init__(self, workers: Workers, notify: Notify) -> None:
        self.workers = workers
        self._warn_not_savable = RateLimitedWarning(notify)

    def _savable(self, snapshots: Sequence[ActorSnapshot]) -> list[ActorSnapshot]:
        """Return snapshots of actors for a checkpoint; None for each that it cannot store, with a warning."""
        for reason in [snapshot[NOT_SAVABLE] for snapshot in snapshots if snapshot and NOT_SAVABLE in snapshot]:
            self._warn_not_savable(
                f"{reason}. The run continues, and a run that is resumed from this checkpoint starts new episodes"
            )
        return [None if snapshot and NOT_SAVABLE in snapshot else snapshot for snapshot in snapshots]

    @abstractmethod
    def publish_initial(self, statistics: Mapping[str, Any]) -> None:
        """Publish version 0 of the weights of a new run; `statistics`: initial running statistics, by policy."""

    @abstractmethod
    def start(self) -> None:
        """Start the actors or workers with new episodes."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the state of this workforce for a checkpoint, without `checkpoint_arrays`."""

    @abstractmethod
    def checkpoint_arrays(self) -> Tree | None:
        """Return the arrays of the memory that a checkpoint saves, as views; None if there are none."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any], arrays: Tree | None, *, paused: bool) -> tuple[bool, str]:
        """Restore what `state` and `checkpoint_arrays` returned, and start the actors or workers.

        Args:
            state: the result of `state`.
            arrays: the result of `checkpoint_arrays`.
            paused: whether they act nothing, because only the last evaluation of the run is left.

        Returns:
            Whether the unfinished episodes were restored too, and a message about the memory.
        """
