"""Envs of the tests' own: spaces that no installed env has, and envs that are broken on purpose."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

Step = tuple[Any, Any, Any, Any, Any]


class Wanderer(gym.Env[Any, Any]):
    """A random walk from the env's own stream; an episode ends with one chance in ten."""

    observation_space: gym.Space[Any] = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space: gym.Space[Any] = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.place = self.np_random.normal(size=3)
        return self.observe(), {}

    def step(self, action: Any) -> Step:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.place = self.place + self.np_random.normal(size=3) + np.mean(action)
        return self.observe(), float(self.place[0]), bool(self.np_random.random() < 0.1), False, {}

    def observe(self) -> Any:
        return self.place.astype(np.float32)


def make_wanderer(**_arguments: Any) -> Wanderer:
    """An entry point that is a function."""
    return Wanderer()


class DictObservations(Wanderer):
    observation_space = spaces.Dict(
        {
            "place": spaces.Box(-np.inf, np.inf, (3,), np.float64),
            "image": spaces.Box(0, 255, (2, 2, 1), np.uint8),
            "height": spaces.Box(-np.inf, np.inf, (), np.float32),
        }
    )

    def observe(self) -> Any:
        pixels = np.abs(self.place[0] * 40) % 256
        return {
            "place": self.place.copy(),
            "image": np.full((2, 2, 1), pixels, np.uint8),
            "height": np.float32(self.place[2]),
        }


class ManyChoices(Wanderer):
    action_space = spaces.MultiDiscrete([2, 5, 3])


class ChoicesFromFive(Wanderer):
    action_space = spaces.Discrete(3, start=5)


class Unbounded(Wanderer):
    action_space = spaces.Box(
        np.array([-np.inf, 0, -2], np.float32), np.array([np.inf, np.inf, 1], np.float32), dtype=np.float32
    )


class OwnSnapshots(Wanderer):
    def snapshot(self) -> dict[str, Any]:
        return {"place": self.place.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        self.place = state["place"].copy()


# --- broken on purpose --------------------------------------------------------------------------------------


class LateNaN(Wanderer):
    """The observation goes bad in the third step of an episode."""

    def reset(self, **arguments: Any) -> Any:
        self.steps = 0
        return super().reset(**arguments)

    def step(self, action: Any) -> Step:
        self.steps += 1
        observation, *rest = super().step(action)
        return (observation * np.nan if self.steps == 3 else observation, *rest)


class NaNReward(Wanderer):
    def step(self, action: Any) -> Step:
        observation, _, *rest = super().step(action)
        return (observation, np.nan, *rest)


class WrongShape(Wanderer):
    def observe(self) -> Any:
        return self.place[:1].astype(np.float32)


class WrongDtype(Wanderer):
    observation_space = spaces.Box(0, 255, (3,), np.uint8)

    def observe(self) -> Any:
        return np.abs(self.place % 255).astype(np.float32)


class OutOfBounds(Wanderer):
    observation_space = spaces.Box(-0.01, 0.01, (3,), np.float32)


class Unseeded(Wanderer):
    def observe(self) -> Any:
        return np.random.default_rng().normal(size=3).astype(np.float32)


class SeedIgnored(Wanderer):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=None if seed is None else 1, options=options)


class ArrayReward(Wanderer):
    def step(self, action: Any) -> Step:
        observation, reward, *rest = super().step(action)
        return (observation, np.array([reward]), *rest)


class NumberedEnds(Wanderer):
    def step(self, action: Any) -> Step:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, None, info


class OldReset(Wanderer):
    def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)[0]


class OldStep(Wanderer):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class NeverEnds(Wanderer):
    def step(self, action: Any) -> Step:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, False, truncated, info


class Raises(Wanderer):
    def step(self, action: Any) -> Step:  # noqa: ARG002
        raise ZeroDivisionError("the cart has no mass")


class CannotBeMade(Wanderer):
    def __init__(self) -> None:
        raise FileNotFoundError("level.json")


class TextObservations(Wanderer):
    observation_space = spaces.Text(10)


class DictActions(Wanderer):
    action_space = spaces.Dict({"left": spaces.Discrete(2)})


class SameStepVector(gym.vector.VectorEnv[Any, Any, Any]):
    """A vector env whose resets swallow the final observation."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = Wanderer.observation_space
        self.single_action_space = Wanderer.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)


SOUND = (Wanderer, DictObservations, ManyChoices, ChoicesFromFive, Unbounded, OwnSnapshots)
BROKEN = (
    *(
        LateNaN,
        NaNReward,
        WrongShape,
        WrongDtype,
        OutOfBounds,
        Unseeded,
        SeedIgnored,
        ArrayReward,
        NumberedEnds,
    ),
    *(OldReset, OldStep, NeverEnds, Raises, CannotBeMade, TextObservations, DictActions),
)


def zoo_id(kind: type) -> str:
    return f"zoo/{kind.__name__}-v0"


def _register() -> None:
    kinds: dict[str, Any] = {zoo_id(kind): kind for kind in (*SOUND, *BROKEN)}
    for env_id, kind in kinds.items():
        gym.register(env_id, kind)
    single: Any = Wanderer
    vector: Any = SameStepVector
    gym.register("zoo/SameStepOnly-v0", vector_entry_point=vector)
    gym.register("zoo/SameStepToo-v0", single, vector_entry_point=vector)
    gym.register("zoo/Limited-v0", kinds[zoo_id(NeverEnds)], max_episode_steps=7)


if "zoo/Limited-v0" not in gym.registry:
    _register()
