"""The actor: takes a ticket from its link, acts with the weights that it is given, and hands the ticket in.

It knows nothing of the learner, of other actors or of where its memory lies. The same loop, `work`, is what an actor
thread and an actor process run; serial and lock-free runs let it act one ticket at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter as clock
from typing import Any, NoReturn

from offbeat.core.seeding import key_of, stream
from offbeat.metrics.timings import Timings
from offbeat.workers.columns import EnvCalls, PolicyColumns, Watch
from offbeat.workers.link import Link, Work


class Actor:
    """Steps its envs with its policies, one ticket at a time."""

    def __init__(self, index: int, seed: int, policies: Sequence[PolicyColumns], watch: Watch | None = None) -> None:
        """Act for one policy, or for several in one world.

        Args:
            index: which actor this is.
            seed: of the run.
            policies: what it acts for, in the order of the run's policies; all have as many groups.
            watch: over calls of the envs.
        """
        self.index = index
        self._seed, self._policies, self._calls = seed, tuple(policies), EnvCalls(watch)
        self._groups = range(policies[0].groups)
        self._cut = False
        """Whether the next row follows rows of episodes that broke off."""
        for columns in self._policies:
            columns.use(self._calls)

    @property
    def timings(self) -> Timings:
        """Where its time has gone so far."""
        return self._calls.timings

    @property
    def longest_stall(self) -> float:
        """Seconds of the longest call of the envs."""
        return self._calls.longest_stall

    def start(self, origin: int, spread: int = 0, *, cut: bool = False, progress: float = 0.0) -> None:
        """Begin new episodes in all columns.

        Args:
            origin: the ticket at which they begin.
            spread: if not 0, each column first takes a random number of random env steps below it, which are
                counted nowhere: so that the episodes of the columns do not run, and end, side by side.
            cut: whether there are rows before the next ticket that they do not go on from. Its first row, which has
                the observation that followed them, then stays as a reset row, and the episodes begin in the second.
            progress: of the training, which envs are told before they begin.
        """
        self._cut = cut
        for place, columns in enumerate(self._policies):
            random = stream(self._seed, "decorrelate", self.index, origin, *key_of(place))
            columns.reset(progress, spread, random)

    def work(self, link: Link) -> NoReturn:
        """Act ticket after ticket, until the run ends.

        Raises:
            Closed: the run is ending.
            EnvFailed: an env failed.
        """
        while True:
            begun = clock()
            work = link.next()
            self.timings.add("wait/actor", clock() - begun)
            self.act(work)
            link.commit(work, self.timings, self.longest_stall)

    def act(self, work: Work) -> None:
        """Act one ticket into its slots, each with one version of the weights."""
        first, self._cut = int(self._cut), False
        length = 0
        for columns, own in zip(self._policies, work.policies, strict=True):
            length = columns.begin(own, work.version, work.progress, first)
        acting = [
            (columns, stream(self._seed, "act", work.ticket, *key_of(place)))
            for place, columns in enumerate(self._policies)
        ]
        for row in range(first, length):
            for group in self._groups:
                if row > first:
                    self._receive(row - 1, group)
                for columns, random in acting:
                    columns.decide(row, group, random)
        if length > first:
            for group in self._groups:
                self._receive(length - 1, group)
        for columns in self._policies:
            columns.end(length)

    def _receive(self, row: int, group: int) -> None:
        for columns in self._policies:
            columns.receive(row, group)

    def snapshot(self) -> dict[str, Any] | None:
        """Return the state of the envs and of the episodes under way, or None where the envs have no snapshots."""
        states = [columns.snapshot() for columns in self._policies]
        return None if None in states else {"policies": states, "cut": self._cut}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a snapshot as if nothing had happened."""
        for columns, own in zip(self._policies, state["policies"], strict=True):
            columns.restore(own)
        self._cut = bool(state["cut"])

    def close(self) -> None:
        for columns in self._policies:
            columns.close()
