"""`offbeat match`: every player plays against every other one. Players are checkpoints, and snapshots of leagues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, combinations
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from offbeat.api.playing.entrants import Entrant, entrants_of
from offbeat.api.playing.env_fit import world_for
from offbeat.api.playing.game_sets import Chosen, GameSet, OnStep, play_here, play_on_nodes
from offbeat.api.playing.snapshots import Snapshots
from offbeat.config.arguments import checked
from offbeat.config.env import MATCH_GAMES, MAX_EPISODE_STEPS
from offbeat.config.trust import require
from offbeat.core.argument_notation import for_reader
from offbeat.core.errors import ConfigError, EnvFailed, require_at_least
from offbeat.core.fields import Episodes, read
from offbeat.core.files import GivenPath, user_paths
from offbeat.core.process.caller_state import caller_state
from offbeat.core.seeding import derive_seed
from offbeat.envs import sending
from offbeat.league.payoffs import Payoffs
from offbeat.league.players import Player
from offbeat.league.ratings import Ratings, fit_ratings
from offbeat.league.results import GameResult
from offbeat.league.seatings import Seating, seatings
from offbeat.league.sides import agents_of_sides
from offbeat.league.standings import Standing, standings_of
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.store import LATEST
from offbeat.workers.games import Games, game_envs

if TYPE_CHECKING:
    from offbeat.runtime.ray.tasks import TaskPool

EXAMPLE = "--sides 'red_*,blue_*'"
"""How the sides of a match are given, for messages."""
Agents = tuple[str, ...]
"""The agents of a side, or of a part of one."""
SideParts = tuple[Agents, ...]
"""The parts of a side: all its agents, or if no policy of a run can play all of them, those of each policy."""


@dataclass(frozen=True)
class Match:
    """The results of a match."""

    payoffs: Payoffs
    ratings: Ratings
    """The maximum-likelihood fit, with the mean of the players with the same `agents` at 1200."""
    sides: tuple[Agents, ...]
    """The agents of each side of the game."""
    agents: tuple[Agents, ...]
    """[P]: the agents that each player can play for: all, or those of its policy. Only the ratings of players with the
    same agents can be compared, because a side of the game may have an advantage."""
    lines: tuple[str, ...]
    """[P]: the policy or run that each player is a version of."""
    env_steps: tuple[int, ...]
    """[P]: env steps that each player was trained with; for an average, those of the newest snapshot."""
    played: int
    """Number of games, of all pairs."""
    cut: int
    """Number of games that were cut by `max_episode_steps`."""
    no_result: int
    """Number of games that ended before the env reported an outcome of each side (`league.outcome`), or in which no
    agent of a side appeared: they are in no score."""

    def __repr__(self) -> str:
        """Return one line: the number of games, and the standings with ratings or win rates."""
        players = ", ".join(f"{each.player} {_strength(each)}" for each in self.standings)
        return f"Match({self.played} games: {players})"

    @property
    def standings(self) -> list[Standing]:
        """Players with the same `agents` together, of these the best one first."""
        return standings_of(self.payoffs, self.ratings, self.agents)

    def as_json(self) -> dict[str, Any]:
        """Return the match as an object for JSON."""
        return {
            "sides": [list(side) for side in self.sides],
            "players": list(self.payoffs.players),
            "payoffs": {"games": self.payoffs.games.tolist(), "wins": self.payoffs.wins.tolist()},
            "standings": [asdict(each) for each in self.standings],
            "cut": self.cut,
            "no_result": self.no_result,
        }


def _strength(standing: Standing) -> str:
    """Return the rating of a player, or else its win rate."""
    if standing.rating is not None:
        return f"{standing.rating:.0f} +- {standing.error:.0f}"
    return "without a game" if standing.win_rate is None else f"wins {standing.win_rate:.0%}"


@dataclass(frozen=True)
class _Pairing:
    """Two players in one seating."""

    players: tuple[int, int]
    seating: Seating


@checked
def match(
    runs: GivenPath | Sequence[GivenPath],
    *,
    episodes: int = MATCH_GAMES,
    seed: int = 0,
    checkpoint: str = LATEST,
    snapshots: Snapshots | None = None,
    average: bool = False,
    sides: Sequence[str] = (),
    greedy: bool = False,
    max_episode_steps: int = MAX_EPISODE_STEPS,
    trust_code: bool = False,
    on_step: OnStep = lambda _ended, _total: None,
    nodes: AbstractContextManager[TaskPool] | None = None,
) -> Match:
    """Play every player against every other one, in the world of the runs.

    Each pair plays all its seatings equally often: in a game of two sides, both orders. In a game of more sides, one
    player has one side and the other one all others. A game counts once: its score is the mean over the pairs of sides.

    Args:
        runs: a `Run` or a run directory, or several of them.
        episodes: number of games of each pair, rounded up to a multiple of its seatings.
        seed: seed of the worlds and of the action sampling.
        checkpoint: latest, best or step-<12 digits>, of each run.
        snapshots: which snapshots of each run's league play too; None: those of the window if there is one run.
        average: whether the average of these snapshots plays too.
        sides: patterns of the agents of each side; empty: as in the league of the first run that has one.
        greedy: take the most likely actions instead of sampling them.
        max_episode_steps: steps of the world after which a game is cut. Returns up to there count.
        trust_code: as for `load`.
        on_step: for the command line: is called with the number of games that have ended, and of all games.
        nodes: for the command line: connects to a cluster. The games of each pair of players, in each seating, are
            played on one of its nodes. None: here.

    Raises:
        ConfigError: an argument is invalid, there is only one player, the runs have different worlds, or the game has
            only one side.
        EnvFailed: a world failed, or no game had a result.
    """
    directories = user_paths(runs)
    if not directories:
        raise ConfigError("no run is given: run `offbeat match RUN RUN...` with directories of `offbeat train`")
    episodes = read("episodes", episodes, Episodes, "pass, for example, --episodes 20")
    require_at_least("seed", seed, 0)
    require_at_least("max_episode_steps", max_episode_steps, 1)
    if snapshots is not None:
        snapshots = read("snapshots", snapshots, Snapshots, "pass --snapshots window")
    with caller_state() as caller:
        entrants, config = entrants_of(
            directories, snapshots, checkpoint=checkpoint, average=average, trust_code=trust_code
        )
        caller.save_library_settings()
        trained = entrants[0].trained
        require(trained.env_code, "the policy")
        playing = _sides(trained.env, entrants, sides or (config.sides if config else ()))
        pairings = _pairings(entrants, playing, episodes, alone=len(directories) == 1)
        outcome = config.outcome if config else ""
        make_envs = partial(
            game_envs, world_for(trained, entrants[0].run_agents), playing, max(pairings.values()), seed=seed,
            settings=trained.env_config, outcome=outcome, max_episode_steps=max_episode_steps,
        )  # fmt: skip
        sets, policies = _sets(entrants, playing, pairings, seed)
        if nodes is None:
            games_of_sets = play_here(sets, policies, make_envs, greedy=greedy, on_step=on_step)
        else:
            env = sending.package(trained.env, _imports(directories), trained.env_config.wrappers)
            limits = [RunDirectory(run).read_runtime() for run in directories]
            with nodes as pool:
                games_of_sets = play_on_nodes(
                    pool, env, limits, sets, policies, make_envs, greedy=greedy, on_step=on_step
                )
        result = _match(entrants, playing, pairings, games_of_sets)
        if result.no_result == result.played:
            raise EnvFailed(_no_results(result, outcome))
        return result


def _imports(runs: Sequence[Path]) -> tuple[str, ...]:
    """Return the modules that the runs import."""
    modules = (module for run in runs for module in RunDirectory(run).read_run().imports)
    return tuple(dict.fromkeys(modules))


def _no_results(match: Match, outcome: str) -> str:
    """Return the message about a match in which no game has a result."""
    none = f"none of the {match.played} games has a result (cut by the limit on env steps: {match.cut})"
    if not outcome:
        return f"{none}: each side needs an agent that appears. Pass other sides, or correct the agents of the env"
    return (
        f"{none}: each side needs an agent whose last info has a number {outcome!r}, the league.outcome of the first "
        "run that has a league. Raise --max-episode-steps, or correct the infos of the env"
    )


def _sides(env_id: str, entrants: Sequence[Entrant], patterns: Sequence[str]) -> list[SideParts]:
    """Return the sides of the game. Without patterns the agents with the same policies in all runs are a side.

    Raises:
        ConfigError: there is only one.
    """
    policies: dict[str, list[object]] = {}
    for number, entrant in enumerate(entrants):
        for policy, own in entrant.run_agents.items():
            for agent in own:
                policies.setdefault(agent, []).append((number, policy))
    if len(policies) < 2:
        raise ConfigError(f"a match needs a game of at least 2 sides, but {env_id} has one agent: pass runs of a game")
    example = for_reader(EXAMPLE, 'sides=["red_*", "blue_*"]')
    sides = agents_of_sides(patterns, env_id, policies, what="match", example=example)
    return [_in_parts(side, entrants, policies) for side in sides]


def _in_parts(side: Agents, entrants: Sequence[Entrant], policies_of: Mapping[str, list[object]]) -> SideParts:
    """Return the parts of a side; `policies_of`: the policies of each agent, in all runs."""
    if all(any(set(side) <= set(own) for own in each.run_agents.values()) for each in entrants):
        return (side,)
    kinds = dict.fromkeys(tuple(policies_of[agent]) for agent in side)
    return tuple(tuple(agent for agent in side if tuple(policies_of[agent]) == kind) for kind in kinds)


def _pairings(
    entrants: Sequence[Entrant], sides: Sequence[SideParts], episodes: int, *, alone: bool
) -> dict[_Pairing, int]:
    """Return the pairings, each with its number of games.

    Args:
        entrants: the players.
        sides: the sides.
        episodes: number of games of each pair, which is rounded up to a multiple of its seatings.
        alone: whether all are players of one run.

    Raises:
        ConfigError: no two players can play against each other.
    """
    pairings: dict[_Pairing, int] = {}
    for i, j in combinations(range(len(entrants)), 2):
        can_play = [[entrants[player].plays(side) for side in sides] for player in (i, j)]
        own = seatings(can_play)
        pairings |= {_Pairing((i, j), seating): ceil(episodes / len(own)) for seating in own}
    if not pairings:
        why = _why_none(entrants, sides, alone=alone)
        raise ConfigError(f"a match needs 2 players that can play against each other, but it has {why}")
    return pairings


def _why_none(entrants: Sequence[Entrant], sides: Sequence[SideParts], *, alone: bool) -> str:
    """Return the players for a message, of which none can meet, and the remedy."""
    names = [each.name for each in entrants]
    if len(names) == 1:
        return f"only {names[0]}: pass several runs, or the run of a league with --snapshots window"
    remedy = "other sides"
    if alone:
        remedy = "several runs: the policies of a single one only meet in a game of two sides, or if one plays several"
    elif any(len(side) > 1 for side in sides):
        remedy += ", or runs with one policy for each agent: no policy is drawn within a team"
    return f"{', '.join(names)}, none of which can play all other sides: pass {remedy}"


def _sets(
    entrants: Sequence[Entrant], sides: Sequence[SideParts], pairings: Mapping[_Pairing, int], seed: int
) -> tuple[list[GameSet], list[Chosen]]:
    """Return the games of all pairings, whose values are numbers of games, and all policies that play."""
    indices: dict[tuple[int, Agents], int] = {}
    policies: list[Chosen] = []
    sets = []
    for number, (pairing, games) in enumerate(pairings.items()):
        seats = zip(pairing.seating, sides, strict=True)
        seated = [(pairing.players[player], part) for player, side in seats for part in side]
        for player, part in seated:
            if (player, part) not in indices:
                indices[player, part] = len(policies)
                policies.append(entrants[player].policy_of(part))
        sets.append(GameSet(tuple(indices[each] for each in seated), games, derive_seed(seed, "match", number)))
    return sets, policies


def _match(
    entrants: Sequence[Entrant],
    sides: Sequence[SideParts],
    pairings: Mapping[_Pairing, int],
    games_of_sets: Sequence[Games],
) -> Match:
    """Return the results of all pairings, whose values are numbers of games."""
    scores = [
        (*pairing.players, _score(outcomes, pairing.seating))
        for pairing, games in zip(pairings, games_of_sets, strict=True)
        for outcomes in games.results.tolist()
    ]
    total, cut = sum(pairings.values()), sum(games.cut for games in games_of_sets)
    payoffs = Payoffs.count([entrant.name for entrant in entrants], scores)
    lines, env_steps = zip(*((each.line, each.trained.env_steps) for each in entrants), strict=True)
    all_agents = tuple(tuple(chain(*side)) for side in sides)
    agents = tuple(tuple(chain(*(chain(*side) for side in sides if each.plays(side)))) for each in entrants)
    ratings = fit_ratings(payoffs, groups=agents)
    return Match(payoffs, ratings, all_agents, agents, lines, env_steps, total, cut, total - len(scores))


def _score(outcomes: Sequence[float], seating: Seating) -> float:
    """Return the score of the first player in a game: the mean over the pairs of sides of the two players."""
    result = GameResult(tuple(Player("", player) for player in seating), tuple(outcomes))
    scores = [pair.score if pair.first.snapshot == 0 else 1 - pair.score for pair in result.pairs()]
    return float(np.mean(scores))
