from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from offbeat.config.league import LeagueConfig
from offbeat.league.opponents import OpponentOdds, draw, priority
from offbeat.league.players import Player
from offbeat.league.results import GameResult
from offbeat.league.table import LeagueTable

PLAIN = LeagueConfig()


def table_of(config: LeagueConfig, snapshots: dict[str, int], wins: dict[int, tuple[int, int]] | None = None):
    """A table with some snapshots per policy; `wins`: snapshot of the last policy -> games won and lost."""
    table = LeagueTable.start(tuple(snapshots), config.initial_elo)
    for policy, count in snapshots.items():
        for _ in range(count):
            table = table.with_snapshot(policy, 0)
    first, last = Player(next(iter(snapshots))), list(snapshots)[-1]
    results = [
        GameResult((first, Player(last, number)), (score, 0.5))
        for number, (won, lost) in (wins or {}).items()
        for score in [1.0] * won + [0.0] * lost
    ]
    return table.advance(results, replace(config, payoff_decay=1.0))


class Game(NamedTuple):
    """The odds of a game, and the policy of each side."""

    odds: OpponentOdds
    sides: tuple[str, ...]

    def draw(self, side: int, **key: int) -> tuple[Player, ...]:
        return draw(self.odds, self.sides, side=side, **key)


def drawn(game: Game, side: int = 0, episodes: int = 3000) -> dict[tuple[Player, ...], float]:
    """Frequencies of the players of all sides over many episodes."""
    players = (game.draw(side, seed=3, ticket=n // 10, world=n % 10, episode=0) for n in range(episodes))
    return {who: count / episodes for who, count in Counter(players).items()}


def opponents(frequencies: dict[tuple[Player, ...], float], side: int = 1) -> dict[int, float]:
    """Frequencies of the snapshots on one side."""
    shares: Counter[int] = Counter()
    for players, share in frequencies.items():
        shares[players[side].snapshot] += share  # type: ignore[assignment]
    return dict(sorted(shares.items()))


def odds(config: LeagueConfig, table: LeagueTable, *sides: str) -> Game:
    return Game(OpponentOdds.of(config, table, tuple(dict.fromkeys(sides))), sides)


@pytest.mark.parametrize(
    ("kind", "latest_ratio"), [("uniform", 0.0), ("uniform", 1.0), ("latest", 0.5), ("prioritized", 0.5)]
)
def test_without_snapshots_all_opponents_are_the_latest_policy(kind, latest_ratio):
    config = LeagueConfig(opponents=kind, latest_ratio=latest_ratio)
    found = drawn(odds(config, table_of(config, {"me": 0}), "me", "me"), episodes=100)
    assert found == {(Player("me"), Player("me")): 1}


def test_uniform_opponents_are_the_latest_policy_at_its_ratio_and_else_the_window():
    config = LeagueConfig(window=4, latest_ratio=0.2)
    shares = opponents(drawn(odds(config, table_of(config, {"me": 7}), "me", "me")))
    assert list(shares) == [-1, 3, 4, 5, 6]
    assert shares[-1] == pytest.approx(0.2, abs=0.03)
    assert [shares[number] for number in (3, 4, 5, 6)] == pytest.approx([0.2] * 4, abs=0.03)


def test_fewer_snapshots_than_the_window_are_all_drawn():
    config = LeagueConfig(window=10, latest_ratio=0.0)
    assert list(opponents(drawn(odds(config, table_of(config, {"me": 3}), "me", "me"), episodes=200))) == [0, 1, 2]


def test_latest_opponents_are_never_snapshots():
    config = LeagueConfig(opponents="latest")
    assert opponents(drawn(odds(config, table_of(config, {"me": 5}), "me", "me"), episodes=100)) == {-1: 1}


@pytest.mark.parametrize("weighting", ["squared", "variance", "linear"])
def test_prioritized_opponents_follow_the_win_rates_against_them(weighting):
    config = LeagueConfig(opponents="prioritized", weighting=weighting, latest_ratio=0.0, window=4)
    table = table_of(config, {"me": 5}, {0: (0, 9), 1: (9, 1), 2: (1, 4), 3: (1, 1)})  # 4 has not been met
    shares = opponents(drawn(odds(config, table, "me", "me")))
    weights = np.array([priority(rate, weighting) for rate in (0.9, 0.2, 0.5, 0.5)])
    assert list(shares) == [1, 2, 3, 4]
    assert list(shares.values()) == pytest.approx((weights / weights.sum()).tolist(), abs=0.03)


@pytest.mark.parametrize(("weighting", "expected"), [("squared", 0.64), ("variance", 0.16), ("linear", 0.8)])
def test_priorities_are_those_of_the_papers_formulas(weighting, expected):
    assert priority(0.2, weighting) == pytest.approx(expected)


@pytest.mark.parametrize("weighting", ["squared", "variance", "linear"])
def test_snapshots_that_never_win_are_equally_likely(weighting):
    config = LeagueConfig(opponents="prioritized", weighting=weighting, latest_ratio=0.0)
    table = table_of(config, {"me": 2}, {0: (5, 0), 1: (5, 0)})
    assert opponents(drawn(odds(config, table, "me", "me"))) == pytest.approx({0: 0.5, 1: 0.5}, abs=0.03)


@pytest.mark.parametrize("weighting", ["squared", "variance", "linear"])
def test_a_win_of_a_snapshot_long_ago_is_forgotten(weighting):
    config = LeagueConfig(opponents="prioritized", weighting=weighting, latest_ratio=0.0, payoff_decay=0.9)
    me, first, second = Player("me"), Player("me", 0), Player("me", 1)
    won = [GameResult((me, other), (1.0, 0.0)) for other in (first, second) for _ in range(300)]
    table = table_of(config, {"me": 2}).advance([GameResult((me, first), (0.0, 1.0)), *won], config)
    assert 0 < 1 - table.win_rate(me, first) < 1e-12
    assert odds(config, table, "me", "me").odds.cumulative[0, 0, :3].tolist() == [0, 0.5, 1]


def test_an_opponent_with_probability_zero_is_never_drawn():
    config = LeagueConfig(opponents="prioritized", latest_ratio=0.0)
    table = table_of(config, {"me": 3}, {0: (5, 0), 1: (0, 5), 2: (5, 0)})
    exact = odds(config, table, "me", "me")
    assert opponents(drawn(exact, episodes=200)) == {1: 1}
    assert exact.odds.cumulative[0, 0].tolist() == [0, 0, *[1] * 9]


@pytest.mark.parametrize("count", range(1, 11))
def test_cumulative_probabilities_end_with_exactly_one(count):
    cumulative = odds(PLAIN, table_of(PLAIN, {"me": count}), "me", "me").odds.cumulative[0, 0]
    assert cumulative.shape == (11,)
    assert cumulative[count - 1] < 1
    assert (cumulative[count:] == 1).all()


def test_each_side_of_an_asymmetric_game_has_its_own_snapshots():
    config = LeagueConfig(latest_ratio=0.0, opponents="prioritized")
    table = table_of(config, {"red": 3, "blue": 2}, {0: (0, 4), 1: (4, 0)})
    both = odds(config, table, "red", "blue")
    assert drawn(both, side=0, episodes=100) == {(Player("red"), Player("blue", 0)): 1}
    shares = opponents(drawn(both, side=1), side=0)
    assert shares == pytest.approx({0: 1 / 3, 1: 1 / 3, 2: 1 / 3}, abs=0.03)  # blue:latest has met none of them


def test_the_learning_side_is_played_by_the_latest_policy_on_any_side():
    table = table_of(PLAIN, {"me": 4})
    for side in range(3):
        found = drawn(odds(PLAIN, table, "me", "me", "me"), side=side, episodes=100)
        assert {players[side] for players in found} == {Player("me")}


def test_opponents_on_different_sides_are_drawn_independently():
    config = LeagueConfig(latest_ratio=0.5, window=1)
    found = drawn(odds(config, table_of(config, {"me": 1}), "me", "me", "me"))
    assert list(found.values()) == pytest.approx([0.25] * 4, abs=0.03)


def test_draws_depend_on_each_part_of_the_key_and_on_nothing_else():
    config = LeagueConfig(latest_ratio=0.0, window=1000)
    exact = odds(config, table_of(config, {"me": 1000}), "me", "me")
    key = {"seed": 1, "ticket": 2, "world": 3, "episode": 4}
    others = [{**key, name: 9} for name in key]
    players = [exact.draw(side=0, **each) for each in (key, *others)]
    assert len(set(players)) == 5
    assert [exact.draw(side=0, **each) for each in reversed((key, *others))] == players[::-1]


def test_odds_made_from_published_arrays_draw_the_same_opponents():
    config = LeagueConfig(opponents="prioritized", window=3)
    exact = odds(config, table_of(config, {"red": 5, "blue": 2}, {0: (3, 1)}), "red", "blue")
    published = OpponentOdds(exact.odds.policies, exact.odds.snapshots.copy(), exact.odds.cumulative.copy())
    assert drawn(exact._replace(odds=published), episodes=200) == drawn(exact, episodes=200)
