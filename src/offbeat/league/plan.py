"""The league of a run as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from offbeat.config.league import LeagueConfig
from offbeat.league.sides import Side


@dataclass(frozen=True)
class LeaguePlan:
    """A league: its config, its sides and the policies that are trained."""

    config: LeagueConfig
    sides: tuple[Side, ...]
    trained: tuple[str, ...]
    """The policies that are trained, in the order of their turns."""

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that play, each once, in the order of the sides."""
        return tuple(dict.fromkeys(policy for side in self.sides for policy in side.policies))

    @property
    def draws_policies(self) -> bool:
        """Whether the policies of the sides are drawn for each episode."""
        return any(len(side.policies) > 1 for side in self.sides)

    @property
    def learning_sides(self) -> int:
        """Number of sides that a policy which is trained can play."""
        return sum(any(name in self.trained for name in side.policies) for side in self.sides)

    def sides_of(self, policy: str) -> tuple[tuple[str, ...], ...]:
        """Return the agents of each side that a policy can play, if policies are drawn; else ()."""
        return tuple(side.agents for side in self.sides if policy in side.policies) if self.draws_policies else ()

    def side_of(self, agent: str) -> int:
        """Return the index of the side that an agent is on."""
        return next(index for index, side in enumerate(self.sides) if agent in side.agents)
