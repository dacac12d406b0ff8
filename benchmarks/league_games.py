"""Games of OpenSpiel between policies and other players, many games at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from tests.support.league_players import leaves_of, shares_of

from offbeat.core.seeding import stream
from offbeat.league.payoffs import Payoffs
from offbeat.models.acting import ActingPolicy

Chooser = Callable[[list[Any]], Sequence[int]]
"""Function of the states of N games in which the same player is on turn: returns an action for each."""


# --- players ------------------------------------------------------------------------------------------------


def greedy(policy: ActingPolicy) -> Chooser:
    """Return a player that takes the most likely action."""
    return lambda states: policy.greedy(leaves_of(states)).ravel().tolist()


def sampled(policy: ActingPolicy, random: np.random.Generator) -> Chooser:
    """Return a player that samples its actions."""

    def choose(states: list[Any]) -> Sequence[int]:
        cumulative = shares_of(policy, states).cumsum(axis=1)
        below = cumulative[:, -1:] * random.random((len(states), 1)) >= cumulative
        actions: list[int] = below.sum(axis=1).tolist()
        return actions

    return choose


def uniform(random: np.random.Generator) -> Chooser:
    """Return a player whose legal moves are all equally likely."""
    return lambda states: [int(random.choice(state.legal_actions())) for state in states]


def minimax(random: np.random.Generator) -> Chooser:
    """Return a perfect player of a small game without chance: one of the best moves, all of them equally likely."""
    known: dict[str, float] = {}

    def best_moves(state: Any) -> list[int]:
        moves = {action: -_value(state.child(action), known) for action in state.legal_actions()}
        return [action for action, value in moves.items() if value == max(moves.values())]

    return lambda states: [int(random.choice(best_moves(state))) for state in states]


def _value(state: Any, known: dict[str, float]) -> float:
    """Return the return of the player on turn if both play perfectly from here; `known`: board -> this value."""
    key = str(state)
    if key not in known:
        if state.is_terminal():
            # The loser would be on turn: the game ends with the winner's move.
            known[key] = min(state.returns())
        else:
            known[key] = max(-_value(state.child(action), known) for action in state.legal_actions())
    return known[key]


# --- games --------------------------------------------------------------------------------------------------


def returns_of(game: Any, first: Chooser, second: Chooser, games: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Play games of two players without chance; return the return of the first one in each, [games]."""
    states = [game.new_initial_state() for _ in range(games)]
    running = states
    while running:
        for player, choose in enumerate((first, second)):
            own = [state for state in running if state.current_player() == player]
            for state, action in zip(own, choose(own) if own else (), strict=True):
                state.apply_action(action)
            running = [state for state in running if not state.is_terminal()]
    return np.array([state.returns()[0] for state in states])


def record(game: Any, own: Chooser, other: Chooser, games: int) -> dict[str, dict[str, int]]:
    """Play `games` games, half of them in each seat; return the numbers of games won, drawn and lost by seat."""
    first = returns_of(game, own, other, games // 2)
    second = -returns_of(game, other, own, games // 2)
    return {
        seat: {"won": int((returns > 0).sum()), "drawn": int((returns == 0).sum()), "lost": int((returns < 0).sum())}
        for seat, returns in (("first", first), ("second", second))
    }


def losing_lines(game: Any, own: Chooser, seat: int) -> tuple[int, int]:
    """Play against all possible moves of the other player; return the number of games and how many are lost."""
    states, games, lost = [game.new_initial_state()], 0, 0
    while states:
        ended = [state for state in states if state.is_terminal()]
        games, lost = games + len(ended), lost + sum(state.returns()[seat] < 0 for state in ended)
        mine = [state for state in states if state.current_player() == seat]
        after = [state.child(action) for state, action in zip(mine, own(mine) if mine else (), strict=True)]
        theirs = (state for state in states if state.current_player() == 1 - seat)
        states = after + [state.child(action) for state in theirs for action in state.legal_actions()]
    return games, lost


def round_robin(game: Any, players: Iterable[tuple[str, ActingPolicy]], games: int, seed: int) -> Payoffs:
    """Let all pairs of players play `games` games, half of them in each seat, with sampled actions."""
    named = list(players)
    choosers = [sampled(policy, stream(seed, "round robin", number)) for number, (_, policy) in enumerate(named)]
    scores = []
    for i, j in combinations(range(len(named)), 2):
        for returns in (
            returns_of(game, choosers[i], choosers[j], games // 2),
            -returns_of(game, choosers[j], choosers[i], games // 2),
        ):
            scores += [(i, j, (1 + float(value)) / 2) for value in returns]
    return Payoffs.count([name for name, _ in named], scores)
