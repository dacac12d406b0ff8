"""A replay as it is thought of: rows in dicts by (ticket, row, column), walked one by one. And actors that write.

The actors write as the pace lets them: tickets that are committed ahead of the learner, and one that an actor is just
writing, with anything in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from offbeat.core.types import NO_DECISION, Array, Field, Tree
from offbeat.memory.replay.base import Samples
from offbeat.memory.replay.rings import Rings

FIELDS = [
    Field("observation/number", (), "int64"),
    Field("observation/image", (2, 3), "uint8"),
    Field("action", (2,), "float32"),
    Field("reward", (), "float32"),
    Field("terminated", (), "bool"),
    Field("truncated", (), "bool"),
    Field("valid", (), "bool"),
    Field("episode_return", (), "float64"),
    Field("episode_length", (), "int32"),
    Field("recorded", (3,), "float32"),
    Field("behavior_version", (), "int64", per="unroll"),
    Field("initial_state", (2,), "float32", per="unroll"),
]
WAITING_FIELDS = [*FIELDS, Field(NO_DECISION, (), "bool")]
"""Fields of envs with rows without a decision."""
PER_TICKET = ["behavior_version", "initial_state"]
LEAVES = ["observation/number", "observation/image"]

Key = tuple[int, int, int]
"""(ticket, row, column)."""


class Transition(NamedTuple):
    """What a sample must say of a row."""

    next: tuple[int, int, int]
    """(ticket, row, column) of the observation that follows; row T is the one committed with the ticket."""
    reward: float
    discount: float


class Chances(NamedTuple):
    """How often a row is what."""

    terminated: float = 0.15
    truncated: float = 0.15
    invalid: float = 0.1
    """Beside those that follow an episode's end."""
    cut: float = 0.1
    """That a ticket is taken again, after an actor's death."""
    waits: float = 0.0
    """That a row of an episode has no decision, in envs with such rows."""
    absent: float = 0.0
    """That another reset row follows a reset row, in the same envs."""


class Writers:
    """Actors, each with its tickets in order; every observation has a number of its own."""

    def __init__(self, rings: Rings, random: np.random.Generator, chances: Chances, origin: int = 0) -> None:
        self.rings, self.random, self.chances = rings, random, chances
        self.actors, self.length, self.columns = rings.shape.actors, rings.shape.length, rings.shape.columns
        self.committed: dict[int, Tree] = {}
        self.next = [origin + (actor - origin) % self.actors for actor in range(self.actors)]
        self.following: dict[int, Tree] = {}
        self.ended, self.absent = np.zeros((2, self.actors, self.columns), bool)
        self.numbers = 0

    def go_ahead(self, must: int, may: int) -> None:
        """Commit all tickets below `must` and some below `may`; leave some of the next ones half written."""
        for actor in self.random.permutation(self.actors).tolist():
            while self.next[actor] < must or (self.next[actor] < may and self.random.random() < 0.5):
                self._commit(self.next[actor])
                self.next[actor] += self.actors
        self.scribble(may)

    def scribble(self, may: int) -> None:
        """Let each actor have begun its next ticket, if it may, and written anything but what is committed."""
        for ticket in self.next:
            if ticket < may and self.random.random() < 0.8:
                slot = self.rings.open(ticket)
                for name, array in slot.items():
                    first = 1 if name in LEAVES else 0
                    stop = self.length + 1 if name in LEAVES else self.length
                    array[first:stop] = self._anything(array[first:stop])
                self._write_following(ticket, slot)

    def _anything(self, array: Array) -> Array:
        if array.dtype.kind == "f":
            return np.full(array.shape, np.nan, array.dtype)
        return self.random.integers(0, 2, array.shape).astype(array.dtype)

    def _write_following(self, ticket: int, slot: Tree) -> None:
        for name, leaf in self.following.get(ticket % self.actors, {}).items():
            np.testing.assert_array_equal(slot[name][0], leaf, err_msg="what followed the last ticket is not there")
            slot[name][0] = leaf

    def _commit(self, ticket: int) -> None:
        actor = ticket % self.actors
        slot, content = self.rings.open(ticket), self._content(actor)
        if actor in self.following:
            self._write_following(ticket, slot)
            for name in LEAVES:
                content[name][0] = self.following[actor][name]
            if self.random.random() < self.chances.cut:
                for name in ("reward", "terminated", "truncated", "valid", NO_DECISION):
                    if name in content:
                        content[name][0] = 0
        for name, part in content.items():
            rows = len(part) if name in LEAVES or name in PER_TICKET else self.length
            slot[name][:rows] = part[:rows]
        self.following[actor] = {name: content[name][-1].copy() for name in LEAVES}
        self.committed[ticket] = content

    def _content(self, actor: int) -> Tree:
        lead = (self.length + 1, self.columns)
        content: Tree = {
            field.name: self.random.integers(0, 255, (*lead, *field.shape)).astype(field.dtype)
            for field in self.rings.fields
            if field.per == "step"
        }
        count = lead[0] * lead[1]
        content["observation/number"] = self.numbers + np.arange(count).reshape(lead)
        self.numbers += count
        chances = self.random.random((3, *lead))
        content["terminated"] = chances[0] < self.chances.terminated
        content["truncated"] = chances[1] < self.chances.truncated
        content["valid"] = chances[2] >= self.chances.invalid
        for row in range(self.length):
            content["valid"][row] &= ~self.ended[actor]
            self.ended[actor] = (content["terminated"] | content["truncated"])[row]
        if NO_DECISION in content:
            self._let_agents_wait(actor, content)
        content["behavior_version"] = np.full(self.columns, 7)
        content["initial_state"] = self.random.normal(size=(self.columns, 2)).astype(np.float32)
        return content

    def _let_agents_wait(self, actor: int, content: Tree) -> None:
        """Make some rows ones without a decision, and let several reset rows follow an end."""
        for row in range(self.length):
            waits, stays = self.random.random((2, self.columns)) < [[self.chances.waits], [self.chances.absent]]
            absent = self.absent[actor]
            for name in ("reward", "terminated", "truncated"):
                content[name][row, absent] = 0
            ends = content["terminated"][row] | content["truncated"][row]
            content["valid"][row] = ~absent & ~waits
            content[NO_DECISION][row] = ~absent & waits
            self.absent[actor] = np.where(absent, stays, ends)


class Step(NamedTuple):
    """From a decision to the next one, or to the end of the episode."""

    next: Key
    reward: float
    terminated: bool
    decision: Key | None
    """The next decision of the episode."""


def decisions(
    committed: dict[int, Tree], window: range, actors: int, n: int, gamma: float, within: range | None = None
) -> dict[Key, Transition]:
    """Return what `transitions` does in envs with rows without a decision: the complete decisions of `within`.

    Args:
        committed: the rows of each ticket.
        window: tickets whose flags are known.
        actors: number of actors.
        n: number of decisions whose rewards are summed.
        gamma: discount per decision.
        within: tickets whose decisions are summed; None: the window.
    """
    within, found = within or window, {}
    for ticket in within:
        for row, column in np.argwhere(committed[ticket]["valid"][:-1]).tolist():
            key: Key | None = (ticket, row, column)
            steps: list[Step] = []
            while key and len(steps) < n and (step := _step_of(committed, window, actors, key)):
                steps.append(step)
                key = step.decision if step.decision and step.decision[0] in within else None
            if steps:
                total = sum(gamma**i * step.reward for i, step in enumerate(steps))
                discount = 0.0 if steps[-1].terminated else gamma ** len(steps)
                found[ticket, row, column] = Transition(steps[-1].next, total, discount)
    return found


def _step_of(committed: dict[int, Tree], window: range, actors: int, key: Key) -> Step | None:
    """Walk from a decision on; None if it is not known yet how far its step goes."""
    (ticket, row, column), reward = key, 0.0
    while True:
        rows, after = committed[ticket], (ticket, row + 1, column)
        reward += float(rows["reward"][row, column])
        terminated, truncated = bool(rows["terminated"][row, column]), rows["truncated"][row, column]
        if terminated or truncated:
            return Step(after, reward, terminated, None)
        ticket, row = (ticket, row + 1) if row + 2 < len(rows["valid"]) else (ticket + actors, 0)
        if ticket not in window:
            return None
        if not committed[ticket][NO_DECISION][row, column]:
            following = (ticket, row, column) if committed[ticket]["valid"][row, column] else None
            return Step(after, reward, False, following)


def transitions(committed: dict[int, Tree], window: range, actors: int, n: int, gamma: float) -> dict[Key, Transition]:
    """Return all that can be sampled, by walking on from each valid row."""
    found: dict[Key, Transition] = {}
    for ticket in window:
        length, columns = committed[ticket]["valid"].shape[0] - 1, committed[ticket]["valid"].shape[1]
        for row in range(length):
            for column in range(columns):
                if committed[ticket]["valid"][row, column]:
                    key = (ticket, row, column)
                    found[key] = _walk(committed, window, actors, key, n, gamma)
    return found


def _walk(committed: dict[int, Tree], window: range, actors: int, key: Key, n: int, gamma: float) -> Transition:
    ticket, row, column = key
    total, discount = 0.0, 1.0
    for _ in range(n):
        rows = committed[ticket]
        total += discount * float(rows["reward"][row, column])
        discount *= gamma
        after = (ticket, row + 1, column)
        if rows["terminated"][row, column]:
            return Transition(after, total, 0.0)
        if rows["truncated"][row, column]:
            break
        ticket, row = (ticket, row + 1) if row + 2 < len(rows["valid"]) else (ticket + actors, 0)
        if ticket not in window or not committed[ticket]["valid"][row, column]:
            break
    return Transition(after, total, discount)


class SlowPriorities:
    """Priorities in a dict: of the rows that can be sampled, and of no others."""

    def __init__(self, exponent: float) -> None:
        self.exponent, self.highest = exponent, 1.0
        self.of: dict[Any, float] = {}

    def enter(self, keys: list[Any]) -> None:
        self.of.update(dict.fromkeys(keys, self.highest))

    def update(self, keys: list[Any], errors: list[float]) -> None:
        for key, error in zip(keys, errors, strict=True):
            self.of[key] = (abs(error) + 1e-6) ** self.exponent
            self.highest = max(self.highest, self.of[key])

    def weights(self, keys: list[Any], exponent: float) -> list[float]:
        """Section 3.4 of the paper: (N P)^-beta, divided by the largest one of the batch."""
        total, rows = sum(self.of.values()), len(self.of)
        raw = [(rows * self.of[key] / total) ** -exponent for key in keys]
        return [weight / max(raw) for weight in raw]


# --- samples ------------------------------------------------------------------------------------------------


def copied(samples: Samples) -> Samples:
    """Return what was sampled, in memory of its own: the next sample is written over it."""
    arrays = {name: array.copy() for name, array in samples.arrays.items()}
    return Samples(arrays, *(part.copy() for part in samples[1:]))


def assert_equal(one: Samples, other: Samples) -> None:
    """Assert that two samples are the same, in all that they say."""
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)
    for part, same in zip(one[1:], other[1:], strict=True):
        np.testing.assert_array_equal(part, same)
