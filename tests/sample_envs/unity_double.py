"""A stand-in for a Unity build and for ML-Agents' package: a game in another process, which is reached at a port.

`UnityParallelEnv` has what the class of this name in ML-Agents shows: agents with a new name in each episode, which the
game starts by itself, steps in which only some agents request a decision, and masks in which a set flag forbids.
`EarlyUnityParallelEnv` has the API of the releases up to 1.1.0. `as_package` returns either under ML-Agents' names.

The game has two strikers, with two choices, of which the second is forbidden in every third step, and a goalie with a
box action, who requests a decision in every second step. All get 1 a step. The strikers' episodes last 4 and 6 steps,
the goalie's is interrupted after 6. A reset reports the agents that it interrupts, too.
"""

from __future__ import annotations

import subprocess
import sys
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np

BASE_PORT = 15_005
STRIKER, GOALIE = "Striker?team=0", "Goalie?team=1"
LIVES = ((STRIKER, 4), (STRIKER, 6), (GOALIE, 6))


class UnityWorkerInUseException(Exception):
    """Another process has the port of this worker id."""


class UnityEnvironment:
    """Starts the game, and talks to it at the port of the worker id."""

    def __init__(self, file_name: str, worker_id: int = 0, *, no_graphics: bool = False) -> None:  # noqa: ARG002
        self.no_graphics = no_graphics
        port = BASE_PORT + worker_id
        try:
            self._listener = Listener(("localhost", port))
        except OSError as error:
            raise UnityWorkerInUseException(f"worker {worker_id}") from error
        self.worker_id = worker_id
        self.game = subprocess.Popen([sys.executable, str(Path(__file__)), str(port)])
        self._connection = self._listener.accept()

    def ask(self, actions: dict[str, Any] | None) -> Any:
        """Return what the game answers to actions, or to a reset."""
        self._connection.send(actions)
        return self._connection.recv()

    def close(self) -> None:
        if self.game.poll() is None:
            self._connection.send("close")
            self.game.wait()
        self._connection.close()
        self._listener.close()


class UnityParallelEnv:
    """The game in PettingZoo's API."""

    def __init__(self, env: UnityEnvironment) -> None:
        self.env = env

    def observation_space(self, agent: str) -> gym.Space[Any]:  # noqa: ARG002
        return gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def action_space(self, agent: str) -> gym.Space[Any]:
        return gym.spaces.Discrete(2) if agent.startswith(STRIKER) else gym.spaces.Box(-1, 1, (1,), np.float64)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        return self.env.ask(None)[0], {}

    def step(self, actions: dict[str, Any]) -> Any:
        return self.env.ask(actions)

    def close(self) -> None:
        self.env.close()


class EarlyUnityParallelEnv(UnityParallelEnv):
    """`reset` takes no arguments and returns no infos; `step` returns four values."""

    def reset(self) -> Any:  # type: ignore[override]
        return self.env.ask(None)[0]

    def step(self, actions: dict[str, Any]) -> Any:
        observations, rewards, terminations, truncations, infos = self.env.ask(actions)
        ends = {name: terminations[name] or truncations[name] for name in terminations}
        for name, ended in ends.items():
            if ended:
                infos[name]["interrupted"] = truncations[name]
        return observations, rewards, ends, infos


def as_package(env: type[UnityParallelEnv]) -> dict[str, ModuleType]:
    """Return modules with the names of ML-Agents' that have this stand-in."""
    members: dict[str, dict[str, Any]] = {
        "": {},
        ".environment": {"UnityEnvironment": UnityEnvironment},
        ".envs": {},
        ".envs.unity_parallel_env": {"UnityParallelEnv": env},
        ".exception": {"UnityWorkerInUseException": UnityWorkerInUseException},
    }
    modules = {}
    for name, content in members.items():
        modules[f"mlagents_envs{name}"] = module = ModuleType(f"mlagents_envs{name}")
        vars(module).update(content)
    return modules


# --- the game -----------------------------------------------------------------------------------------------


class Game:
    """The other side of the port."""

    def __init__(self) -> None:
        self.time, self.next_id = 0, 0
        self.agents: list[tuple[str, int, int]] = []

    def reset(self) -> Any:
        observations = {self._name(agent): self._array(agent) for agent in self.agents}
        self.agents = [self._started(place) for place in range(len(LIVES))]
        observations.update((self._name(agent), self._seen(agent)) for agent in self.agents)
        return observations, {}, {}, {}, {}

    def step(self, actions: dict[str, Any]) -> Any:
        if "Striker" in "".join(actions) and self.time % 3 == 0:
            assert all(action == 0 for name, action in actions.items() if name.startswith(STRIKER)), (
                "a forbidden action"
            )
        self.time += 1
        observations: dict[str, Any] = {}
        rewards: dict[str, float] = {}
        terminations: dict[str, bool] = {}
        truncations: dict[str, bool] = {}
        for place, agent in enumerate(self.agents):
            behaviour, life = LIVES[place]
            ended = self.time - agent[2] == life
            if not ended and behaviour == GOALIE and self.time % 2:
                continue
            name = self._name(agent)
            observations[name] = self._array(agent) if ended else self._seen(agent)
            rewards[name] = 1.0
            terminations[name], truncations[name] = ended and behaviour == STRIKER, ended and behaviour == GOALIE
            if ended:
                self.agents[place] = self._started(place)
                successor = self._name(self.agents[place])
                observations[successor] = self._seen(self.agents[place])
                rewards[successor], terminations[successor], truncations[successor] = 0.0, False, False
        infos = {name: {"group_reward": 0.5 if name.startswith(STRIKER) else 0.0} for name in observations}
        return observations, rewards, terminations, truncations, infos

    def _started(self, place: int) -> tuple[str, int, int]:
        self.next_id += 1
        return LIVES[place][0], self.next_id, self.time

    @staticmethod
    def _name(agent: tuple[str, int, int]) -> str:
        return f"{agent[0]}?agent_id={agent[1]}"

    def _array(self, agent: tuple[str, int, int]) -> Any:
        return np.array([self.time - agent[2], agent[1]], np.float32)

    def _seen(self, agent: tuple[str, int, int]) -> Any:
        if agent[0] == GOALIE:
            return self._array(agent)
        return {"observation": [self._array(agent)], "action_mask": [np.array([False, self.time % 3 == 0])]}


def play(connection: Connection) -> None:
    game = Game()
    while (actions := connection.recv()) != "close":
        connection.send(game.reset() if actions is None else game.step(actions))


if __name__ == "__main__":
    play(Client(("localhost", int(sys.argv[1]))))
