"""The sides of a game: which agents play together, with which policy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from offbeat.config.league import LeagueConfig
from offbeat.core.errors import ConfigError

EXAMPLE = "--set league.sides=red_*,blue_*"
"""How the sides of a league are given, for messages."""


@dataclass(frozen=True)
class Side:
    """One side of a game. In an episode all its agents act with the same policy, and with the same player of it."""

    policies: tuple[str, ...]
    """The policies that can play the side: one, or several of which one is drawn for each episode."""
    agents: tuple[str, ...]


def policies_by_agent(agents: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return agent -> names of its policies; `agents`: policy -> names of its agents."""
    names = dict.fromkeys(agent for own in agents.values() for agent in own)
    return {agent: [policy for policy, own in agents.items() if agent in own] for agent in names}


def sides_of_game(
    config: LeagueConfig, env_id: str, policies_of: Mapping[str, Sequence[str]], trained: Collection[str]
) -> tuple[Side, ...]:
    """Return the sides of a game, in the order of their patterns, else of their first agents.

    Args:
        config: `sides`, `draw_policies` and `team_change_every`.
        env_id: Id of the env, for messages.
        policies_of: Agent -> names of its policies, in the order of the env's agents.
        trained: Names of the policies that are trained.

    Raises:
        ConfigError: there is only one side, a side has no agents or no policy, an agent is on no side, a policy can
            play no side, policies are to be drawn but each side has only one, or no policy is trained, or only one and
            `team_change_every` is set.
    """
    if len(policies_of) < 2:
        raise ConfigError(
            f"a league needs a game of at least 2 sides, but {env_id} has {len(policies_of)} agent: leave the league "
            "out, or pass an env with several agents"
        )
    groups = agents_of_sides(config.sides, env_id, policies_of, what="league", example=EXAMPLE)
    sides = tuple(_side(group, policies_of) for group in groups)
    _require_choices(config, sides, policies_of)
    _require_learning(config, sides, trained)
    return sides


def message_of(sides: Sequence[Sequence[str]], *, what: str, example: str) -> str:
    """Return which agents play together, if a team could have been meant; else ''. Call it if the user has given no
    patterns.

    Args:
        sides: The agents of each side.
        what: What needs the sides: the first word of the message.
        example: How patterns are given.
    """
    if sum(map(len, sides)) < 3:
        return ""
    each = "; ".join(f"({_listed(side, 4)})" for side in sides[:4]) + "; ..." * (len(sides) > 4)
    return (
        f"{what}: {len(sides)} sides, whose agents win or lose together: {each}; for other sides pass a "
        f"pattern for each, {example}"
    )


def agents_of_sides(
    patterns: Sequence[str], env_id: str, policies_of: Mapping[str, Collection[Any]], *, what: str, example: str
) -> list[tuple[str, ...]]:
    """Return the agents of each side of a game, at least 2 sides.

    Args:
        patterns: A pattern for each side; empty: those that the policies imply.
        env_id: As for `sides_of_game`.
        policies_of: As for `sides_of_game`.
        what: What needs the sides, for messages.
        example: How patterns are given, for messages.

    Raises:
        ConfigError: there is only one side, a side has no agents, or an agent is on no side.
    """
    groups = _by_patterns(patterns, env_id, list(policies_of)) if patterns else _implied(policies_of)
    if len(groups) < 2:
        raise ConfigError(
            f"a {what} needs a game of at least 2 sides, but all agents of {env_id} ({_listed(policies_of)}) are on "
            f"one: pass a pattern for each side, such as {example}"
        )
    return list(map(tuple, groups))


def _implied(policies_of: Mapping[str, Collection[Any]]) -> list[list[str]]:
    """Return the agents of each side without patterns.

    They are those with the same policies, or each agent if all agents have the same policies.
    """
    kinds = dict.fromkeys(tuple(names) for names in policies_of.values())
    if len(kinds) == 1:
        return [[agent] for agent in policies_of]
    return [[agent for agent, names in policies_of.items() if tuple(names) == kind] for kind in kinds]


def _by_patterns(patterns: Sequence[str], env_id: str, agents: Sequence[str]) -> list[list[str]]:
    """Return the agents of each pattern. An agent belongs to the first pattern that matches."""
    groups: dict[str, list[str]] = {pattern: [] for pattern in patterns}
    for agent in agents:
        pattern = next((each for each in groups if fnmatchcase(agent, each)), None)
        if pattern is None:
            raise ConfigError(
                f"sides is {','.join(patterns)}, but the agent {agent} of {env_id} matches none of them: add a pattern"
            )
        groups[pattern].append(agent)
    for pattern in patterns:
        if not groups[pattern] or patterns.count(pattern) > 1:
            raise ConfigError(
                f"sides is {','.join(patterns)}, but {pattern} has no agents of its own. The agents of {env_id} are "
                f"{_listed(agents)}: correct the pattern, or leave it out"
            )
    return list(groups.values())


def _side(agents: Sequence[str], policies_of: Mapping[str, Sequence[str]]) -> Side:
    names = dict.fromkeys(name for agent in agents for name in policies_of[agent])
    common = tuple(name for name in names if all(name in policies_of[agent] for agent in agents))
    if not common:
        raise ConfigError(
            f"the side of {_listed(agents)} has the policies {', '.join(names)}, but one for all of them is expected: "
            "pass other sides with --set league.sides=..., give these agents one policy, or leave the league out: the "
            "policies of a team then train against the newest versions"
        )
    return Side(common, tuple(agents))


def _require_choices(config: LeagueConfig, sides: Sequence[Side], policies_of: Mapping[str, Sequence[str]]) -> None:
    """Refuse policies that no side can be played by, and a draw where there is no choice."""
    names = dict.fromkeys(name for own in policies_of.values() for name in own)
    for name in names:
        if not any(name in side.policies for side in sides):
            raise ConfigError(
                f"the policy {name} can play none of the sides {'; '.join(_listed(side.agents) for side in sides)}, "
                "because it does not match all agents of a side: change its patterns, or pass --set league.sides=..."
            )
    if config.draw_policies and all(len(side.policies) == 1 for side in sides):
        raise ConfigError(
            "draw_policies is true, but no side has several policies: give two policies patterns that match the same "
            "agents, or leave it out"
        )


def _require_learning(config: LeagueConfig, sides: Sequence[Side], trained: Collection[str]) -> None:
    playing = dict.fromkeys(name for side in sides for name in side.policies)
    learning = [name for name in playing if name in trained]
    if not learning:
        raise ConfigError(
            f"none of the policies {', '.join(playing)} is trained, so there is nothing to play for: set train = true "
            "for one of them"
        )
    if config.team_change_every and len(learning) < 2:
        raise ConfigError(
            f"team_change_every is {config.team_change_every}, but only the policy {learning[0]} is trained, so there "
            "are no turns: leave it out, or give each side a policy of its own"
        )


def _listed(agents: Collection[str], most: int = 10) -> str:
    """Return names for a message, at most `most` of them."""
    names = list(agents)
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])
