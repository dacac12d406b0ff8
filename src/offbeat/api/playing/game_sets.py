"""The games of a match, in sets that do not depend on each other: played here, or on the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from offbeat.api.playing.env_fit import require_env_fit
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.core.process.threads import set_blas_thread_count
from offbeat.core.types import Policy
from offbeat.workers.games import GameEnvs, Games, play_games
from offbeat.workers.mixture import Mixture

if TYPE_CHECKING:
    from offbeat.config.runtime_config import RuntimeConfig
    from offbeat.runtime.ray.tasks import TaskPool

Chosen = tuple[LoadedPolicy, Policy | Mixture]
"""A loaded policy for the agents of a part of a side, and what plays: itself or a mixture."""
OnStep = Callable[[int, int], None]
"""A function of the number of games that have ended, and of all games."""


@dataclass(frozen=True)
class GameSet:
    """Games with the same policies on each side."""

    policies: tuple[int, ...]
    """By part of a side: the index of its policy among all that play in the match."""
    games: int
    """Number of games."""
    seed: int
    """Seed of the action sampling."""


def play_here(
    sets: Sequence[GameSet],
    policies: Sequence[Chosen],
    make_envs: Callable[[], GameEnvs],
    *,
    greedy: bool,
    on_step: OnStep,
) -> list[Games]:
    """Play sets of games one after the other, in the same worlds.

    Args:
        sets: the sets.
        policies: all policies that play.
        make_envs: makes the worlds.
        greedy: take the most likely actions instead of sampling them.
        on_step: is called after each step of the worlds.

    Raises:
        ConfigError: the worlds cannot be made, or do not fit a policy.
        EnvFailed: a world failed.
    """
    set_blas_thread_count(1)
    *before, total = accumulate((each.games for each in sets), initial=0)
    envs = make_envs()
    try:
        return [
            _play(envs, each, greedy, partial(_add, on_step, ended, total), *(policies[i] for i in each.policies))
            for each, ended in zip(sets, before, strict=True)
        ]
    finally:
        envs.close()


def play_on_nodes(
    pool: TaskPool,
    env: bytes,
    limits: Sequence[RuntimeConfig],
    sets: Sequence[GameSet],
    policies: Sequence[Chosen],
    make_envs: Callable[[], GameEnvs],
    *,
    greedy: bool,
    on_step: OnStep,
) -> list[Games]:
    """Play each set of games in a task on a node, with the same results as `play_here`.

    Args:
        pool: runs the tasks.
        env: the env, from `sending.package`.
        limits: the settings of the players' runs, which have the time limits of their envs.
        sets: as for `play_here`, and so the others.
        policies: they are sent to each node once.
        make_envs: makes the worlds on a node.
        greedy: as for `play_here`.
        on_step: is called when a set has ended.

    Raises:
        ConfigError, EnvFailed: as `play_here`.
        RunFailed: there is no node with the resources any more, or the games hang.
    """
    from offbeat.runtime.ray.tasks import stall_limit

    sent = [pool.put(chosen) for chosen in policies]
    calls = [(each, *(sent[index] for index in each.policies)) for each in sets]
    played: dict[int, Games] = {}
    for index, games in pool.results(env, partial(_play_on_node, make_envs, greedy), calls, stall_limit(limits)):
        played[index] = games
        on_step(sum(sets[ended].games for ended in played), sum(each.games for each in sets))
    return [played[index] for index in range(len(sets))]


def _add(on_step: OnStep, before: int, total: int, ended: int) -> None:
    """Report the games of a set that have ended, and those of the sets before it."""
    on_step(before + ended, total)


def _play_on_node(make_envs: Callable[[], GameEnvs], greedy: bool, games: GameSet, *policies: Chosen) -> Games:
    from offbeat.runtime.ray.tasks import note_progress

    set_blas_thread_count(1)
    envs = make_envs()
    try:
        return _play(envs, games, greedy, note_progress, *policies)
    finally:
        envs.close()


def _play(envs: GameEnvs, games: GameSet, greedy: bool, on_step: Callable[[int], None], *policies: Chosen) -> Games:
    """Play a set of games; `policies`: those of the parts of its sides."""
    for index, (loaded, _) in enumerate(policies):
        require_env_fit(loaded, envs.columns[str(index)].spec)
    return play_games(
        envs, [policy for _, policy in policies], games=games.games, seed=games.seed, greedy=greedy, on_step=on_step
    )
