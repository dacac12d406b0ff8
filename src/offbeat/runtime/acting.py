"""The interface of a training loop to the actors. Runtimes with one learner differ only in their `Acting`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from offbeat.runtime.plan import ActorSnapshot
from offbeat.workers.feed import WaitForCommits


class Workers(Protocol):
    """What is measured of all actors of a run, or of its lock-free workers."""

    @property
    def restarts(self) -> int:
        """Number of restarts; with those of inference workers."""
        ...

    @property
    def longest_stall(self) -> float:
        """Duration of the longest env call, in seconds."""
        ...

    def spent(self) -> list[Mapping[str, float]]:
        """Return the seconds of each actor, worker and inference worker by activity, but not of this process."""
        ...


class Acting(Workers, Protocol):
    """All actors of a run. They act the same tickets in every runtime, as the pace allows."""

    def start(self, snapshots: Sequence[ActorSnapshot]) -> None:
        """Start all actors, each from its snapshot. Weights have been published before."""
        ...

    def wait(self, tickets: int, while_waiting: Callable[[], None] | None = None) -> None:
        """Return once tickets 0 .. tickets-1 are committed.

        Args:
            tickets: number of tickets.
            while_waiting: is called often while this waits for other processes or threads (in serial, between
                tickets), and may raise: learners have to be watched too. None: there is nothing else to watch.

        Raises:
            RunFailed: an actor failed and is not restarted.
        """
        ...

    def watch(self) -> None:
        """Check that all actors are alive and make progress. Is called often while the learner waits.

        Raises:
            RunFailed: an actor failed and is not restarted.
        """
        ...

    @property
    def wait_for_commits(self) -> WaitForCommits | None:
        """Waits for tickets in another thread than the learner's; None if nothing is acted while the learner learns."""
        ...

    def pause_at(self, ticket: int | None) -> None:
        """Pause acting: ticket `ticket` and later ones may not start. None: end the pause."""
        ...

    def finish(self, learned: int) -> None:
        """Set the number of finished learning steps."""
        ...

    @property
    def acted(self) -> int:
        """Number of committed tickets without a gap: tickets 0 .. acted-1 are committed."""
        ...

    def slots_filled(self, step: int) -> float:
        """Return the fraction of the tickets that may be ahead of learning step `step` and are committed; 1 if none
        may be.
        """
        ...

    def snapshots(self) -> list[ActorSnapshot]:
        """Return the state of each actor's envs. A pause must have stopped all actors.

        Raises:
            RunFailed: an actor failed and is not restarted.
        """
        ...

    @property
    def waits_for_place(self) -> bool:
        """Whether the process of an actor on a cluster does not run yet, perhaps because no node has room for it."""
        ...

    def metrics(self) -> Mapping[str, float]:
        """Return metrics since the last call: of inference workers, or of messages to actors on a cluster."""
        ...

    def close(self) -> None:
        """Stop all actors and everything that was started for them."""
        ...
