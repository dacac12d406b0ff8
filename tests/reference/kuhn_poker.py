"""Self-play in Kuhn poker with exact gradients: a softmax policy per information state, and no sampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from offbeat.core.types import F64


def softmax(logits: F64) -> F64:
    """Return the probabilities of the actions, [states, actions]."""
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    normalized: F64 = weights / weights.sum(axis=1, keepdims=True)
    return normalized


class KuhnPoker:
    """The tree of the game as arrays: each terminal history has a probability of chance, a return and decisions."""

    def __init__(self) -> None:
        import pyspiel

        self.game = pyspiel.load_game("kuhn_poker")
        self.index: dict[str, int] = {}
        """Information state -> row of the policy."""
        self.player: list[int] = []
        ends: list[tuple[float, float, list[tuple[int, int]]]] = []
        self._walk(self.game.new_initial_state(), 1.0, [], ends)
        self.weight = np.array([chance * first_return for chance, first_return, _ in ends])
        self.end = np.array([number for number, (_, _, path) in enumerate(ends) for _ in path])
        self.state, self.action = np.array([decision for _, _, path in ends for decision in path]).T
        self.sign = np.where(np.array(self.player) == 0, 1.0, -1.0)[:, None]  # of the first player's return

    def _walk(self, state: Any, chance: float, path: list[tuple[int, int]], ends: list[Any]) -> None:
        if state.is_terminal():
            ends.append((chance, state.returns()[0], path))
        elif state.is_chance_node():
            for action, probability in state.chance_outcomes():
                self._walk(state.child(action), chance * probability, path, ends)
        else:
            key = state.information_state_string()
            if key not in self.index:
                self.index[key] = len(self.index)
                self.player.append(state.current_player())
            for action in state.legal_actions():
                self._walk(state.child(action), chance, [*path, (self.index[key], action)], ends)

    def value(self, policy: F64) -> float:
        """Expected return of the first player; `policy` is [states, 2] for both players."""
        reach = np.ones(len(self.weight))
        np.multiply.at(reach, self.end, policy[self.state, self.action])
        return float((self.weight * reach).sum())

    def gradient(self, policy: F64) -> F64:
        """Gradient of each player's own expected return by the probabilities of its actions, [states, 2]."""
        reach = np.ones(len(self.weight))
        np.multiply.at(reach, self.end, policy[self.state, self.action])
        gradient = np.zeros_like(policy)
        np.add.at(
            gradient, (self.state, self.action), (self.weight * reach)[self.end] / policy[self.state, self.action]
        )
        return self.sign * gradient

    def visits(self, policy: F64) -> F64:
        """Probability that a game comes to each state, [states]. All six deals are equally likely."""
        reach = np.full(len(self.weight), 1 / 6)
        np.multiply.at(reach, self.end, policy[self.state, self.action])
        visits = np.zeros(len(policy))
        np.add.at(visits, self.state, reach[self.end])
        return visits

    def function(self, policy: F64) -> Callable[[Any], dict[int, float]]:
        """The policy as a function of a state of OpenSpiel."""
        return lambda state: dict(enumerate(policy[self.index[state.information_state_string()]].tolist()))


def self_play(kuhn: KuhnPoker, *, steps: int, entropy: float, rate: float, every: int) -> list[F64]:
    """Both players follow the gradient of their return plus entropy at the same time; return the snapshots."""
    logits = np.random.default_rng(0).normal(0, 0.5, (len(kuhn.index), 2))
    snapshots = []
    for step in range(1, steps + 1):
        policy = softmax(logits)
        advantage = kuhn.gradient(policy) - entropy * np.log(policy) / len(kuhn.index)
        logits += rate * policy * (advantage - (policy * advantage).sum(axis=1, keepdims=True))
        if step % every == 0:
            snapshots.append(softmax(logits))
    return snapshots


def equilibrium_with_entropy(kuhn: KuhnPoker, entropy: float, *, steps: int = 20_000, rate: float = 5e-3) -> F64:
    """Return the policy that self-play with an entropy bonus in each decision, as PPO has it, cannot improve.

    In each state the probability of an action is in proportion to exp(its expected return / entropy). It is found by
    small steps towards that.
    """
    logits = np.zeros((len(kuhn.index), 2))
    for _ in range(steps):
        policy = softmax(logits)
        returns = kuhn.gradient(policy) / kuhn.visits(policy)[:, None]
        logits += rate * (returns / entropy - logits)
    return softmax(logits)
