from __future__ import annotations

from typing import Any

import pytest

from offbeat.config.league import LeagueConfig
from offbeat.core.errors import ConfigError
from offbeat.core.fields import build
from offbeat.league.sides import Side, sides_of_game

ONE = {"first_0": "me", "second_0": "me"}
TEAMS = {"red_0": "red", "red_1": "red", "blue_0": "blue"}


def sides(policies: dict[str, str], *, trained: tuple[str, ...] = ("me", "red", "blue"), **settings: Any):
    """Return the sides of a game; `policies`: agent -> names of its policies, with a space between them."""
    return sides_of_game(
        LeagueConfig(**settings), "Game-v0", {agent: names.split() for agent, names in policies.items()}, trained
    )


def test_with_one_policy_each_agent_is_a_side():
    assert sides(ONE) == (Side(("me",), ("first_0",)), Side(("me",), ("second_0",)))


def test_with_several_policies_the_agents_of_each_are_a_side():
    assert sides(TEAMS) == (Side(("red",), ("red_0", "red_1")), Side(("blue",), ("blue_0",)))


def test_patterns_make_teams_of_one_policy():
    shared = dict.fromkeys(TEAMS, "me")
    assert sides(shared, sides=("blue_*", "*")) == (
        Side(("me",), ("blue_0",)),
        Side(("me",), ("red_0", "red_1")),
    )


def test_agents_with_the_same_policies_are_a_side_if_others_have_different_ones():
    shared = {"red_0": "red", "red_1": "red", "blue_0": "me blue", "blue_1": "me blue"}
    assert sides(shared, draw_policies=True) == (
        Side(("red",), ("red_0", "red_1")),
        Side(("me", "blue"), ("blue_0", "blue_1")),
    )
    both = dict.fromkeys(("red_0", "blue_0"), "me blue")
    assert sides(both, draw_policies=True) == (
        Side(("me", "blue"), ("red_0",)),
        Side(("me", "blue"), ("blue_0",)),
    )


@pytest.mark.parametrize(
    ("policies", "settings", "message"),
    [
        ({"agent": "me"}, {}, r"at least 2 sides, but Game-v0 has 1 agent: leave the league out, or pass an env"),
        ({}, {}, "has 0 agent"),
        (TEAMS, {"sides": ("*",)}, r"all agents of Game-v0 \(red_0, red_1, blue_0\) are on one: .*--set league.sides="),
        (TEAMS, {"sides": ("red_0", "blue_*")}, "the agent red_1 of Game-v0 matches none of them: add a pattern"),
        (TEAMS, {"sides": ("red_*", "blue_*", "red_1")}, "red_1 has no agents of its own. The agents of Game-v0 are"),
        (TEAMS, {"sides": ("red_*", "blue_*", "blue_*")}, r"blue_\* has no agents of its own"),
        (
            TEAMS,
            {"sides": ("red_0", "*")},
            "side of red_1, blue_0 has the policies red, blue, but one for all of them .* or leave the league out",
        ),
        (TEAMS, {"draw_policies": True}, "draw_policies is true, but no side has several policies"),
        (
            {"red_0": "me red", "red_1": "red", "blue_0": "red"},
            {"draw_policies": True, "sides": ("red_*", "blue_*")},
            "the policy me can play none of the sides red_0, red_1; blue_0, because it does not match all agents",
        ),
        (ONE, {"trained": ()}, "none of the policies me is trained.*: set train = true"),
        (ONE, {"team_change_every": 5}, "team_change_every is 5, but only the policy me is trained.*: leave it out"),
        (TEAMS, {"team_change_every": 5, "trained": ("red",)}, "only the policy red is trained"),
    ],
)
def test_games_without_two_sides_and_sides_without_one_policy_are_refused(policies, settings, message):
    with pytest.raises(ConfigError, match=message):
        sides(policies, **settings)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("window", 0), ("snapshot_every", 0), ("latest_ratio", 1.5), ("latest_ratio", -0.1), ("k_factor", 0),
        ("payoff_decay", 0), ("payoff_decay", 1.01), ("team_change_every", -1), ("opponents", "best"),
        ("weighting", "cubed"), ("initial_elo", "inf"), ("keep_all", 2),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused_with_the_key_and_what_to_pass(key, value):
    with pytest.raises(ConfigError, match=f"{key} is .*expected: pass, for example, --set {key}="):
        build(LeagueConfig, {key: value}, "offbeat list options")


def test_an_outcome_with_a_reduction_is_refused_with_its_key():
    with pytest.raises(ConfigError, match=r"outcome is 'won:last', .* pass --set league\.outcome=won$"):
        LeagueConfig(outcome="won:last")


@pytest.mark.parametrize("settings", [{"weighting": "linear"}, {"opponents": "latest", "latest_ratio": 0.7}])
def test_settings_that_the_kind_of_opponents_does_not_use_are_refused(settings):
    with pytest.raises(ConfigError, match=r"but opponents is .*pass --set league.opponents=\w+, or leave \w+ out"):
        LeagueConfig(**settings)
