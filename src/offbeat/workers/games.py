"""Games between given policies, which do not change. A policy plays a side of a game, or one part of a side.

envs = game_envs(world, [[red], [blue]], 100, seed=0, settings=settings)
games = play_games(envs, [first, second], games=100, seed=0)
games.outcomes      # [100, 2]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from offbeat.config.env import MAX_EPISODE_STEPS, EnvConfig
from offbeat.core.types import Policy
from offbeat.envs.worlds.contract import WorldSpec
from offbeat.envs.worlds.make import make_worlds
from offbeat.workers.episodes import EpisodeCounter, Evaluation, Number, WorldsRow
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
    """Number in the infos at the end of an agent's episode that is its outcome; empty: its undiscounted return."""

    def counter(self, episodes: int) -> EpisodeCounter:
        if not self.outcome:
            return super().counter(episodes)
        specs = {part: envs.spec for part, envs in self.columns.items()}
        agents, spec = {part: len(each.agents) for part, each in specs.items()}, specs["0"]
        outcome_index = spec.info.index(self.outcome)
        worlds = spec.columns // agents["0"]
        return _OutcomeCounter(episodes, worlds, agents, spec.cut_at, self.sides, outcome_index)


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
        outcome: see `GameEnvs`.
        max_episode_steps: steps of the world after which a game is cut.

    Raises:
        ConfigError: a world cannot be made, or the agents of one part have different spaces.
    """
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
    if isinstance(played, _WithOutcomes):
        return Games(played.outcomes, played.cut)
    returns = _by_side(envs.sides, {part: own.team_returns for part, own in played.policies.items()})
    agents = _by_side(envs.sides, {part: own.team_sizes for part, own in played.policies.items()})
    return Games(_means(returns, agents), played.cut)


def _by_side(sides: Sequence[Sequence[str]], by_part: Mapping[str, NDArray[Number]]) -> NDArray[Number]:
    """Return the sums over the parts of each side, [episodes, sides]; `by_part`: [episodes] of each part."""
    return np.stack([np.sum([by_part[part] for part in side], axis=0) for side in sides], axis=1)


def _means(sums: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the quotients; NaN where a count is 0."""
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


@dataclass(frozen=True, kw_only=True)
class _WithOutcomes(Evaluation):
    """An evaluation with the outcomes that the env has reported."""

    outcomes: NDArray[np.float64]
    """[episodes, sides]."""


class _OutcomeCounter(EpisodeCounter):
    """A counter that also reads a number from the infos at the end of the agents' episodes."""

    def __init__(
        self,
        episodes: int,
        worlds: int,
        agents: dict[str, int],
        cut_at: int | None,
        sides: Sequence[Sequence[str]],
        outcome_index: int,
    ) -> None:
        """Make a counter.

        Args:
            episodes: as for `EpisodeCounter`, and so the next three.
            worlds: number of worlds.
            agents: number of columns that each part has in a world.
            cut_at: step of a game at which it is cut.
            sides: the parts of each side.
            outcome_index: index of the number in the infos.
        """
        super().__init__(episodes, worlds, agents, cut_at)
        self._agents, self._sides, self._outcome_index = agents, sides, outcome_index
        self._sums_of_outcomes = {part: np.zeros(episodes) for part in agents}
        self._reports = {part: np.zeros(episodes, np.int64) for part in agents}
        """Number of agents of each part for which the env has reported an outcome."""

    def add(self, row: WorldsRow) -> None:
        for part, sums in self._sums_of_outcomes.items():
            outcome = row.outcomes[part]
            values = outcome.info[:, self._outcome_index]
            reported = (outcome.terminated | outcome.truncated) & np.isfinite(values)
            for column in np.flatnonzero(reported).tolist():
                episode = self._episode[column // self._agents[part]]
                if episode < len(sums):
                    sums[episode] += values[column]
                    self._reports[part][episode] += 1
        super().add(row)

    def evaluation(self) -> Evaluation:
        sums, reports = _by_side(self._sides, self._sums_of_outcomes), _by_side(self._sides, self._reports)
        return _WithOutcomes(**vars(super().evaluation()), outcomes=_means(sums, reports))
