"""The memory that a league's learners and actors share: frozen snapshots, the odds of opponents, results of games.

The learners write the odds with each version of the weights, and snapshots into a ring. An actor that acts with version
v reads the odds of version v, and the snapshots that these odds name. The ring has room for the window and for all
snapshots that can be taken while version v still acts. Each ticket has its own place for results, which its actor
writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.core.memory_shape import Slab
from offbeat.core.types import Array, Tree

PREFIX = "league/"
PLAYERS = ("policies", "snapshots")
"""The two numbers of a player in the results."""


@dataclass(frozen=True)
class LeagueShape:
    """Sizes of the memory, as plain data."""

    sides: int
    weights: Mapping[str, int]
    """Policy -> number of published weights."""
    window: int
    """Newest snapshots of each policy that opponents are drawn from."""
    snapshot_every: int
    """Learning steps between snapshots."""
    versions: int
    """Versions of the weights that tickets in flight may need."""
    tickets: int
    """Tickets that are acted or learned from at one time."""
    games: int
    """Largest number of games that can end in a ticket."""

    @property
    def ring(self) -> int:
        """Number of snapshots of each policy in memory."""
        return self.window + self.versions // self.snapshot_every + 2

    def slabs(self) -> list[Slab]:
        """Return names, shapes and dtypes of the arrays."""
        policies = len(self.weights)
        return [
            *((f"{PREFIX}snapshots/{name}", (self.ring, size), "float32") for name, size in self.weights.items()),
            (f"{PREFIX}odds/snapshots", (self.versions, policies), "int64"),
            (f"{PREFIX}odds/cumulative", (self.versions, policies, policies, self.window + 1), "float64"),
            (f"{PREFIX}results/count", (self.tickets,), "int64"),
            *((f"{PREFIX}results/{name}", (self.tickets, self.games, self.sides), "int64") for name in PLAYERS),
            (f"{PREFIX}results/outcomes", (self.tickets, self.games, self.sides), "float64"),
        ]


class Results(NamedTuple):
    """The place for the results of one ticket: views."""

    games: NDArray[np.int64]
    """[1]: number of games so far."""
    policies: NDArray[np.int64]
    """[games, sides]: number of the policy that played each side."""
    snapshots: NDArray[np.int64]
    """[games, sides]: id of its snapshot, -1 for the newest version."""
    outcomes: NDArray[np.float64]
    """[games, sides]: outcome of each side."""


class LeagueMemory:
    """The memory of a league, on an arena."""

    def __init__(self, shape: LeagueShape, arrays: Tree) -> None:
        """Use the arrays of an arena with the slabs of the shape."""
        self.shape = shape
        self._snapshots = {name: arrays[f"{PREFIX}snapshots/{name}"] for name in shape.weights}
        self._counts, self._cumulative = (arrays[f"{PREFIX}odds/{name}"] for name in ("snapshots", "cumulative"))
        self._results = tuple(arrays[f"{PREFIX}results/{name}"] for name in ("count", *PLAYERS, "outcomes"))

    def results(self, ticket: int) -> Results:
        """Return the place for the results of a ticket."""
        index = ticket % self.shape.tickets
        count, policies, snapshots, outcomes = self._results
        return Results(count[index : index + 1], policies[index], snapshots[index], outcomes[index])

    def snapshot(self, policy: str, number: int) -> NDArray[np.float32]:
        """Return a view of a snapshot's weights."""
        view: NDArray[np.float32] = self._snapshots[policy][number % self.shape.ring]
        return view

    def odds(self, version: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return views of the odds of a version: see `OpponentOdds`."""
        index = version % self.shape.versions
        return self._counts[index], self._cumulative[index]

    def arrays(self) -> dict[str, Array]:
        """Return what a checkpoint saves, as views: the snapshots and the odds of all versions."""
        odds = {"odds/snapshots": self._counts, "odds/cumulative": self._cumulative}
        return {**{f"snapshots/{name}": ring for name, ring in self._snapshots.items()}, **odds}
