"""Seats: who plays each side in the worlds of one actor of a league.

At the start of each episode of a world, the player of each side is drawn: the newest version of a policy, or one of its
snapshots. The draw is a function of (seed, ticket, world, episode) and of the league's table as of the version of the
weights. `SeatedColumns` (seated_columns.py) act with these players. What the sides get in a game is in `GameOutcomes`
(game_outcomes.py).

If several policies can play a side, its policy is drawn first, when the world is reset: the world then writes what an
agent sees into the columns of this policy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from offbeat.core.pace import Pace
from offbeat.league.drawn_policies import draw_policies, policy_of_agents
from offbeat.league.opponents import OpponentOdds, draw
from offbeat.league.plan import LeaguePlan
from offbeat.league.players import LATEST, Player
from offbeat.league.turns import learning_policies, learning_side
from offbeat.memory.league import LeagueMemory
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.spec import PolicySpec
from offbeat.workers.game_outcomes import GameOutcomes


class Seats:
    """Who plays each side in the worlds of one actor."""

    def __init__(
        self, plan: LeaguePlan, pace: Pace, specs: Mapping[str, PolicySpec], *, seed: int, actor: int, worlds: int
    ) -> None:
        """Make seats without players.

        Args:
            plan: the league.
            pace: says which learning step a ticket is used in.
            specs: the policies, by name.
            seed: seed of the run.
            actor: index of the actor.
            worlds: number of worlds of each actor.
        """
        self.plan, self._pace, self._specs = plan, pace, specs
        self._policies = plan.policies
        self._seed, self._first_world = seed, actor * worlds
        self._origin = 0
        """The ticket at which the episodes have started."""
        only = tuple(side.policies[0] for side in plan.sides)
        self._policies_of_sides = [only] * worlds
        """Policies of each world's sides, in the episode that its last reset has started."""
        self.players: list[tuple[Player, ...]] = [()] * worlds
        """Players of each world's sides; (): not drawn yet."""
        self.learning: Collection[str] = ()
        """The policies that learn from the current ticket."""
        self.changes = 0
        """Counts the changes of players and of who learns."""
        self.outcomes = GameOutcomes(len(plan.sides), worlds, reported=bool(plan.config.outcome))
        """What each side has got in the current game of each world."""
        self._episodes = [0] * worlds
        """Episodes that have started in each world in the current ticket."""
        self._frozen: dict[Player, ActingPolicy] = {}
        self._odds: tuple[int, OpponentOdds] | None = None
        """The odds of the version that was used last."""

    # --- draws ----------------------------------------------------------------------------------------------

    def start_ticket(self, ticket: int, version: int, memory: LeagueMemory) -> None:
        """Start a ticket that acts with this version of the weights; draw the players of worlds that have none."""
        self.learning = self._learning_in(ticket)
        self.changes += 1
        self._ticket, self._memory, self._results = ticket, memory, memory.results(ticket)
        self._results.games[0] = 0
        self._episodes = [0] * len(self.players)
        if self._odds is None or self._odds[0] != version:
            counts, cumulative = memory.odds(version)
            self._odds = version, OpponentOdds(self._policies, counts.copy(), cumulative.copy())
        for world, players in enumerate(self.players):
            if not players:
                self._draw(world)

    def _learning_in(self, ticket: int) -> tuple[str, ...]:
        return learning_policies(self.plan.config, self.plan.trained, self._pace.step_of(ticket))

    def draw_policies(self, world: int, episode: int) -> Mapping[str, str]:
        """Draw the policies of an episode that a reset starts; return the policy of each agent: a `PoliciesOf`."""
        sides = self.plan.sides
        self._policies_of_sides[world] = policies = draw_policies(
            sides,
            self.learning,
            seed=self._seed,
            origin=self._origin,
            world=self._first_world + world,
            episode=episode,
        )
        return policy_of_agents(sides, policies)

    def _draw(self, world: int) -> None:
        """Draw the players of the next episode of a world, from the policies that it has."""
        assert self._odds is not None
        policies = self._policies_of_sides[world]
        side = learning_side(policies, self.learning, self._first_world + world)
        episode = self._episodes[world]
        self._episodes[world] += 1
        self.players[world] = draw(
            self._odds[1], policies, seed=self._seed, side=side, ticket=self._ticket, world=world, episode=episode
        )
        self.changes += 1
        for player in self.players[world]:
            if player.snapshot != LATEST and player not in self._frozen:
                self._load(player, self._memory.snapshot(player.policy, player.snapshot))
        in_use = {player for players in self.players for player in players}
        self._frozen = {player: policy for player, policy in self._frozen.items() if player in in_use}

    def _load(self, player: Player, vector: Any) -> None:
        policy = make_policy(self._specs[player.policy])
        policy.load(vector)
        self._frozen[player] = policy

    def frozen(self, player: Player) -> ActingPolicy:
        """Return the policy of a snapshot that plays in one of the worlds."""
        return self._frozen[player]

    def is_recorded(self, player: Player) -> bool:
        """Whether the columns of a player are learned from in the current ticket."""
        return player.snapshot == LATEST and player.policy in self.learning

    # --- games ----------------------------------------------------------------------------------------------

    def finish(self, world: int) -> None:
        """Write the result of the game that has ended in a world, if it has one, and draw the players of the next."""
        outcomes = self.outcomes.take(world)
        if outcomes is not None:
            number = int(self._results.games[0])
            players = self.players[world]
            self._results.policies[number] = [self._policies.index(player.policy) for player in players]
            self._results.snapshots[number] = [player.snapshot for player in players]
            self._results.outcomes[number] = outcomes
            self._results.games[0] = number + 1
        self._draw(world)

    def start_episodes(self, origin: int, *, advanced: bool) -> None:
        """Start new games in all worlds, which are reset at the ticket `origin`; forget the current ones.

        `advanced`: they then take random steps, and the games that begin with these have no results.
        """
        self._origin = origin
        self.learning = self._learning_in(origin)
        self.players = [()] * len(self.players)
        self.outcomes.reset(advanced=advanced)

    # --- state ----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the state between two tickets, with the weights of the snapshots that play."""
        return {
            "origin": self._origin,
            "policies": list(map(list, self._policies_of_sides)),
            "players": [[player.snapshot for player in players] for players in self.players],
            **self.outcomes.state(),
            "frozen": {
                policy: {
                    str(player.snapshot): frozen.vector.copy()
                    for player, frozen in self._frozen.items()
                    if player.policy == policy
                }
                for policy in self._policies
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue the games of what `state` returned."""
        self._origin, self._policies_of_sides = int(state["origin"]), list(map(tuple, state["policies"]))
        drawn = zip(self._policies_of_sides, state["players"], strict=True)
        self.players = [tuple(map(Player, policies, numbers)) for policies, numbers in drawn]
        self.outcomes.restore(state)
        self._frozen.clear()
        for policy, vectors in state["frozen"].items():
            for number, vector in vectors.items():
                self._load(Player(policy, int(number)), vector)
