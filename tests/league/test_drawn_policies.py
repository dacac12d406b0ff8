from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from offbeat.league.drawn_policies import draw_policies, policy_of_agents, rotate_policies, sides_of_policies
from offbeat.league.sides import Side

SIDES = (Side(("a", "b"), ("red_0", "red_1")), Side(("a", "b", "c"), ("blue_0",)))
KEY = {"seed": 1, "origin": 2, "world": 3, "episode": 4}


def drawn(learning: tuple[str, ...], worlds: int = 2, episodes: int = 3000) -> dict[tuple[str, ...], float]:
    """Frequencies of the policies of all sides over many episodes."""
    keys = ({"seed": 5, "origin": 0, "world": n % worlds, "episode": n // worlds} for n in range(episodes))
    found = Counter(draw_policies(SIDES, learning, **key) for key in keys)
    return {policies: count / episodes for policies, count in found.items()}


def test_all_policies_that_can_play_a_side_are_equally_likely_and_independent_of_the_other_sides():
    shares = drawn(("a", "b", "c"))
    assert set(shares) == set(product("ab", "abc"))
    assert list(shares.values()) == pytest.approx([1 / 6] * 6, abs=0.03)


def test_one_side_always_gets_a_policy_that_learns_and_the_worlds_take_turns_in_it():
    assert all("a" in policies for policies in drawn(("a",)))
    first, second = (Counter(draw_policies(SIDES, ("a",), **{**KEY, "world": world, "episode": n}) for n in range(300))
                     for world in (0, 1))  # fmt: skip
    assert {policies[0] for policies in first} == {"a"}
    assert {policies[1] for policies in first} == {"a", "b", "c"}
    assert {policies[1] for policies in second} == {"a"}
    assert {policies[0] for policies in second} == {"a", "b"}


def test_a_side_that_no_learning_policy_can_play_is_not_the_one_that_learns():
    assert all(policies[1] == "c" for policies in drawn(("c",)))


def test_draws_depend_on_each_part_of_the_key_and_on_nothing_else():
    many = (Side(tuple(map(str, range(1000))), ("x",)), Side(("a",), ("y",)))
    keys = [KEY, *({**KEY, name: 9} for name in KEY)]
    policies = [draw_policies(many, many[0].policies, **key) for key in keys]
    assert len(set(policies)) == 5
    assert [draw_policies(many, many[0].policies, **key) for key in reversed(keys)] == policies[::-1]


@pytest.mark.parametrize(
    "choices", [("abc", "abc"), ("abcd", "ab"), ("ab", "abcd"), ("ab", "ab", "ab"), ("ab", "abc", "a")]
)
def test_in_an_evaluation_each_combination_of_policies_comes_equally_often(choices):
    sides = [Side(tuple(policies), (f"agent_{index}",)) for index, policies in enumerate(choices)]
    combinations = list(product(*choices))
    met = Counter(rotate_policies(sides, episode) for episode in range(2 * len(combinations)))
    assert met == dict.fromkeys(combinations, 2)


def test_the_first_episodes_of_an_evaluation_are_between_different_policies():
    same = (Side(("a", "b", "c"), ("x",)), Side(("a", "b", "c"), ("y",)))
    assert [rotate_policies(same, episode) for episode in range(3)] == [("a", "b"), ("b", "c"), ("c", "a")]


def test_all_agents_of_a_side_have_its_policy():
    assert policy_of_agents(SIDES, ("b", "c")) == {"red_0": "b", "red_1": "b", "blue_0": "c"}


def test_the_sides_of_a_game_follow_from_those_that_each_policy_can_play():
    own = {name: [side.agents for side in SIDES if name in side.policies] for name in "abc"}
    assert sides_of_policies(own) == SIDES
