"""Envs of the tests' own: spaces that no installed env has, and envs that are broken on purpose."""

from __future__ import annotations

import sys
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
        self.place = self.place + self.np_random.normal(size=3) + effect(action)
        return self.observe(), float(self.place[0]), bool(self.np_random.random() < 0.1), False, {}

    def observe(self) -> Any:
        return self.place.astype(np.float32)


def effect(action: Any) -> float:
    """The mean of an action's parts, so that each of them shows in what follows."""
    if isinstance(action, dict | tuple):
        parts = action.values() if isinstance(action, dict) else action
        return sum(effect(part) for part in parts) / len(action)
    return float(np.mean(action))


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


class Payday(gym.Env[Any, Any]):
    """Pays 0.1 a step; an episode has 4,000 steps, over which sums in float32 lose four digits."""

    observation_space: gym.Space[Any] = spaces.Box(0, 1, (1,), np.float32)
    action_space: gym.Space[Any] = spaces.Discrete(2)
    length = 4_000

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.age = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Step:  # noqa: ARG002
        self.age += 1
        return np.zeros(1, np.float32), 0.1, self.age == self.length, False, {}


class ManyChoices(Wanderer):
    action_space = spaces.MultiDiscrete([2, 5, 3])


class ChoicesFromFive(Wanderer):
    action_space = spaces.Discrete(3, start=5)


class Unbounded(Wanderer):
    action_space = spaces.Box(
        np.array([-np.inf, 0, -2], np.float32), np.array([np.inf, np.inf, 1], np.float32), dtype=np.float32
    )


class TreeObservations(Wanderer):
    """Every kind of space, nested."""

    observation_space = spaces.Dict(
        {
            "card": spaces.Discrete(5, start=-2),
            "place": spaces.Box(-np.inf, np.inf, (3,), np.float32),
            "table": spaces.Tuple(
                (
                    spaces.MultiDiscrete(np.array([[3, 300], [4, 2]]), start=np.array([[1, 0], [0, 7]])),
                    spaces.Dict({"lamps": spaces.MultiBinary((2, 2)), "height": spaces.Box(-np.inf, np.inf, ())}),
                )
            ),
        }
    )

    def observe(self) -> Any:
        far = int(abs(self.place[0] * 10))
        dice = np.array([[far % 3 + 1, far % 300], [far % 4, far % 2 + 7]])
        lamps = (self.place[:2, None] > np.array([-1, 1])).astype(np.int8)
        return {
            "card": np.int64(far % 5 - 2),
            "place": self.place.astype(np.float32),
            "table": (dice, {"lamps": lamps, "height": np.float32(self.place[2])}),
        }


class TupleObservations(Wanderer):
    observation_space = spaces.Tuple((spaces.Discrete(2), spaces.Box(-np.inf, np.inf, (3,), np.float32)))

    def observe(self) -> Any:
        return int(self.place[0] > 0), self.place.astype(np.float32)


class Switches(Wanderer):
    action_space = spaces.MultiBinary((2, 2))

    def step(self, action: Any) -> Step:
        assert action.dtype == np.int8
        return super().step(action)


class TableOfChoices(Wanderer):
    action_space = spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[0, 1], [0, 0]]))


class DictActions(Wanderer):
    action_space = spaces.Dict(
        {
            "aim": spaces.Box(-2, 1, (2,), np.float32),
            "gear": spaces.Discrete(3, start=1),
            "tools": spaces.Tuple((spaces.MultiBinary(2), spaces.Box(0, np.inf, (1, 2), np.float64))),
        }
    )


class TupleActions(Wanderer):
    action_space = spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([3, 4])))


# --- which say what is allowed -------------------------------------------------------------------------------


class Masked(Wanderer):
    """What is allowed changes in each step; an episode's last state, from which nothing is done, allows nothing."""

    action_space: gym.Space[Any] = spaces.Discrete(4)
    nvec: tuple[int, ...] = (4,)
    observation_space: gym.Space[Any] = spaces.Dict(
        {"action_mask": spaces.Box(0, 1, (4,), np.int8), "place": spaces.Box(-np.inf, np.inf, (3,), np.float32)}
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.ended = False
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Step:
        chosen, firsts = self.chosen(action), np.cumsum((0, *self.nvec[:-1]))
        assert self.allowed[firsts + chosen].all(), f"{action} is not among {self.allowed}"
        observation, reward, self.ended, _, info = super().step(action)
        return self.last(observation), reward, self.ended, False, info

    def chosen(self, action: Any) -> Any:
        """The choices in an action, counted from 0."""
        return np.reshape(action, -1)

    def observe(self) -> Any:
        self.allowed = np.concatenate([self._some(count) for count in self.nvec])
        return {"action_mask": self.allowed, "place": self.place.astype(np.float32)}

    def last(self, observation: Any) -> Any:
        return {**observation, "action_mask": np.zeros_like(self.allowed)} if self.ended else observation

    def _some(self, count: int) -> Any:
        flags = (self.np_random.random(count) < 0.4).astype(np.int8)
        flags[self.np_random.integers(count)] = 1
        return flags


class MaskInInfo(Masked):
    """Of two components; the info of an episode's last step has none."""

    action_space = spaces.MultiDiscrete([2, 3], start=[0, 4])
    observation_space = Wanderer.observation_space
    nvec = (2, 3)

    def reset(self, **arguments: Any) -> Any:
        observation, _ = super().reset(**arguments)
        return observation, {"action_mask": self.allowed.astype(np.bool_)}

    def step(self, action: Any) -> Step:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {} if terminated else {"action_mask": self.allowed}

    def chosen(self, action: Any) -> Any:
        return action - [0, 4]

    def observe(self) -> Any:
        return super().observe()["place"]

    def last(self, observation: Any) -> Any:
        return observation


class MaskOfAMethod(Masked):
    """As sb3-contrib reads it; there is none after an episode's last step."""

    observation_space = Wanderer.observation_space

    def action_masks(self) -> Any:
        assert not self.ended
        return self.allowed.astype(np.bool_)

    def observe(self) -> Any:
        return super().observe()["place"]

    def last(self, observation: Any) -> Any:
        return observation


class MaskedTree(Masked):
    """Choices of a tree, the first beside a box."""

    action_space = spaces.Dict(
        {
            "aim": spaces.Box(-2, 1, (2,), np.float32),
            "gear": spaces.Discrete(3, start=1),
            "tools": spaces.Tuple((spaces.MultiBinary(2), spaces.Discrete(4))),
        }
    )
    nvec = (3, 2, 2, 4)
    observation_space = spaces.Dict(
        {"action_mask": spaces.MultiBinary(11), "place": spaces.Box(-np.inf, np.inf, (3,), np.float32)}
    )

    def chosen(self, action: Any) -> Any:
        return np.array([action["gear"] - 1, *action["tools"][0], action["tools"][1]])


class TreesVector(gym.vector.VectorEnv[Any, Any, Any]):
    """A vector env of trees with masks in its infos, as Gymnasium batches them. Episodes last 5 steps."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = spaces.Dict(
            {"card": spaces.Discrete(4, start=1), "place": spaces.Box(-np.inf, np.inf, (3,), np.float32)}
        )
        self.single_action_space = spaces.Dict(
            {"gear": spaces.Discrete(3, start=1), "push": spaces.Box(-2, 2, (2,), np.float32)}
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.age = np.zeros(self.num_envs, np.int64)
        return self._observe()

    def step(self, actions: Any) -> Any:
        assert self.action_space.contains(actions), f"{actions} is not in {self.action_space}"
        goes_on = self.age < 5
        allowed = self.allowed[np.arange(self.num_envs), actions["gear"] - 1]
        assert allowed[goes_on].all()
        self.age = np.where(goes_on, self.age + 1, 0)
        rewards = np.where(goes_on, actions["push"].mean(axis=1), 0)
        observation, info = self._observe()
        return observation, rewards, self.age == 5, np.zeros(self.num_envs, np.bool_), info

    def _observe(self) -> Any:
        numbers = self.np_random.normal(size=(self.num_envs, 3)).astype(np.float32)
        self.allowed = self.np_random.random((self.num_envs, 3)) < 0.5
        self.allowed[:, 1] |= ~self.allowed.any(axis=1)
        info = {"action_mask": self.allowed, "_action_mask": self.age < 5}  # of the others, it says nothing
        return {"card": (numbers[:, 0] > 0) + 1, "place": numbers}, info


class OwnSnapshots(Wanderer):
    def snapshot(self) -> dict[str, Any]:
        return {"place": self.place.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        self.place = state["place"].copy()


class OwnGenerator(OwnSnapshots):
    """Has another kind of generator than Gymnasium makes."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.np_random = np.random.Generator(np.random.MT19937(seed))
        return super().reset(options=options)


# --- broken on purpose --------------------------------------------------------------------------------------


class SavesASet(OwnSnapshots):
    def snapshot(self) -> dict[str, Any]:
        return super().snapshot() | {"seen": {1, 2}}


class SavesAThird(OwnSnapshots):
    """Of the three coordinates only the first is saved."""

    def restore(self, state: dict[str, Any]) -> None:
        self.place = np.append(state["place"][:1], [0.0, 0.0])


class SavesNothing(OwnSnapshots):
    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


class NeedsAReset(OwnSnapshots):
    def restore(self, state: dict[str, Any]) -> None:
        self.place[:] = state["place"]


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


class SharesAGenerator(Wanderer):
    """Seeds a generator of its class, as envs do that seed `np.random`."""

    shared = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            SharesAGenerator.shared = np.random.default_rng(seed)
        return super().reset(seed=seed, options=options)

    def observe(self) -> Any:
        return self.shared.normal(size=3).astype(np.float32)


class ReseedsItself(Wanderer):
    """Without a seed it makes a new generator, as the envs of panda-gym do."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._np_random = np.random.default_rng(seed)
        return super().reset(options=options)


class SeedIgnored(Wanderer):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=None if seed is None else 1, options=options)


class ArrayReward(Wanderer):
    def step(self, action: Any) -> Step:
        observation, reward, *rest = super().step(action)
        return (observation, np.array([reward]), *rest)


class TextReward(Wanderer):
    def step(self, action: Any) -> Step:
        observation, reward, *rest = super().step(action)
        return (observation, str(reward), *rest)


class NumberedEnds(Wanderer):
    def step(self, action: Any) -> Step:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, None, info


class OldReset(Wanderer):
    def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)[0]


class ResetWithoutSeed(Wanderer):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


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


class Exits(Wanderer):
    def step(self, action: Any) -> Step:  # noqa: ARG002
        sys.exit(0)


class FailsToClose(Wanderer):
    def close(self) -> None:
        raise RuntimeError("the window is gone")


class OneAtATime(Wanderer):
    """All of them share one simulation: a reset of one ends the episode of another."""

    owner: OneAtATime | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        OneAtATime.owner = self
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Step:
        if OneAtATime.owner is not self:
            raise IndexError("there is no such aircraft")
        return super().step(action)


class CannotBeMade(Wanderer):
    def __init__(self) -> None:
        raise FileNotFoundError("level.json")


class TextObservations(Wanderer):
    observation_space = spaces.Text(10)


class TextActions(Wanderer):
    action_space = spaces.Dict({"word": spaces.Text(10)})


class WrongKeys(TreeObservations):
    def observe(self) -> Any:
        return {name: part for name, part in super().observe().items() if name != "card"}


class WrongInnerTuple(TreeObservations):
    def observe(self) -> Any:
        return {**super().observe(), "table": super().observe()["table"][:1]}


class NoSuchChoice(TreeObservations):
    def observe(self) -> Any:
        return {**super().observe(), "card": 3}


class HalfAChoice(TreeObservations):
    def observe(self) -> Any:
        return {**super().observe(), "card": 0.5}


class NothingAllowed(Masked):
    def observe(self) -> Any:
        self.allowed = np.zeros(4, np.int8)
        return {**super().observe(), "action_mask": np.zeros(4, np.int8)}


class MaskVanishes(MaskInInfo):
    def step(self, action: Any) -> Step:
        return (*super().step(action)[:4], {})


class MaskTooShort(MaskInInfo):
    def step(self, action: Any) -> Step:
        *row, info = super().step(action)
        return (*row, {name: mask[:-1] for name, mask in info.items()})


class TupleOfMasks(MaskInInfo):
    def reset(self, **arguments: Any) -> Any:
        observation, info = super().reset(**arguments)
        return observation, {"action_mask": tuple(np.split(info["action_mask"], [2]))}


class MaskOfAnotherSize(Masked):
    action_space = spaces.Discrete(3)


class MaskOfABox(Masked):
    action_space = spaces.Box(-1, 1, (4,), np.float32)


class TwoOfOneName(Wanderer):
    observation_space = spaces.Dict(
        {"a": spaces.Dict({"b": spaces.Discrete(2)}), "a/b": spaces.Discrete(2), "c": spaces.Discrete(2)}
    )


class OnlyAMask(Masked):
    observation_space = spaces.Dict({"action_mask": spaces.MultiBinary(4)})


class SameStepVector(gym.vector.VectorEnv[Any, Any, Any]):
    """A vector env whose resets swallow the final observation."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = Wanderer.observation_space
        self.single_action_space = Wanderer.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)


TREES = (TreeObservations, TupleObservations, Switches, TableOfChoices, DictActions, TupleActions)
MASKED = (Masked, MaskInInfo, MaskOfAMethod, MaskedTree)
SOUND = (
    Wanderer,
    DictObservations,
    ManyChoices,
    ChoicesFromFive,
    Unbounded,
    OwnSnapshots,
    OwnGenerator,
    *TREES,
    *MASKED,
)
BROKEN = (
    *(
        LateNaN,
        NaNReward,
        WrongShape,
        WrongDtype,
        OutOfBounds,
        Unseeded,
        SharesAGenerator,
        ReseedsItself,
        SeedIgnored,
        ArrayReward,
        TextReward,
        NumberedEnds,
    ),
    *(SavesASet, SavesAThird, SavesNothing, NeedsAReset),
    *(OldReset, ResetWithoutSeed, OldStep, NeverEnds, Raises, Exits, FailsToClose),
    *(OneAtATime, CannotBeMade, TextObservations, TextActions),
    *(WrongKeys, WrongInnerTuple, NoSuchChoice, HalfAChoice),
    *(NothingAllowed, MaskVanishes, MaskTooShort, TupleOfMasks, MaskOfAnotherSize, MaskOfABox, TwoOfOneName, OnlyAMask),
)


def zoo_id(kind: type) -> str:
    return f"zoo/{kind.__name__}-v0"


def _register() -> None:
    kinds: dict[str, Any] = {zoo_id(kind): kind for kind in (*SOUND, *BROKEN, Payday)}
    for env_id, kind in kinds.items():
        gym.register(env_id, kind)
    single: Any = Wanderer
    trees: Any = TreesVector
    gym.register("zoo/TreesVector-v0", vector_entry_point=trees)
    vector: Any = SameStepVector
    gym.register("zoo/SameStepOnly-v0", vector_entry_point=vector)
    gym.register("zoo/SameStepToo-v0", single, vector_entry_point=vector)
    gym.register("zoo/Limited-v0", kinds[zoo_id(NeverEnds)], max_episode_steps=7)


if "zoo/Limited-v0" not in gym.registry:
    _register()
