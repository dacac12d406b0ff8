"""When the user is told that actors have no process yet."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from time import monotonic

from offbeat.runtime.ray.proxy import ActorProxy

FIRST_S, EVERY_S = 10.0, 60.0
"""Seconds without its process after which an actor is late, and between two messages about the same actors."""


class PlaceNotice:
    """Chooses when there is a message: as soon as another actor is late, and repeatedly as long as one is."""

    def __init__(self) -> None:
        self._named: Sequence[ActorProxy] = ()
        """The actors without a process at the last message."""
        self._named_at = -inf

    def due(self, actors: Sequence[ActorProxy]) -> int:
        """Return the number of actors without a process, if there is a message about them now; else 0."""
        now = monotonic()
        without = [actor for actor in actors if not actor.placed]
        late = [actor for actor in without if now - actor.started_at > FIRST_S]
        if all(actor in self._named for actor in late) and not (late and now >= self._named_at + EVERY_S):
            return 0
        self._named, self._named_at = without, now
        return len(without)
