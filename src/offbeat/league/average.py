"""The average policy of several snapshots.

In self-play the newest policy can go round in circles while the average of all snapshots comes close to an equilibrium.
So a league should be judged by its average too. There are two forms, which play equally well against any opponent:

* `average_policy` for small games of OpenSpiel: one policy that is computed exactly. OpenSpiel's own functions, such as
  `exploitability.nash_conv`, accept it.
* `draw_snapshot` for all other games: one snapshot is drawn per episode and plays all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from offbeat.core.errors import ConfigError
from offbeat.core.seeding import stream
from offbeat.core.types import F64

if TYPE_CHECKING:
    from open_spiel.python.policy import TabularPolicy

ActionProbabilities = Callable[[Any], Mapping[int, float]]
"""Function of a state (`pyspiel.State`) of a decision: legal action -> its probability. Missing ones have 0."""
MOST_HISTORIES = 1_000_000
"""Number of histories of the largest game whose average is computed, which takes minutes. Tic-tac-toe has 549,946."""


def draw_snapshot(weights: Sequence[float], *, seed: int, world: int, episode: int) -> int:
    """Return the index of the snapshot that plays an episode.

    Args:
        weights: Weight of each snapshot, not negative.
        seed: Seed of the match or evaluation.
        world: Number of the world.
        episode: Number of the episode in this world.
    """
    shares = shares_of(weights, len(weights))
    return int(stream(seed, "mixture", world, episode).choice(len(shares), p=shares))


def average_policy(
    game: Any, policies: Sequence[ActionProbabilities], weights: Sequence[float] | None = None
) -> TabularPolicy:
    """Return the average of policies of a game that can be enumerated.

    At each information state, each policy has its weight times the probability that the player's own actions lead there
    under this policy. So the average has the same expected return as a mixture that draws one policy per episode,
    against any opponent (Kuhn 1953, "Extensive Games and the Problem of Information"). At states that no policy
    reaches, it is uniform.

    Args:
        game: A turn-based game of OpenSpiel (`pyspiel.Game`), with information states.
        policies: The policies, each for all players.
        weights: Weight of each policy, not negative; None: all are equal.

    Raises:
        ConfigError: the game is not turn-based, has no information states or too many histories, a policy does not
            return probabilities, or weights are negative or all 0.
    """
    from open_spiel.python.algorithms.policy_aggregator import PolicyAggregator
    from open_spiel.python.policy import TabularPolicy

    _require_supported(game)
    shares = shares_of(weights if weights is not None else [1.0] * len(policies), len(policies)).tolist()
    uniform, players = TabularPolicy(game), range(game.num_players())
    tables = [_table(uniform, policy) for policy in policies]
    average = PolicyAggregator(game).aggregate(players, [tables for _ in players], [shares for _ in players])
    return _table(uniform, average.action_probabilities)


def _table(uniform: TabularPolicy, policy: ActionProbabilities) -> TabularPolicy:
    """Return a policy as a table with the states of another one."""
    table = copy(uniform)
    for row, state in zip(table.action_probability_array, table.states, strict=True):
        probabilities, legal = policy(state), state.legal_actions()
        row[:] = 0
        row[legal] = [probabilities.get(action, 0) for action in legal]
        if not (row >= 0).all() or abs(row.sum() - 1) > 1e-4:  # float32 rounds
            raise ConfigError(
                f"a policy returned {dict(probabilities)} at {state.information_state_string()!r}, but probabilities "
                f"of the legal actions {legal} are expected, which add up to 1"
            )
    return table


def shares_of(weights: Sequence[float], count: int) -> F64:
    """Return weights divided by their sum."""
    shares = np.asarray(weights, np.float64)
    if shares.shape != (count,) or not (shares >= 0).all() or not 0 < shares.sum() < np.inf:
        raise ConfigError(
            f"the weights of {count} policies are {list(weights)}, but one number per policy is expected, none "
            "negative and not all 0"
        )
    normalized: F64 = shares / shares.sum()
    return normalized


def _require_supported(game: Any) -> None:
    kind = game.get_type()
    if kind.dynamics != type(kind.dynamics).SEQUENTIAL:
        raise ConfigError(
            f"{kind.short_name} is not turn-based: load it with pyspiel.load_game_as_turn_based({kind.short_name!r})"
        )
    if not kind.provides_information_state_string:
        raise ConfigError(
            f"{kind.short_name} has no information states, so its average policy cannot be computed: draw one snapshot "
            "per episode with draw_snapshot"
        )
    histories, unvisited = 0, [game.new_initial_state()]
    while unvisited:
        histories += 1
        if histories > MOST_HISTORIES:
            raise ConfigError(
                f"the game has more than {MOST_HISTORIES:,} histories, so its average policy cannot be computed "
                "exactly: draw one snapshot per episode with draw_snapshot"
            )
        state = unvisited.pop()
        unvisited.extend(map(state.child, state.legal_actions()))
