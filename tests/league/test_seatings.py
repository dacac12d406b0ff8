from __future__ import annotations

import pytest

from offbeat.league.seatings import can_meet, seatings


def test_two_sides_are_played_in_both_orders():
    assert set(seatings([[True] * 2] * 2)) == {(0, 1), (1, 0)}


@pytest.mark.parametrize("sides", [3, 4])
def test_each_player_has_each_side_alone_once(sides):
    found = seatings([[True] * sides] * 2)
    assert len(found) == len(set(found)) == 2 * sides
    for side in range(sides):
        for player in (0, 1):
            assert tuple(player if each == side else 1 - player for each in range(sides)) in found


def test_players_of_different_sides_have_one_seating_and_players_of_the_same_side_none():
    assert seatings([[True, False], [False, True]]) == ((0, 1),)
    assert seatings([[True, False], [True, False]]) == ()


@pytest.mark.parametrize(
    ("agents", "sides", "expected"),
    [
        ("a b", "a b", True),
        ("ab", "a b", True),
        ("abc", "a b c", True),
        ("a bc", "a b c", True),
        ("a b c", "a b c", False),
    ],
)
def test_players_of_one_run_can_meet_if_a_policy_plays_all_sides_but_one(agents, sides, expected):
    assert can_meet(agents.split(), sides.split()) == expected
