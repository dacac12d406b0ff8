"""The adapter of OpenSpiel, ids 'openspiel:GAME': board games, card games and matrix games.

Agents act by turns, or at the same time in games with simultaneous moves. Chance events, such as dealt cards, are drawn
here, from a random stream that `reset` seeds and that is saved in snapshots. An agent sees its information state, which
has all that it has seen so far, or its observation in games without one; and a mask of the legal moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError, suggestion, unknown
from offbeat.core.importable import is_importable
from offbeat.envs.contract import State
from offbeat.envs.worlds.contract import World, WorldStep

PREFIX = "openspiel:"
IGNORED_MOVE = 0
"""Move of a player without legal moves, where others move at the same time."""


class OpenSpielWorld:
    """One game. A step is one move, or the moves of all players at the same time, and the chance events after it."""

    frame_skip = 1

    def __init__(self, game: Any, kind: Any) -> None:
        """Play `game`, which is of the type `kind`."""
        self._game = self.env = game
        self.agents = tuple(f"player_{player}" for player in range(game.num_players()))
        self.turns = kind.dynamics == type(kind).Dynamics.SEQUENTIAL
        self._complete = kind.provides_information_state_tensor
        self._shape = tuple(
            game.information_state_tensor_shape() if self._complete else game.observation_tensor_shape()
        )
        self._random = np.random.default_rng(0)
        self._state = game.new_initial_state()
        self._returns: NDArray[np.float64] = np.zeros(len(self.agents))

    def observation_space(self, agent: str) -> gym.Space[Any]:  # noqa: ARG002 - the same for all
        """Return the space of {"observation": ..., "action_mask": ...}."""
        observation = gym.spaces.Box(-np.inf, np.inf, self._shape, np.float32)
        mask = gym.spaces.MultiBinary(self._game.num_distinct_actions())
        return gym.spaces.Dict({"observation": observation, "action_mask": mask})

    def action_space(self, agent: str) -> gym.Space[Any]:  # noqa: ARG002 - the same for all
        """Return the space of the game's numbers of moves."""
        return gym.spaces.Discrete(self._game.num_distinct_actions())

    def reset(self, seed: int | None) -> WorldStep:
        """Start a new game."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._state = self._game.new_initial_state()
        self._draw_chance_events()
        self._returns = np.array(self._state.returns())
        return self._result({}, {}, {})

    def step(self, actions: Mapping[str, Any]) -> WorldStep:
        """Make the moves. An illegal move raises pyspiel.SpielError."""
        if self._state.is_simultaneous_node():
            self._state.apply_actions_with_legality_checks(
                [int(actions.get(agent, IGNORED_MOVE)) for agent in self.agents]
            )
        else:
            self._state.apply_action_with_legality_check(int(actions[self.agents[self._state.current_player()]]))
        self._draw_chance_events()
        # A reward may come with a move or with a chance event: the difference of the returns has both.
        returns = np.array(self._state.returns())
        rewards = dict(zip(self.agents, (returns - self._returns).tolist(), strict=True))
        self._returns = returns
        over = self._state.is_terminal()
        return self._result(rewards, dict.fromkeys(self.agents, over), dict.fromkeys(self.agents, False))

    def render(self) -> Any:
        """Raise RuntimeError: `make_world` accepts no render mode."""
        raise RuntimeError("OpenSpiel draws no pictures")

    def close(self) -> None:
        """Do nothing: the world holds nothing but memory."""

    def snapshot(self) -> State:
        """Return the moves of the running game, and the state of the random stream."""
        return {"game": self._state.serialize(), "random": self._random.bit_generator.state}

    def restore(self, state: State) -> None:
        """Restore the state of a `snapshot`."""
        self._state = self._game.deserialize_state(state["game"])
        self._returns = np.array(self._state.returns())
        self._random.bit_generator.state = state["random"]

    def _result(
        self, rewards: Mapping[str, float], terminations: Mapping[str, bool], truncations: Mapping[str, bool]
    ) -> WorldStep:
        observations = {agent: self.observation_at(self._state, player) for player, agent in enumerate(self.agents)}
        over = self._state.is_terminal()
        infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        return WorldStep(observations, rewards, terminations, truncations, infos, self._deciding(), over)

    def observation_at(self, state: Any, player: int) -> dict[str, Any]:
        """Return what a player sees at a state of the game (`pyspiel.State`)."""
        flat = state.information_state_tensor(player) if self._complete else state.observation_tensor(player)
        return {
            "observation": np.array(flat, np.float32).reshape(self._shape),
            "action_mask": np.array(state.legal_actions_mask(player), np.int8),
        }

    def _deciding(self) -> Sequence[str]:
        if self._state.is_terminal():
            return ()
        if self._state.is_simultaneous_node():
            return [agent for player, agent in enumerate(self.agents) if self._state.legal_actions(player)]
        return (self.agents[self._state.current_player()],)

    def _draw_chance_events(self) -> None:
        while self._state.is_chance_node():
            self._state.apply_action(_drawn(self._state.chance_outcomes(), self._random.random()))


def _drawn(outcomes: Sequence[tuple[int, float]], number: float) -> int:
    """Return the outcome that a uniform random number in [0, 1) selects from (outcome, probability) pairs."""
    for outcome, probability in outcomes:
        number -= probability
        if number < 0:
            return outcome
    return outcomes[-1][0]  # the probabilities add up to less than 1 by rounding


class OpenSpielAdapter:
    """Ids with the prefix 'openspiel:'. Arguments are the parameters of the game."""

    def make_world(self, env_id: str, kwargs: Mapping[str, Any], render_mode: str | None = None) -> World:
        """Make one world. It can be saved."""
        if not is_importable("pyspiel"):
            raise ConfigError(
                f'{env_id} needs open_spiel, which is not installed: run pip install "offbeat[openspiel]"'
            )
        if render_mode is not None:
            raise ConfigError(f"{env_id} cannot be rendered: OpenSpiel draws no pictures. `offbeat eval` needs none")
        name = env_id.removeprefix(PREFIX)
        kind = next((each for each in _pyspiel().registered_games() if each.short_name == name), None)
        if kind is None:
            raise unknown("game", env_id, [PREFIX + each for each in _pyspiel().registered_names()], _LIST)
        if reason := _unsupported(kind):
            raise ConfigError(f"{env_id} {reason}, which is not supported. {_LIST}")
        _require_parameters(env_id, kind, kwargs)
        try:
            return OpenSpielWorld(_pyspiel().load_game(name, dict(kwargs)), kind)
        except _pyspiel().SpielError as error:
            raise ConfigError(f"{env_id} cannot be made with the parameters {dict(kwargs)}: {error}") from error

    def ids(self) -> list[str]:
        """Return the ids of all games that need no parameters; none if OpenSpiel is not installed."""
        if not is_importable("pyspiel"):
            return []
        kinds = [kind for kind in _pyspiel().registered_games() if kind.default_loadable and not _unsupported(kind)]
        return sorted(PREFIX + kind.short_name for kind in kinds)


ADAPTER = OpenSpielAdapter()

_LIST = "Run `offbeat list envs` for a list."


_WITHOUT_SHAPES = ("crossword",)
"""Games that claim to have observations in the form of arrays, but raise an error when they are asked for the shape."""


def _pyspiel() -> Any:
    return import_module("pyspiel")


def _unsupported(kind: Any) -> str:
    """Return what makes a type of game unsuitable; '' if it is supported."""
    if kind.dynamics == type(kind).Dynamics.MEAN_FIELD:
        return "is a mean field game"
    if kind.chance_mode == type(kind).ChanceMode.SAMPLED_STOCHASTIC:
        return "draws chance events from a random stream of its own, so that a seed would not repeat its games"
    if kind.short_name in _WITHOUT_SHAPES or not (
        kind.provides_information_state_tensor or kind.provides_observation_tensor
    ):
        return "has no observations in the form of arrays"
    return ""


def _require_parameters(env_id: str, kind: Any, kwargs: Mapping[str, Any]) -> None:
    """Raise ConfigError for a parameter that the game does not have."""
    names = sorted(kind.parameter_specification)
    for key in kwargs:
        if key not in names:
            listed = f"Its parameters are {', '.join(names)}" if names else "It has no parameters"
            raise ConfigError(f"{env_id} has no parameter {key!r}.{suggestion(key, names)} {listed}")
