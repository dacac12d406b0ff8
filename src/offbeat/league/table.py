"""The table of a league: its snapshots, the results of its players, and their Elo ratings.

A table is never changed: `advance` and `with_snapshot` return new ones. `advance` is called once in each learning step,
with the results of its tickets in their order. So the table after v learning steps is a function of the same data as
version v of the weights, and a ticket that acts with version v draws its opponents from table v.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, NamedTuple

from offbeat.config.league import LeagueConfig
from offbeat.core.errors import ConfigError
from offbeat.core.fields import FILE_REMEDY, Bound, Counter, Name, NonNegative, build
from offbeat.league.payoffs import UNKNOWN
from offbeat.league.players import LATEST, Player
from offbeat.league.ratings import updated_elo
from offbeat.league.results import GameResult


@dataclass(frozen=True)
class Snapshot:
    """When a snapshot was taken."""

    learning_step: Counter
    """Learning steps that its weights have had: the version of the weights."""
    env_steps: Counter
    """Env steps that had been learned from."""


class Record(NamedTuple):
    """The games of two players. Older games count less, by `payoff_decay` per game."""

    games: float
    wins: float
    """Of the first player; a draw is half a win."""


Pair = tuple[Player, Player]


@dataclass(frozen=True)
class LeagueTable:
    """The state of a league after a number of learning steps."""

    version: int
    """Number of learning steps whose results it contains."""
    snapshots: Mapping[str, tuple[Snapshot, ...]]
    """Policy -> its snapshots. The id of a snapshot is its index."""
    elo: Mapping[Player, float]
    """Elo rating of each player, from sequential updates."""
    records: Mapping[Pair, Record]
    """Games of each pair that has met. The smaller player of a pair comes first."""

    @classmethod
    def start(cls, policies: Sequence[str], initial_elo: float) -> LeagueTable:
        """Return the table before the first learning step: no snapshots and no results."""
        return cls(0, dict.fromkeys(policies, ()), {Player(name): initial_elo for name in policies}, {})

    def advance(self, results: Iterable[GameResult], config: LeagueConfig) -> LeagueTable:
        """Return the table after one more learning step.

        Args:
            results: The games that ended in the tickets of the learning step: in the order of the tickets, in each by
                rows, and in a row by worlds.
            config: Decay of earlier games, and K factor.
        """
        elo, records = dict(self.elo), dict(self.records)
        for result in results:
            k_factor = config.k_factor / max(1, len(result.players) - 1)  # each player is in this many pairs
            for first, second, score in result.pairs():
                _count(records, first, second, score, config.payoff_decay)
                elo[first], elo[second] = updated_elo(elo[first], elo[second], score, k_factor)
        return replace(self, version=self.version + 1, elo=elo, records=records)

    def with_snapshot(self, policy: str, env_steps: int) -> LeagueTable:
        """Return the table with a snapshot of a policy's newest version. It starts with the rating of that version.

        Args:
            policy: Name of the policy.
            env_steps: Env steps that have been learned from.
        """
        taken = self.snapshots[policy]
        snapshots = {**self.snapshots, policy: (*taken, Snapshot(self.version, env_steps))}
        elo = {**self.elo, Player(policy, len(taken)): self.elo[Player(policy)]}
        return replace(self, snapshots=snapshots, elo=elo)

    def win_rate(self, player: Player, opponent: Player) -> float:
        """Return the fraction of games that a player has won; 0.5 if the two have not met."""
        record = self.records.get(_pair(player, opponent))
        if record is None:
            return UNKNOWN
        return (record.wins if player < opponent else record.games - record.wins) / record.games

    def has_met(self, player: Player, opponent: Player) -> bool:
        """Whether two players have played against each other."""
        return _pair(player, opponent) in self.records

    def state(self) -> dict[str, Any]:
        """Return the table as lists, dicts, text and numbers. JSON stores each float exactly."""
        return {
            "version": self.version,
            "policies": [
                {
                    "name": policy,
                    "snapshots": list(map(asdict, taken)),
                    "elo": [self.elo[Player(policy, number)] for number in range(len(taken))],
                    "latest_elo": self.elo[Player(policy)],
                }
                for policy, taken in self.snapshots.items()
            ],
            "records": [
                {
                    "policy": first.policy, "snapshot": first.snapshot,
                    "opponent_policy": second.policy, "opponent_snapshot": second.snapshot,
                    "games": record.games, "wins": record.wins,
                }
                for (first, second), record in self.records.items()
            ],
        }  # fmt: skip

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> LeagueTable:
        """Return the table with this state.

        Raises:
            ConfigError: the state is not one of a table. It may come from a file that another program has written.
        """
        saved = build(_State, state, "the table of a league", FILE_REMEDY)
        snapshots = {policy.name: policy.snapshots for policy in saved.policies}
        elo = {player: rating for policy in saved.policies for player, rating in policy.ratings()}
        records = {item.pair: Record(item.games, item.wins) for item in saved.records}
        if len(snapshots) < len(saved.policies) or len(records) < len(saved.records):
            raise ConfigError(f"the table of a league has a policy or a pair of players twice: {FILE_REMEDY}")
        if unknown := {player for pair in records for player in pair} - elo.keys():
            raise ConfigError(f"the table of a league has results of {min(unknown)}, which is not in it: {FILE_REMEDY}")
        return cls(saved.version, snapshots, elo, records)


def _pair(first: Player, second: Player) -> Pair:
    return (first, second) if first < second else (second, first)


def _count(records: dict[Pair, Record], first: Player, second: Player, score: float, decay: float) -> None:
    """Count a game of two players, in place."""
    pair = _pair(first, second)
    games, wins = records.get(pair, (0.0, 0.0))
    records[pair] = Record(games * decay + 1, wins * decay + (score if pair[0] == first else 1 - score))


# --- the saved state ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _PolicyState:
    name: Name
    snapshots: tuple[Snapshot, ...]
    elo: tuple[float, ...]
    latest_elo: float

    def __post_init__(self) -> None:
        if len(self.elo) != len(self.snapshots):
            raise ConfigError(
                f"the table of a league has {len(self.snapshots)} snapshots of {self.name}, but {len(self.elo)} "
                f"ratings of them: {FILE_REMEDY}"
            )

    def ratings(self) -> Iterator[tuple[Player, float]]:
        """Yield each player of the policy with its rating."""
        yield Player(self.name), self.latest_elo
        for number, rating in enumerate(self.elo):
            yield Player(self.name, number), rating


@dataclass(frozen=True)
class _RecordState:
    policy: Name
    snapshot: Annotated[int, Bound(LATEST)]
    opponent_policy: Name
    opponent_snapshot: Annotated[int, Bound(LATEST)]
    games: Annotated[float, Bound(above=0)]
    wins: NonNegative

    def __post_init__(self) -> None:
        first, second = self.pair
        if not first < second or self.wins > self.games:
            raise ConfigError(
                f"the table of a league has {self.wins:g} wins in {self.games:g} games of {first} against {second}: "
                f"{FILE_REMEDY}"
            )

    @property
    def pair(self) -> Pair:
        return Player(self.policy, self.snapshot), Player(self.opponent_policy, self.opponent_snapshot)


@dataclass(frozen=True)
class _State:
    version: Counter
    policies: tuple[_PolicyState, ...]
    records: tuple[_RecordState, ...]
