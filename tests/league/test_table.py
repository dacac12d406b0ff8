from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.support.thorough import examples

from offbeat.config.league import LeagueConfig
from offbeat.core.errors import ConfigError
from offbeat.league.players import Player
from offbeat.league.results import GameResult
from offbeat.league.table import LeagueTable

RED, BLUE = Player("red"), Player("blue")
CONFIG = LeagueConfig()


def game(first: Player, second: Player, margin: float) -> GameResult:
    return GameResult((first, second), (margin, 0.0))


@some.composite
def tables(drawn) -> list[LeagueTable]:
    """The tables of a short run, one per learning step."""
    config = LeagueConfig(payoff_decay=drawn(some.sampled_from([0.5, 0.99, 1.0])), k_factor=7.3)
    table = LeagueTable.start(("red", "blue"), config.initial_elo)
    history = [table]
    for _ in range(drawn(some.integers(0, 5))):
        sides = some.sampled_from(list(table.elo))
        margin = some.sampled_from([-1.0, 0.0, 2.5])
        results = drawn(some.lists(some.builds(game, sides, sides, margin), max_size=6))
        table = table.advance(results, config)
        if drawn(some.booleans()):
            table = table.with_snapshot(drawn(some.sampled_from(["red", "blue"])), env_steps=64 * table.version)
        history.append(table)
    return history


@given(tables())
@examples(60)
def test_a_table_restored_from_json_equals_the_saved_one_bit_for_bit(history):
    for table in history:
        restored = LeagueTable.restore(json.loads(json.dumps(table.state())))
        assert restored == table
        assert restored.advance([game(RED, BLUE, 1)], CONFIG) == table.advance([game(RED, BLUE, 1)], CONFIG)


@given(tables())
@examples(30)
def test_later_learning_steps_do_not_change_an_earlier_table(history):
    states = [table.state() for table in history]
    history[-1].advance([game(RED, BLUE, 1)], CONFIG).with_snapshot("red", 5)
    assert [table.state() for table in history] == states
    assert [table.version for table in history] == list(range(len(history)))


@given(tables())
@examples(30)
def test_the_win_rates_of_two_players_against_each_other_add_up_to_one(history):
    table = history[-1]
    for first in table.elo:
        for second in table.elo:
            assert table.win_rate(first, second) + table.win_rate(second, first) == pytest.approx(1)


@pytest.mark.parametrize("decay", [1.0, 0.99, 0.5])
def test_results_are_decayed_means_in_the_order_of_the_games(decay):
    margins = [1.0, -1.0, 0.0, 3.0, 1.0, -0.5, 0.0]
    config = replace(CONFIG, payoff_decay=decay)
    table = LeagueTable.start(("red", "blue"), 1200)
    for margin in margins:
        # the decay is per game: it does not depend on who is on the first side, or on the number of learning steps
        swapped = game(BLUE, RED, -margin)
        table = table.advance([swapped] if margin > 0 else [game(RED, BLUE, margin)], config)
    scores = [1.0 if margin > 0 else 0.0 if margin < 0 else 0.5 for margin in margins]
    weights = [decay ** (len(margins) - 1 - index) for index in range(len(margins))]
    expected = sum(weight * score for weight, score in zip(weights, scores, strict=True)) / sum(weights)
    assert table.win_rate(RED, BLUE) == pytest.approx(expected)
    assert table.win_rate(BLUE, RED) == pytest.approx(1 - expected)
    (record,) = table.records.values()
    assert record.games == pytest.approx(sum(weights))


def test_players_that_have_not_met_have_a_win_rate_of_one_half():
    table = LeagueTable.start(("red", "blue"), 1200).with_snapshot("red", 0).advance([game(RED, BLUE, 1)], CONFIG)
    assert table.win_rate(RED, Player("red", 0)) == 0.5
    assert table.win_rate(RED, RED) == 0.5
    assert table.win_rate(RED, BLUE) == 1


def test_a_game_of_a_player_against_itself_changes_nothing_but_the_version():
    table = LeagueTable.start(("red",), 1200)
    assert table.advance([game(RED, RED, 1)], CONFIG) == replace(table, version=1)


def test_a_snapshot_has_the_counters_and_the_rating_of_its_policy_at_that_time():
    table = LeagueTable.start(("red", "blue"), 1200).advance([game(RED, BLUE, 1)], CONFIG)
    table = table.with_snapshot("red", env_steps=640)
    (snapshot,) = table.snapshots["red"]
    assert (snapshot.learning_step, snapshot.env_steps) == (1, 640)
    assert table.elo[Player("red", 0)] == table.elo[RED] > 1200
    later = table.advance([game(RED, BLUE, 1)], CONFIG)
    assert later.elo[Player("red", 0)] == table.elo[RED] < later.elo[RED]


def test_elo_ratings_of_a_policy_that_always_wins_rise_and_their_sum_stays():
    table = LeagueTable.start(("red", "blue"), 1200).advance([game(RED, BLUE, 1)] * 20, CONFIG)
    assert table.elo[RED] > 1230
    assert table.elo[RED] + table.elo[BLUE] == pytest.approx(2400)


def test_a_game_of_three_sides_counts_for_each_pair_of_different_players():
    old = Player("red", 0)
    table = LeagueTable.start(("red", "blue"), 1200).with_snapshot("red", 0)
    table = table.advance([GameResult((RED, old, old), (2.0, 2.0, -1.0))], CONFIG)
    (record,) = table.records.values()
    assert record.games == pytest.approx(1.99)  # two pairs; the game of the snapshot against itself is left out
    assert table.win_rate(RED, old) == pytest.approx((0.5 * 0.99 + 1) / 1.99)


def test_a_game_of_three_sides_changes_an_elo_rating_by_at_most_the_k_factor():
    table = LeagueTable.start(("red", "blue", "green"), 1200)
    table = table.advance([GameResult((RED, BLUE, Player("green")), (3.0, 2.0, 1.0))], CONFIG)
    # of equal players: half of K in each of two games, of which each counts half; the second after a first change
    assert table.elo[RED] - 1200 == pytest.approx(CONFIG.k_factor / 2, rel=0.01)
    assert sum(table.elo.values()) == pytest.approx(3600)


@pytest.mark.parametrize("outcomes", [(0.1 + 0.2, 0.3), (0.1 + 0.2 - 0.3, 0.0)])
def test_returns_that_differ_in_the_last_digits_are_a_draw(outcomes):
    assert outcomes[0] != outcomes[1]
    (pair,) = game(RED, BLUE, 0.0)._replace(outcomes=outcomes).pairs()
    assert pair.score == 0.5


def saved() -> dict[str, Any]:
    table = LeagueTable.start(("red", "blue"), 1200).with_snapshot("red", 0)
    return json.loads(json.dumps(table.advance([game(RED, BLUE, 1), game(Player("red", 0), BLUE, 0)], CONFIG).state()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("version"), "lacks version"),
        (lambda state: state["policies"][0].update(latest_elo=float("nan")), "latest_elo is nan"),
        (lambda state: state["policies"][0].update(elo=[]), "has 1 snapshots of red, but 0 ratings"),
        (lambda state: state["policies"][0].update(name="blue"), "twice"),
        (lambda state: state["records"].append(state["records"][0]), "twice"),
        (lambda state: state["records"][0].update(games=0), "games is 0"),
        (lambda state: state["records"][0].update(wins=7), "7 wins in 1 games of blue:latest against red:latest"),
        (lambda state: state["records"][0].update(opponent_snapshot=9), "results of red:9, which is not in it"),
        (lambda state: state["records"][0].update(policy="zed"), "wins in 1 games of zed:latest"),
        (lambda state: state.update(code="import os"), "unknown key 'code'"),
    ],
)
def test_a_changed_state_is_refused_when_it_is_restored(change, message):
    state = saved()
    assert LeagueTable.restore(state).state() == state
    change(state)
    with pytest.raises(ConfigError, match=message):
        LeagueTable.restore(state)
