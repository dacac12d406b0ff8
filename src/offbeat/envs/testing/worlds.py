"""Worlds for tests and examples: small envs with several agents, in PettingZoo's APIs, which they do not import.

`CartPoles` has agents that end in different steps, `Cameras` too, with images. `LateArrivals` has agents that appear
late, `MixedSpaces` agents with different spaces. All have snapshots. `games.py` has games with known optimal play.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

from offbeat.core.seeding import derive_seed
from offbeat.envs.adapters.gymnasium import snapshots
from offbeat.envs.contract import State
from offbeat.envs.testing.correct_action import require_argument_at_least
from offbeat.envs.testing.pixels import PixelsMotion

Observations = dict[str, Any]
Infos = dict[str, dict[str, Any]]
ParallelStep = tuple[Observations, dict[str, float], dict[str, bool], dict[str, bool], Infos]


class SmallWorld:
    """The parts that the worlds share: names and spaces of their agents, and their random numbers."""

    metadata: Mapping[str, Any] = {"render_modes": []}

    def __init__(self, spaces: Mapping[str, tuple[gym.Space[Any], gym.Space[Any]]]) -> None:
        """`spaces` has the observation space and the action space of each possible agent."""
        self.possible_agents = list(spaces)
        self.agents: list[str] = []
        self.np_random = np.random.default_rng(0)
        self._spaces = dict(spaces)

    def observation_space(self, agent: str) -> gym.Space[Any]:
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> gym.Space[Any]:
        return self._spaces[agent][1]

    def close(self) -> None:
        """Do nothing: the worlds hold nothing but memory."""

    def _start(self, seed: int | None, agents: Iterable[str]) -> None:
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self.agents = list(agents)


def _empty_infos(agents: Iterable[str]) -> Infos:
    return {agent: {} for agent in agents}


# --- agents that end in different steps ---------------------------------------------------------------------


class SingleEnvs(SmallWorld):
    """Independent single envs, one for each agent. The episode of each ends by itself, with a termination.

    A reset with a seed resets env i with the seed `cart_seed(seed, i)`. A reset without one continues the random
    streams of all envs.
    """

    def __init__(self, envs: Mapping[str, gym.Env[Any, Any]], max_steps: int) -> None:
        """`envs` has the env of each agent; `max_steps`: steps after which the agents that are left are truncated."""
        require_argument_at_least("max_steps", max_steps, 1)
        super().__init__({name: (env.observation_space, env.action_space) for name, env in envs.items()})
        self._envs, self._max_steps, self._steps = dict(envs), max_steps, 0

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Observations, Infos]:  # noqa: ARG002
        self._start(seed, self._envs)
        self._steps = 0
        observations = {
            name: env.reset(seed=None if seed is None else cart_seed(seed, index))[0]
            for index, (name, env) in enumerate(self._envs.items())
        }
        return observations, _empty_infos(self.agents)

    def step(self, actions: Mapping[str, Any]) -> ParallelStep:
        self._steps += 1
        late = self._steps >= self._max_steps
        observations: Observations = {}
        rewards: dict[str, float] = {}
        terminations: dict[str, bool] = {}
        truncations: dict[str, bool] = {}
        infos: Infos = {}
        for name in self.agents:
            env = self._envs[name]
            observations[name], reward, terminations[name], _, infos[name] = env.step(actions[name])
            rewards[name] = float(reward)
            truncations[name] = late
        self.agents = [] if late else [name for name in self.agents if not terminations[name]]
        return observations, rewards, terminations, truncations, infos

    def snapshot(self) -> State:
        alive = [name in self.agents for name in self._envs]
        carts = {name: snapshots.save(env) for name, env in self._envs.items()}
        return {"alive": np.array(alive), "steps": self._steps, "carts": carts}

    def restore(self, state: State) -> None:
        self.agents = [name for name, alive in zip(self._envs, state["alive"], strict=True) if alive]
        self._steps = state["steps"]
        for name, env in self._envs.items():
            snapshots.load(env, state["carts"][name])


def cart_seed(seed: int, index: int) -> int:
    """Return the seed of one env of `SingleEnvs`: the env with it alone has the same episodes."""
    return derive_seed(seed, "cart", index)


class CartPoles(SingleEnvs):
    """Several independent carts of Gymnasium's CartPole: agents cart_0, cart_1, ...

    Args:
        carts: Number of carts.
        max_steps: Steps after which the carts that are left are truncated.
    """

    def __init__(self, carts: int = 3, max_steps: int = 500) -> None:
        require_argument_at_least("carts", carts, 1)
        super().__init__({f"cart_{index}": CartPoleEnv() for index in range(carts)}, max_steps)


class Cameras(SingleEnvs):
    """Several independent envs with images, `PixelsMotion`: agents camera_0, camera_1, ... Camera i acts 4 + 2 i times.

    The best return of camera i is 3 + 2 i.

    Args:
        cameras: Number of agents.
        size: Height and width of the images in pixels.
    """

    def __init__(self, cameras: int = 2, size: int = 36) -> None:
        require_argument_at_least("cameras", cameras, 1)
        envs = {f"camera_{index}": PixelsMotion(length=3 + 2 * index, size=size) for index in range(cameras)}
        super().__init__(envs, max_steps=4 + 2 * cameras)


# --- agents that appear late --------------------------------------------------------------------------------


class LateArrivals(SmallWorld):
    """Agent i appears after i * `every` steps and acts `life` times. Action 1 has the reward 1, action 0 the reward 0.

    An observation has the number of the agent's past actions, divided by `life`, and noise in [0, 1). Even agents end
    with a termination, odd ones with a truncation. The best return of each agent is `life`.

    Args:
        count: Number of agents: agent_0, agent_1, ...
        every: Steps between two arrivals.
        life: Actions of each agent; more than `every`, so that there is always one left until the last has ended.

    Raises:
        ConfigError: a number is too small.
    """

    def __init__(self, count: int = 3, every: int = 2, life: int = 5) -> None:
        require_argument_at_least("count", count, 1)
        require_argument_at_least("every", every, 1)
        require_argument_at_least("life", life, every + 1)
        spaces = (gym.spaces.Box(0, 1, (2,), np.float32), gym.spaces.Discrete(2))
        super().__init__({f"agent_{index}": spaces for index in range(count)})
        self._arrivals = {name: index * every for index, name in enumerate(self.possible_agents)}
        self._life, self._time = life, 0

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Observations, Infos]:  # noqa: ARG002
        self._time = 0
        self._start(seed, self._present())
        return self._observe(self.agents), _empty_infos(self.agents)

    def step(self, actions: Mapping[str, Any]) -> ParallelStep:
        rewards = {name: float(actions[name]) for name in self.agents}
        self._time += 1
        ended = [name for name in self.agents if self._time - self._arrivals[name] == self._life]
        terminations = {name: name in ended and self._is_even(name) for name in self.agents}
        truncations = {name: name in ended and not self._is_even(name) for name in self.agents}
        seen = self.agents + [name for name in self._present() if name not in self.agents]
        self.agents = self._present()
        return self._observe(seen), rewards, terminations, truncations, _empty_infos(seen)

    def _present(self) -> list[str]:
        return [name for name, arrival in self._arrivals.items() if 0 <= self._time - arrival < self._life]

    def _is_even(self, name: str) -> bool:
        return self.possible_agents.index(name) % 2 == 0

    def _observe(self, agents: Iterable[str]) -> Observations:
        ages = {name: (self._time - self._arrivals[name]) / self._life for name in agents}
        return {name: np.array([age, self.np_random.random()], np.float32) for name, age in ages.items()}

    def snapshot(self) -> State:
        return {"time": self._time}

    def restore(self, state: State) -> None:
        self._time = state["time"]
        self.agents = self._present()


# --- agents with different spaces ---------------------------------------------------------------------------


class MixedSpaces(SmallWorld):
    """Three agents with different spaces; each sees a number and must act on it. All end after `length` steps.

    - scout: one-hot number in {0, 1}; the action that equals it has the reward 1, the other 0.
    - driver: a number in [-1, 1]; a box action, whose distance to the number is subtracted from the reward.
    - gunner: a Dict of a one-hot number in {0, 1, 2} and a mask that forbids one other action; as the scout's reward.

    The best returns are `length`, 0 and `length`.
    """

    def __init__(self, length: int = 8) -> None:
        require_argument_at_least("length", length, 1)
        gunner = {"observation": gym.spaces.Box(0, 1, (3,), np.float32), "action_mask": gym.spaces.MultiBinary(3)}
        super().__init__(
            {
                "scout": (gym.spaces.Box(0, 1, (2,), np.float32), gym.spaces.Discrete(2)),
                "driver": (gym.spaces.Box(-1, 1, (1,), np.float32), gym.spaces.Box(-1, 1, (1,), np.float32)),
                "gunner": (gym.spaces.Dict(gunner), gym.spaces.Discrete(3)),
            }
        )
        self._length, self._time = length, 0
        self._numbers = {"scout": 0.0, "driver": 0.0, "gunner": 0.0, "forbidden": 0.0}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Observations, Infos]:  # noqa: ARG002
        self._start(seed, self.possible_agents)
        self._time = 0
        return self._next_observations(), _empty_infos(self.agents)

    def step(self, actions: Mapping[str, Any]) -> ParallelStep:
        """Score the actions.

        Raises:
            ValueError: the gunner's action is the forbidden one.
        """
        numbers = self._numbers
        if int(actions["gunner"]) == numbers["forbidden"]:
            raise ValueError(f"the gunner took action {int(actions['gunner'])}, which its mask forbids")
        rewards = {
            "scout": float(int(actions["scout"]) == numbers["scout"]),
            "driver": -abs(float(np.asarray(actions["driver"]).item()) - numbers["driver"]),
            "gunner": float(int(actions["gunner"]) == numbers["gunner"]),
        }
        self._time += 1
        over = self._time == self._length
        names, self.agents = self.possible_agents, [] if over else list(self.possible_agents)
        ends, none = dict.fromkeys(names, over), dict.fromkeys(names, False)
        return self._next_observations(), rewards, ends, none, _empty_infos(names)

    def _next_observations(self) -> Observations:
        scout, gunner, shift = (int(number) for number in self.np_random.integers((2, 3, 2)))
        driver, forbidden = float(self.np_random.uniform(-1, 1)), (gunner + 1 + shift) % 3
        self._numbers = {"scout": scout, "driver": driver, "gunner": gunner, "forbidden": forbidden}
        return {
            "scout": np.eye(2, dtype=np.float32)[scout],
            "driver": np.array([driver], np.float32),
            "gunner": {
                "observation": np.eye(3, dtype=np.float32)[gunner],
                "action_mask": np.arange(3, dtype=np.int8) != forbidden,
            },
        }

    def snapshot(self) -> State:
        return {"time": self._time, "over": not self.agents, "numbers": dict(self._numbers)}

    def restore(self, state: State) -> None:
        self._time, self._numbers = state["time"], dict(state["numbers"])
        self.agents = [] if state["over"] else list(self.possible_agents)
