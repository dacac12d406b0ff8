"""The players of a league: a policy as it is now, or a frozen snapshot of it."""

from __future__ import annotations

from typing import NamedTuple

from offbeat.core.policy_names import DEFAULT_POLICY

LATEST = -1
"""Number in the place of a snapshot's id: the newest version of a policy."""


class Player(NamedTuple):
    """A policy at one time of its training."""

    policy: str
    """Name of the policy."""
    snapshot: int = LATEST
    """Id of the snapshot: 0, 1, 2, ... in the order in which those of the policy were taken; or LATEST."""

    def __str__(self) -> str:
        """Return a name for people: policy:snapshot; only the snapshot in a run with one policy."""
        name = "latest" if self.snapshot == LATEST else str(self.snapshot)
        return name if self.policy == DEFAULT_POLICY else f"{self.policy}:{name}"
