"""Which requests an inference worker computes together, and when.

All requests of a batch have the same version of the weights: the oldest one that is asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from offbeat.workers.inference import InferenceGroups

RECENT = 8
"""Number of the last batches whose duration counts."""
LEAST_WAIT_S = 0.001
"""Shortest wait for other requests: a sleep cannot be shorter."""


class Request(NamedTuple):
    """A request that is not answered."""

    actor: int
    group: int
    """The env group."""
    number: int
    version: int
    """Version of the weights."""


class RequestBatch(NamedTuple):
    """Requests that are computed together."""

    version: int
    requests: tuple[tuple[Request, int], ...]
    """Each request, and its position in the batch, in requests."""
    size: int
    """Number of positions; some may be empty."""


@dataclass
class FixedBatching:
    """A batch is one env group of all actors of the worker, each at its fixed position.

    Its shape is constant, so the result does not depend on which actors are present. The worker waits for the missing
    ones at most as long as a batch takes: so it takes at most twice as long as with the best choice. The shortest of
    the last batches counts, because on a busy machine one may take much longer.
    """

    groups: InferenceGroups
    worker: int
    """Index of the worker. The positions of its actors are those in `groups`, as in `OwnInference`."""
    _since: dict[int, float] = field(default_factory=dict)
    """By env group: the time of its first request that is not answered."""
    _seconds: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    """How long the last batches took."""

    @property
    def positions(self) -> int:
        """Largest `size` of a batch."""
        return len(self.groups.members(self.worker))

    def next(self, requests: Sequence[Request], now: float) -> RequestBatch | float:
        """Return the next batch, or the seconds until a batch is due if no other request arrives.

        Args:
            requests: all requests that are not answered; at least one.
            now: the present time in seconds.
        """
        asked: dict[int, list[Request]] = {}
        for request in requests:
            asked.setdefault(request.group, []).append(request)
        self._since = {group: self._since.get(group, now) for group in asked}
        waited = {
            group: float("inf") if len(asked[group]) == self.positions else now - since
            for group, since in self._since.items()
        }
        group, patience = max(waited, key=lambda group: waited[group]), self._patience
        if waited[group] < patience:
            return patience - waited[group]
        version = min(request.version for request in asked[group])
        chosen = [request for request in asked[group] if request.version == version]
        if len(chosen) == len(asked[group]):
            del self._since[group]
        positions = ((request, self.groups.position(request.actor)) for request in chosen)
        return RequestBatch(version, tuple(positions), self.positions)

    def computed(self, seconds: float) -> None:
        """Note how long the last batch took."""
        self._seconds.append(seconds)

    @property
    def _patience(self) -> float:
        """How long the first request of a batch waits for others."""
        shortest = min(self._seconds, default=0.0)
        return shortest if shortest >= LEAST_WAIT_S else 0.0


@dataclass
class ArrivalBatching:
    """A batch has the requests that have arrived, of all env groups, in the order of their arrival.

    It starts as soon as it is full, no other request can arrive, or its first request has waited for the timeout.
    """

    positions: int
    """Largest number of requests in a batch."""
    possible: int
    """Largest number of requests that can be open at the same time."""
    timeout_s: float
    _since: dict[Request, float] = field(default_factory=dict)
    """By request that is not answered: its time, in the order of arrival."""

    def next(self, requests: Sequence[Request], now: float) -> RequestBatch | float:
        """Return the next batch, as `FixedBatching.next`."""
        still_open = set(requests)  # one of an actor that has died may be replaced
        self._since = {request: since for request, since in self._since.items() if request in still_open}
        for request in requests:
            self._since.setdefault(request, now)
        version = min(request.version for request in requests)
        arrived = [request for request in self._since if request.version == version]
        left = self.timeout_s - (now - self._since[arrived[0]])
        if len(arrived) < self.positions and len(requests) < self.possible and left > 0:
            return left
        chosen = arrived[: self.positions]
        for request in chosen:
            del self._since[request]
        return RequestBatch(version, tuple((request, position) for position, request in enumerate(chosen)), len(chosen))

    def computed(self, seconds: float) -> None:
        """Do nothing: the timeout is given."""


Batching = FixedBatching | ArrivalBatching
