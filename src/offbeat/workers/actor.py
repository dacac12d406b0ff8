"""The actor: takes a ticket from its link, acts with the weights of the ticket, and commits the ticket.

An actor does not know the learner, the other actors, or where its memory is. Actor threads and actor processes run
`Actor.work`, a loop over tickets. Serial and lock-free runs call `Actor.act` for one ticket at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter as clock
from typing import Any, NoReturn

import numpy as np

from offbeat.core.closing import close_all
from offbeat.core.errors import EnvFailed
from offbeat.core.saved_state import NotSavable
from offbeat.core.seeding import key_of, stream
from offbeat.envs.call_watch import UNWATCHED, EnvCallWatch
from offbeat.metrics.timings import ACTOR_WAIT, INFERENCE_WAIT, Timings
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.env_calls import EnvCalls
from offbeat.workers.inference import Inference
from offbeat.workers.link import Link, Work
from offbeat.workers.seats import Seats

NOT_SAVABLE = "not savable"
"""Key in a snapshot that a checkpoint cannot store."""


class Actor:
    """Steps envs with one or several policies, one ticket at a time."""

    def __init__(
        self,
        index: int,
        seed: int,
        policies: Sequence[PolicyColumns],
        watch: EnvCallWatch = UNWATCHED,
        seats: Seats | None = None,
        inference: Inference | None = None,
    ) -> None:
        """Make an actor.

        Args:
            index: index of this actor, from 0.
            seed: seed of the run.
            policies: the columns of each policy, in the order of the run's policies. All have the same number of env
                groups.
            watch: is notified of each env call.
            seats: who plays each side, in a league; the columns have the same seats.
            inference: computes the networks of all policies; the columns are `ServedColumns` then. None: each policy
                computes its own network.
        """
        self.index = index
        self._seed, self._policies, self._calls = seed, tuple(policies), EnvCalls(watch)
        self._groups, self._seats, self._inference = range(policies[0].groups), seats, inference
        self._ahead = 0 if inference is None else min(1, policies[0].groups - 1)
        """Number of env groups whose actions are asked for before those of the group before them are answered."""
        self._cut = False
        """Whether the episodes of the rows before the next ticket were cut: the next row is then a reset row."""
        for columns in self._policies:
            columns.calls = self._calls

    @property
    def timings(self) -> Timings:
        """Seconds of this actor so far, by activity."""
        return self._calls.timings

    @property
    def longest_stall(self) -> float:
        """Duration of the longest env call so far, in seconds."""
        return self._calls.longest_stall

    def start(self, origin: int, spread: int = 0, *, cut: bool = False, progress: float = 0.0) -> None:
        """Start new episodes in all columns.

        Args:
            origin: the ticket at which the episodes start.
            spread: if not 0, each column first takes a random number (less than `spread`) of random env steps, which
                are not counted. So the episodes of the columns do not all end at the same time.
            cut: whether memory holds rows of earlier episodes just before the next ticket. The first row of that
                ticket is then a reset row, and the new episodes start in its second row.
            progress: training progress from 0 to 1; the envs get it before the episodes start.
        """
        self._cut = cut
        if self._seats is not None:
            self._seats.start_episodes(origin, advanced=spread > 0)
        for policy, columns in enumerate(self._policies):
            random = stream(self._seed, "decorrelate", self.index, origin, *key_of(policy))
            columns.reset(progress, spread, random)

    def work(self, link: Link) -> NoReturn:
        """Act one ticket after another until the run ends.

        Raises:
            Closed: the run is ending.
            EnvFailed: an env failed.
        """
        while True:
            started = clock()
            work = link.next()
            self.timings.add(ACTOR_WAIT, clock() - started)
            self.act(work)
            link.commit(work, self.timings, self.longest_stall)

    def act(self, work: Work) -> int:
        """Act one ticket: fill the slot of each policy, all rows with the same version of the weights.

        Returns:
            The first row that it acted in: 1 if the episodes before the ticket were cut, else 0.
        """
        cuts = [columns.start_visit(work.ticket, work.progress) for columns in self._policies]
        first, self._cut = int(self._cut or any(cuts)), False
        length = 0
        if self._seats is not None and work.league is not None:
            self._seats.start_ticket(work.ticket, work.version, work.league)
        for columns, policy_work in zip(self._policies, work.policies, strict=True):
            length = columns.start_ticket(policy_work, work.version, work.progress, first)
        if self._inference is not None:
            self._inference.start_ticket(work)
        randoms = [stream(self._seed, "act", work.ticket, *key_of(policy)) for policy in range(len(self._policies))]
        if length > first:
            self._act_rows(range(first, length), randoms)
        for columns in self._policies:
            columns.end_ticket(length)
        return first

    def _act_rows(self, rows: range, randoms: Sequence[np.random.Generator]) -> None:
        """Act the rows of a ticket, each env group in turn. `randoms`: the random stream of each policy."""
        asked: deque[tuple[int, int]] = deque()
        for row in rows:
            for group in self._groups:
                if row > rows.start:
                    self._receive(row - 1, group)
                self._ask(row, group)
                asked.append((row, group))
                if len(asked) > self._ahead:
                    self._answer(*asked.popleft(), randoms)
        for row, group in asked:
            self._answer(row, group, randoms)
        for group in self._groups:
            self._receive(rows.stop - 1, group)

    def _ask(self, row: int, group: int) -> None:
        """Ask the policies for the actions of a row."""
        for columns in self._policies:
            columns.ask(row, group)
        if self._inference is not None:
            self._infer(self._inference.submit, group)

    def _answer(self, row: int, group: int, randoms: Sequence[np.random.Generator]) -> None:
        """Choose the actions that were asked for, and send them to the envs."""
        if self._inference is not None:
            self._infer(self._inference.wait, group)
        for columns, random in zip(self._policies, randoms, strict=True):
            columns.answer(row, group, random)

    def _infer(self, call: Callable[[int], None], group: int) -> None:
        """Call the inference for an env group. An inference worker may take this core as soon as it is asked."""
        started = clock()
        call(group)
        self.timings.add(INFERENCE_WAIT, clock() - started)

    def _receive(self, row: int, group: int) -> None:
        """Receive a row of all policies. A world is reset after the end of its last agent, whichever policy has it."""
        try:
            ended = [columns.receive(row, group) for columns in self._policies]
        except EnvFailed as error:
            for columns in self._policies:
                columns.explain(error, row, group)
            raise
        for columns in self._policies:
            columns.resets[group] = any(ended)

    def snapshot(self) -> dict[str, Any] | None:
        """Return the state of the envs and of the unfinished episodes; None if an env does not support snapshots.

        If a checkpoint cannot store it, `NOT_SAVABLE` is the only key, and its value says why.
        """
        try:
            states = [columns.snapshot() for columns in self._policies]
        except NotSavable as error:
            return {NOT_SAVABLE: f"actor {self.index}: {error}"}
        if None in states:
            return None
        seats = {} if self._seats is None else {"seats": self._seats.state()}
        return {"policies": states, "cut": self._cut, **seats}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a snapshot, bit for bit."""
        for columns, policy_state in zip(self._policies, state["policies"], strict=True):
            columns.restore(policy_state)
        self._cut = bool(state["cut"])
        if self._seats is not None:
            self._seats.restore(state["seats"])

    def close(self) -> None:
        close_all(self._policies)
