"""Games between given policies, which do not change. A policy plays a side of a game, or one part of a side.

envs = game_envs(world, [[red], [blue]], 100, seed=0, settings=settings)
games = play_games(envs, [first, second], games=100, seed=0)
games.outcomes      # [100, 2]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from offbeat.config.env import MAX_EPISODE_STEPS, EnvConfig
from offbeat.core.types import Policy
from offbeat.envs.worlds.contract import WorldSpec
from offbeat.envs.worlds.make import make_worlds
from offbeat.workers.episodes import Episodes
from offbeat.workers.evaluation_envs import EVALUATION_ENVS, EvaluationEnvs
from offbeat.workers.evaluator import PlayOptions, evaluate
from offbeat.workers.mixture import Mixture


@dataclass(frozen=True)
class Games:
    """Games that have been played."""

    outcomes: NDArray[np.float64]
    """[games, sides]: the outcome of each side, the mean over its agents that appeared. NaN where none did, or where
    the env has not reported one."""
    cut: int
    """Number of games that a limit on env steps has cut. Their returns up to there count."""

    @property
    def results(self) -> NDArray[np.float64]:
        """[n, sides]: the outcomes of the games in which each side has one."""
        results: NDArray[np.float64] = self.outcomes[np.isfinite(self.outcomes).all(axis=1)]
        return results


@dataclass(frozen=True)
class GameEnvs(EvaluationEnvs):
    """The worlds of games. Their columns are those of the parts of sides, named by their numbers, as text."""

    sides: Sequence[Sequence[str]] = ()
    """The names of the parts of each side."""
    outcome: str = ""
    """Name in `info` of the specs of the number that is an agent's outcome; empty: its undiscounted return."""


def game_envs(
    world: WorldSpec,
    sides: Sequence[Sequence[Sequence[str]]],
    games: int,
    *,
    seed: int,
    settings: EnvConfig,
    outcome: str = "",
    max_episode_steps: int = MAX_EPISODE_STEPS,
) -> GameEnvs:
    """Make the worlds in which up to `games` games are played at once.

    Args:
        world: agents and spaces of one world, from `preflight_world`.
        sides: the parts of each side; of each part its agents, in the order of the world.
        games: number of games of a call of `play_games`.
        seed: seed of the worlds.
        settings: the table [env].
        outcome: number in the infos whose last value in an agent's episode is its outcome; empty: its undiscounted
            return.
        max_episode_steps: steps of the world after which a game is cut.

    Raises:
        ConfigError: a world cannot be made, or the agents of one part have different spaces.
    """
    outcome = outcome and f"{outcome}:last"
    if outcome and outcome not in settings.info_metrics:
        settings = replace(settings, info_metrics=(*settings.info_metrics, outcome))
        world = replace(
            world, agents=tuple((name, replace(spec, info=settings.info_metrics)) for name, spec in world.agents)
        )
    numbers = count()
    parts = [[str(next(numbers)) for _ in side] for side in sides]
    owners = dict(zip(chain(*parts), chain(*sides), strict=True))
    worlds = make_worlds(
        world,
        min(games, EVALUATION_ENVS),
        owners,
        seed=seed,
        role="match",
        settings=settings,
        cut_after=max_episode_steps,
    )
    return GameEnvs(worlds.envs, worlds, parts, outcome)


def play_games(
    envs: GameEnvs,
    policies: Sequence[Policy | Mixture],
    *,
    games: int,
    seed: int,
    greedy: bool = False,
    on_step: Callable[[int], None] | None = None,
) -> Games:
    """Play whole games. The worlds start with the same random numbers in each call.

    Args:
        envs: from `game_envs`.
        policies: the policy of each part of a side, with its weights loaded. One policy may play several parts.
        games: number of games; each world plays a fixed share of them.
        seed: seed of the action sampling.
        greedy: take the most likely actions instead of sampling them.
        on_step: is called after each step of the worlds with the number of games that have ended.

    Raises:
        EnvFailed: a world failed.
    """
    assert envs.worlds is not None
    envs.worlds.restart_streams()
    acting = {str(index): policy for index, policy in enumerate(policies)}
    played = evaluate(acting, envs, episodes=games, seed=seed, options=PlayOptions(not greedy, on_step=on_step))
    index = envs.columns["0"].spec.info.index(envs.outcome) if envs.outcome else None
    sides = [[played.policies[part] for part in side] for side in envs.sides]
    return Games(np.stack([_outcomes(side, games, index) for side in sides], axis=1), played.cut)


def _outcomes(parts: Sequence[Episodes], games: int, index: int | None) -> NDArray[np.float64]:
    """Return the outcomes of a side, [games]: the mean over its agents that have one. NaN: none has.

    Args:
        parts: the episodes of the agents of each part.
        games: number of games.
        index: index of the number in the infos that is an agent's outcome; None: its return is.
    """
    values = np.concatenate([own.returns if index is None else own.infos[:, index] for own in parts])
    game = np.concatenate([np.repeat(np.arange(games), own.team_sizes) for own in parts])
    has_one = np.isfinite(values)
    sums = np.bincount(game[has_one], values[has_one], games)
    counts = np.bincount(game[has_one], minlength=games)
    outcomes: NDArray[np.float64] = np.divide(sums, counts, out=np.full(games, np.nan), where=counts > 0)
    return outcomes
