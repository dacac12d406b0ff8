"""The acting half of a run, as the learner sees it: what differs between the runtimes with one learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from offbeat.runtime.plan import Snapshot


class Acting(Protocol):
    """Actors, wherever they are: they act tickets as the pace allows, in every runtime the same ones."""

    @property
    def restarts(self) -> int:
        """Actors started again after a death."""
        ...

    def start(self, snapshots: Sequence[Snapshot]) -> None:
        """Start acting, each actor from its snapshot. Weights have been published."""
        ...

    def wait(self, tickets: int) -> None:
        """Return once tickets 0 .. tickets-1 are committed.

        Raises:
            RunFailed: an actor failed for good.
        """
        ...

    def pause_at(self, ticket: int | None) -> None:
        """Let no ticket from `ticket` on begin, or (None) end the pause."""
        ...

    def finish(self, learned: int) -> None:
        """Let `learned` learning steps count as finished."""
        ...

    @property
    def acted(self) -> int:
        """Tickets 0 .. acted-1 are committed."""
        ...

    def slots_filled(self, step: int) -> float:
        """Return the share of the slots that hold a committed ticket not yet learned from, before `step`."""
        ...

    def snapshots(self) -> list[Snapshot]:
        """Return the state of each actor's envs; a pause has stopped them all."""
        ...

    def spent(self) -> list[Mapping[str, float]]:
        """Return the seconds of each actor, by what they went into."""
        ...

    @property
    def longest_stall(self) -> float:
        """Seconds of the longest call of an env."""
        ...

    def close(self) -> None:
        """End all actors, and everything that was started for them."""
        ...
