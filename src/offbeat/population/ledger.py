"""The ledger of a population: what was measured and decided, a line of JSON each, synced before it is used.

From the ledger and the members' run directories a population continues after it was killed. Lines are in the order in
which things happened, which depends on timing. Their content does not, if the members' runs repeat bit for bit.
"""

from __future__ import annotations

import json
import os
from collections import Counter as Counts
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.fields import Counter, Name, Natural, build, in_short, read
from offbeat.core.files import remedy_for, sync
from offbeat.core.strict_json import Unreadable, parse_object, read_small

LARGEST = 1 << 28
"""Maximum size of a ledger in bytes."""


@dataclass(frozen=True)
class Score:
    """The score of a member at the end of a generation."""

    member: Natural
    generation: Natural
    score: float
    """The objective."""
    env_steps: Counter
    """Env steps that the member had learned from."""


@dataclass(frozen=True)
class Failure:
    """A generation that a member has not finished, because it has failed. It has no score."""

    member: Natural
    generation: Natural
    env_steps: Counter
    """Env steps of its last checkpoint, from which it continues; 0 if it has none."""
    reason: str


@dataclass(frozen=True)
class DecisionLine:
    """What a member does after a generation, without the values of its next one."""

    member: Natural
    generation: Natural
    """The generation that the member has finished, or in which it has failed."""
    donor: Natural | None
    """The member whose weights it copies; None: it keeps its own."""
    donor_generation: Natural | None
    """The generation at whose end the donor had these weights."""
    reason: Name


@dataclass(frozen=True)
class Decision(DecisionLine):
    """What a member does after a generation."""

    values: dict[str, float]
    """Key -> value in the member's next generation."""


Entry = Score | Failure | Decision
"""A line of a ledger."""


@dataclass
class Ledger:
    """The lines of a ledger, by (member, generation)."""

    path: Path
    scores: dict[tuple[int, int], Score] = field(default_factory=dict)
    decisions: dict[tuple[int, int], Decision] = field(default_factory=dict)
    failures: dict[tuple[int, int], Failure] = field(default_factory=dict)
    _finished: Counts[int] = field(init=False, compare=False, repr=False)
    """Number of scores and failures of each member. It is asked for several times a second."""
    _end: int = field(default=0, init=False, compare=False, repr=False)
    """Number of bytes of all complete lines."""

    def __post_init__(self) -> None:
        self._finished = Counts(member for member, _ in (*self.scores, *self.failures))

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Read a ledger without an incomplete last line. Without a file, the ledger is empty.

        Raises:
            ConfigError: a line is invalid, or it follows from one that is missing.
        """
        ledger = cls(path)
        with suppress(FileNotFoundError):
            data = _content(path)
            complete = data[: data.rfind(b"\n") + 1]
            for number, line in enumerate(complete.splitlines(), 1):
                entry = _parsed(path, number, line)
                if not ledger._follows(entry):
                    raise ConfigError(
                        f"{path}, line {number} is of generation {entry.generation} of member {entry.member}, but a "
                        "line before it is missing, or it is there twice: restore the file, or pass another --dir"
                    )
                ledger._enter(entry)
            ledger._end = len(complete)
        return ledger

    def add(self, entry: Entry) -> None:
        """Write a line, sync it, and enter it.

        Raises:
            RunFailed: the file cannot be written.
        """
        line = json.dumps({"event": type(entry).__name__.lower(), **asdict(entry)}).encode() + b"\n"
        try:
            with self.path.open("r+b" if self.path.exists() else "w+b") as file:
                file.seek(self._end)
                file.truncate()  # a line that was cut by a kill
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            sync(self.path.parent)
        except OSError as error:
            raise RunFailed(f"{self.path} cannot be written ({error.strerror}): {remedy_for(error)}") from None
        self._end += len(line)
        self._enter(entry)

    def _follows(self, entry: Entry) -> bool:
        """Whether an entry is new, and the entries that it follows from are in the ledger."""
        place, before = (entry.member, entry.generation), (entry.member, entry.generation - 1)
        if not isinstance(entry, Decision):
            return not self.has_ended(place) and (entry.generation == 0 or before in self.decisions)
        has_donor = entry.donor is None or (entry.donor, entry.donor_generation) in self.scores
        return self.has_ended(place) and place not in self.decisions and has_donor

    def _enter(self, entry: Entry) -> None:
        place = entry.member, entry.generation
        if isinstance(entry, Decision):
            self.decisions[place] = entry
            return
        self._finished[entry.member] += not self.has_ended(place)
        if isinstance(entry, Score):
            self.scores[place] = entry
        else:
            self.failures[place] = entry

    def has_ended(self, place: tuple[int, int]) -> bool:
        """Whether a generation of a member has ended: with a score, or with a failure."""
        return place in self.scores or place in self.failures

    def env_steps(self, place: tuple[int, int]) -> int:
        """Return the env steps of the checkpoint with which a member's generation ended; 0 before the first one."""
        if place[1] < 0:
            return 0
        return (self.scores[place] if place in self.scores else self.failures[place]).env_steps

    def scores_of(self, generation: int, members: int, failed: Collection[int] = ()) -> list[float | None] | None:
        """Return the scores of all members in a generation, None for one that has failed; None if one is missing.

        Args:
            generation: the generation.
            members: the number of members.
            failed: members that have failed and are not in the ledger.
        """
        places = [(member, generation) for member in range(members)]
        if not all(self.has_ended(place) or place[0] in failed for place in places):
            return None
        return [self.scores[place].score if place in self.scores else None for place in places]

    def copied(self, member: int) -> list[int]:
        """Return the generations at whose ends a member has copied."""
        return [end for (who, end), decision in self.decisions.items() if who == member and decision.donor is not None]

    def finished(self, member: int) -> int:
        """Return the number of generations of a member that have ended."""
        return self._finished[member]


def _content(path: Path) -> bytes:
    try:
        return read_small(path, LARGEST)
    except Unreadable as error:
        raise ConfigError(f"{path} {error}: restore it, or pass another --dir") from None


def _parsed(path: Path, number: int, line: bytes) -> Entry:
    """Return the entry of one line.

    Raises:
        ConfigError: the line is invalid.
    """
    where = f"{path}, line {number}"
    remedy = f"{where} was changed: restore it, or pass another --dir"
    try:
        table: dict[str, Any] = parse_object(line)
    except ValueError as error:
        raise ConfigError(f"{where} {error}: {remedy}") from None
    event, values = table.pop("event", None), table.pop("values", None)
    if event == "score":
        return build(Score, table, where, remedy)
    if event == "failure":
        return build(Failure, table, where, remedy)
    if event != "decision" or not isinstance(values, dict):
        raise ConfigError(f"{where} is neither a score, a failure nor a decision: {remedy}")
    numbers = {key: read(f"{where}, {in_short(key)}", value, float, remedy) for key, value in values.items()}
    return Decision(**asdict(build(DecisionLine, table, where, remedy)), values=numbers)
