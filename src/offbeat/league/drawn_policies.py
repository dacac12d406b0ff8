"""Which policy plays each side in an episode, if several policies can play it (`draw_policies`).

In training the policies are drawn. In an evaluation they rotate, so that each of them plays equally often and meets all
others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from offbeat.core.seeding import stream
from offbeat.league.sides import Side


def draw_policies(
    sides: Sequence[Side], learning: Collection[str], *, seed: int, origin: int, world: int, episode: int
) -> tuple[str, ...]:
    """Return the policy of each side in an episode of training: all that can play a side are equally likely.

    One side gets a policy that learns, so that each episode can be learned from. The worlds take turns in that.

    Args:
        sides: the sides of the game.
        learning: the policies that learn; each of them can play a side.
        seed: seed of the run.
        origin: ticket at which the episodes of the world have started.
        world: number of the world, among those of the whole run.
        episode: number of the episode, from 0 at the origin.
    """
    random = stream(seed, "policies", origin, world, episode)
    can_learn = [index for index, side in enumerate(sides) if any(policy in learning for policy in side.policies)]
    learns = can_learn[world % len(can_learn)]
    policies = []
    for index, side in enumerate(sides):
        choices = [policy for policy in side.policies if index != learns or policy in learning]
        policies.append(choices[int(random.integers(len(choices)))])
    return tuple(policies)


def rotate_policies(sides: Sequence[Side], episode: int) -> tuple[str, ...]:
    """Return the policy of each side in an episode of an evaluation.

    Each combination comes once in as many episodes as there are combinations: with two sides that n policies can play,
    n^2. In the first episodes of these, policies meet others rather than themselves.
    """
    policies, shift = [], 0
    for index, side in enumerate(sides):
        episode, digit = divmod(episode, len(side.policies))
        shift += digit
        policies.append(side.policies[(shift + index) % len(side.policies)])
    return tuple(policies)


def policy_of_agents(sides: Sequence[Side], policies: Sequence[str]) -> dict[str, str]:
    """Return the policy of each agent; `policies`: those of the sides."""
    return {agent: policy for side, policy in zip(sides, policies, strict=True) for agent in side.agents}


def sides_of_policies(policies: Mapping[str, Sequence[Sequence[str]]]) -> tuple[Side, ...]:
    """Return the sides of a game from the sides that each policy can play; `policies`: name -> agents of each side."""
    by_agents: dict[tuple[str, ...], tuple[str, ...]] = {}
    for name, sides in policies.items():
        for agents in sides:
            by_agents[tuple(agents)] = (*by_agents.get(tuple(agents), ()), name)
    return tuple(Side(names, agents) for agents, names in by_agents.items())
