"""The players of a league's run, as functions that OpenSpiel's own algorithms accept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.reference.kuhn_poker import softmax

from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.league.average import ActionProbabilities
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.published import published_vector
from offbeat.models.spec import PolicySpec
from offbeat.models.spec_file import read_spec
from offbeat.run_directory.checkpoint import Checkpoint, load

OBSERVATION, MASK = "observation/observation", "observation/action_mask"
"""Leaves of the adapter of OpenSpiel."""


def latest_player(run: Path, policy: str = DEFAULT_POLICY) -> ActingPolicy:
    """Return the newest version of a policy in the last checkpoint of a run."""
    saved = load(run / "checkpoints" / "latest")
    player = make_policy(_spec(saved, policy))
    player.load(published_vector(player.spec, saved.policies[policy].weights))
    return player


def snapshot_players(run: Path, policy: str = DEFAULT_POLICY) -> list[tuple[int, ActingPolicy]]:
    """Return the snapshots of a policy that are in the last checkpoint of a run, oldest first.

    Each comes with its number of env steps. The window of the league must have held them all: older ones are lost.
    """
    saved = load(run / "checkpoints" / "latest")
    assert saved.state is not None
    league = saved.state["league"]
    (table,) = (each for each in league["table"]["policies"] if each["name"] == policy)
    ring, taken = league["arrays"][f"snapshots/{policy}"], table["snapshots"]
    if len(taken) > len(ring):
        raise ValueError(f"{len(taken)} snapshots were taken, but only the newest {len(ring)} are kept")
    players = []
    for number, snapshot in enumerate(taken):
        player = make_policy(_spec(saved, policy))
        player.load(ring[number])
        players.append((int(snapshot["env_steps"]), player))
    return players


def _spec(saved: Checkpoint, policy: str) -> PolicySpec:
    return read_spec(saved.policies[policy].about["policy"])


def probabilities_of(players: Mapping[int, ActingPolicy] | ActingPolicy) -> ActionProbabilities:
    """Return the probabilities of the actions at a state of OpenSpiel.

    Args:
        players: who plays as each player of the game; or one that plays as all.
    """
    evaluate: dict[tuple[int, str], dict[int, float]] = {}

    def at(state: Any) -> dict[int, float]:
        player = state.current_player()
        key = player, state.information_state_string()
        if key not in evaluate:
            policy = players if isinstance(players, ActingPolicy) else players[player]
            shares = shares_of(policy, [state])[0]
            evaluate[key] = {action: float(shares[action]) for action in state.legal_actions()}
        return evaluate[key]

    return at


def shares_of(policy: ActingPolicy, states: list[Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the probabilities of all actions, [N, actions], at N states in which a decision is made."""
    return softmax(policy.parameters(leaves_of(states)).astype(np.float64))


def leaves_of(states: list[Any]) -> dict[str, Any]:
    """Return the observations of the players on turn, [N, *shape] by leaf, as the adapter makes them."""
    game = states[0].get_game()
    complete = game.get_type().provides_information_state_tensor
    shape = game.information_state_tensor_shape() if complete else game.observation_tensor_shape()
    flat = [
        state.information_state_tensor(state.current_player())
        if complete
        else state.observation_tensor(state.current_player())
        for state in states
    ]
    masks = [state.legal_actions_mask(state.current_player()) for state in states]
    return {OBSERVATION: np.array(flat, np.float32).reshape(-1, *shape), MASK: np.array(masks, np.bool_)}
