from __future__ import annotations

from collections import Counter

import pytest

from offbeat.config.league import LeagueConfig
from offbeat.league.turns import learning_policies, learning_side, snapshots_due

BOTH = ("red", "blue")


def test_without_turns_all_policies_learn_in_each_learning_step():
    assert {learning_policies(LeagueConfig(), BOTH, step) for step in range(20)} == {BOTH}


def test_policies_learn_by_turns_of_the_given_length():
    config = LeagueConfig(team_change_every=3)
    turns = [learning_policies(config, ("a", "b", "c"), step) for step in range(12)]
    assert turns == [("a",)] * 3 + [("b",)] * 3 + [("c",)] * 3 + [("a",)] * 3


def test_worlds_learn_on_each_side_of_a_symmetric_game_equally_often():
    assert Counter(learning_side(("me", "me", "me"), ("me",), world) for world in range(12)) == {0: 4, 1: 4, 2: 4}


def test_worlds_learn_only_on_sides_of_policies_that_learn():
    sides = ("red", "blue", "red")
    assert [learning_side(sides, ("red",), world) for world in range(4)] == [0, 2, 0, 2]
    assert {learning_side(sides, ("blue",), world) for world in range(4)} == {1}


def test_snapshots_are_taken_before_learning_and_then_at_equal_distances():
    config = LeagueConfig(snapshot_every=4)
    assert [step for step in range(13) if snapshots_due(config, BOTH, step)] == [0, 4, 8, 12]
    assert snapshots_due(config, BOTH, 8) == BOTH


@pytest.mark.parametrize("turn", [1, 2, 3, 4, 6, 10])
def test_with_turns_snapshots_are_taken_of_policies_that_have_learned_since_the_last(turn):
    config = LeagueConfig(snapshot_every=4, team_change_every=turn)
    assert snapshots_due(config, BOTH, 0) == BOTH
    for end in range(4, 60, 4):
        learned = {name for step in range(end - 4, end) for name in learning_policies(config, BOTH, step)}
        assert set(snapshots_due(config, BOTH, end)) == learned
