"""Masks on their way from envs: read, respected by random actions, and missed where they are missing."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.envs.registration import EnvSpec
from tests.sample_envs.curious_envs import Waiting
from tests.sample_envs.env_zoo import MASKED, Masked, zoo_id
from tests.support.env_rows import stacked

from offbeat.config.env import EnvConfig
from offbeat.core.choices import allows_each
from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.core.frozen_table import PlainTable
from offbeat.core.seeding import stream
from offbeat.core.types import Tree
from offbeat.envs.actions import random_actions
from offbeat.envs.adapters.gymnasium.mask_method import with_masks_in_infos
from offbeat.envs.checking.check import check_env
from offbeat.envs.checking.preflight import preflight
from offbeat.envs.contract import Envs
from offbeat.envs.make import make_envs
from offbeat.envs.rows import named

COLUMNS = 4
ALL = [*map(zoo_id, MASKED), "zoo/TreesVector-v0", "Taxi-v4"]
every_env = pytest.mark.parametrize("env_id", ALL)


def made(env_id: str, groups: int = 1) -> Envs:
    mask = preflight(env_id).mask
    return make_envs(env_id, COLUMNS, seed=3, groups=groups, info_mask=mask == "action_mask")


def played(envs: Envs, steps: int) -> Tree:
    """Step with random allowed actions; return what `recv` said, name -> [steps, N, ...]."""
    random, observation, rows = stream(0, "test"), envs.reset(), []
    for _ in range(steps):
        assert envs.spec.mask is not None
        for group, columns in enumerate(envs.groups):
            mask = observation[envs.spec.mask][columns]
            envs.send(random_actions(envs.spec.action, len(mask), random, mask), group)
        outcomes = [{name: part.copy() for name, part in named(envs.recv(i)).items()} for i in range(len(envs.groups))]
        rows.append({name: np.concatenate([outcome[name] for outcome in outcomes]) for name in outcomes[0]})
        observation = rows[-1]
    return stacked(rows)


@pytest.mark.parametrize(
    ("env_id", "name", "size"),
    [
        ("zoo/Masked-v0", "observation/action_mask", 4),
        ("zoo/MaskInInfo-v0", "action_mask", 5),
        ("zoo/MaskOfAMethod-v0", "action_mask", 4),
        ("zoo/MaskedTree-v0", "observation/action_mask", 11),
        ("zoo/TreesVector-v0", "action_mask", 3),
        ("Taxi-v4", "action_mask", 6),
    ],
)
def test_preflight_finds_the_mask_of_an_env(env_id: str, name: str, size: int) -> None:
    spec = preflight(env_id)
    assert spec.mask == name
    [leaf] = [leaf for leaf in spec.observation if leaf.name == name]
    assert (leaf.shape, leaf.dtype, leaf.inputs) == ((size,), "bool", 0)
    assert sum(spec.action.nvec) == size


def test_infos_without_a_mask_add_no_mask_leaf() -> None:
    assert preflight("zoo/ManyChoices-v0").mask is None


class WaitsFirst(Waiting):
    """Has a mask where it decides only, first in its second step; a choice that it does not allow is refused."""

    def step(self, action: Any) -> Any:
        if self.age % 2 and action == 1:
            raise ValueError("choice 1 is not allowed")
        return super().step(action)

    def info(self) -> dict[str, Any]:
        return {"no_decision": False, "action_mask": np.array([1, 0])} if self.age % 2 else {"no_decision": True}


class NoMaskAtFirst(Waiting):
    """Has a mask after each step, but not after a reset."""

    def info(self) -> dict[str, Any]:
        return {"action_mask": np.ones(2)} if self.age else {}


def registered_as(name: str, kind: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(gym.registry, f"curious/{name}-v0", EnvSpec(f"curious/{name}-v0", kind))
    return f"curious/{name}-v0"


def test_preflight_finds_the_mask_of_a_first_decision_after_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    env_id = registered_as("WaitsFirst", WaitsFirst, monkeypatch)
    assert preflight(env_id).mask == "action_mask"


def test_check_reads_the_mask_of_a_first_decision_after_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_env(registered_as("WaitsFirst", WaitsFirst, monkeypatch), steps=50) == []


def test_a_mask_that_is_missing_at_the_first_decision_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    env_id = registered_as("NoMaskAtFirst", NoMaskAtFirst, monkeypatch)
    with pytest.raises(ConfigError, match="masks are not read: give it in the info of reset and of each step"):
        preflight(env_id)
    [finding] = check_env(env_id, steps=50)
    assert "masks are not read" in finding.problem


@every_env
def test_every_row_allows_an_action_and_envs_receive_only_allowed_ones(env_id: str) -> None:
    envs = made(env_id, groups=2)
    rows = played(envs, 100)  # the envs themselves refuse what is not allowed
    assert envs.spec.mask is not None
    mask = rows[envs.spec.mask]
    assert mask.dtype == np.bool_
    assert allows_each(mask.reshape(-1, mask.shape[-1]), envs.spec.action.nvec).all()
    assert not mask.all()


@pytest.mark.parametrize("env_id", [env_id for env_id in ALL if env_id != "Taxi-v4"])
def test_a_terminated_row_without_a_mask_allows_every_action(env_id: str) -> None:
    require_all_allowed_where(env_id, "terminated")


class Truncated(Masked):
    """Each of its episodes is truncated, and its last state allows nothing."""

    def step(self, action: Any) -> Any:
        observation, reward, ended, _, info = super().step(action)
        return observation, reward, False, ended, info


def test_a_truncated_row_without_a_mask_allows_every_action(monkeypatch: pytest.MonkeyPatch) -> None:
    require_all_allowed_where(registered_as("Truncated", Truncated, monkeypatch), "truncated")


def require_all_allowed_where(env_id: str, flag: str) -> None:
    envs = made(env_id)
    rows = played(envs, 100)
    assert envs.spec.mask is not None
    assert rows[flag].any()
    assert rows[envs.spec.mask][rows[flag]].all()


@every_env
def test_advance_takes_only_allowed_actions(env_id: str) -> None:
    envs = made(env_id)
    envs.reset()
    advanced = envs.advance(np.array([0, 17, 3, 60]), stream(0, "advance"))  # they refuse anything else
    assert envs.spec.mask is not None
    assert allows_each(advanced.observation[envs.spec.mask], envs.spec.action.nvec).all()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("NothingAllowed", "observation/action_mask is 0 for all choices of an action: allow at least one choice"),
        ("MaskVanishes", "action_mask is 0 for all choices of an action, or missing in the info"),
        ("MaskTooShort", r"\w\(\) returned an action_mask of int8 and shape \(4,\) where \(5,\)"),
        ("TupleOfMasks", "a tuple where one flat array of flags is expected: concatenate it"),
    ],
)
def test_an_env_with_an_invalid_mask_is_reported_with_its_column(name: str, says: str) -> None:
    envs = make_envs(f"zoo/{name}-v0", 2, seed=0, info_mask=name != "NothingAllowed")
    with pytest.raises(EnvFailed, match=f"zoo/{name}-v0, env [01]: .*{says}"):
        played(envs, 20)


class WrongValues(gym.Env[Any, Any]):
    """Returns wrong values from a method, and has masks in a method."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)

    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def step(self, _action: Any) -> Any:
        return self.returned

    def action_masks(self) -> Any:
        return np.ones(2, np.int8)


@pytest.mark.parametrize("returned", [None, 3, (), (0, 0.0, np.zeros(2, bool), False, {})], ids=str)
def test_wrong_values_of_an_env_with_masks_in_a_method_are_passed_on(returned):
    passed = with_masks_in_infos(WrongValues(returned)).step(0)
    assert passed is returned or passed[:-1] == returned[:-1]


class MaskedCartPoles(CartPoleVectorEnv):
    """Has masks in a method, and in the infos of resets if `in_infos`."""

    def __init__(self, num_envs: int, *, in_infos: bool) -> None:
        super().__init__(num_envs)
        self._in_infos = in_infos

    def action_masks(self) -> Any:
        return np.ones((self.num_envs, 2), np.bool_)

    def reset(self, **options: Any) -> Any:
        observation, info = super().reset(**options)
        return observation, {**info, "action_mask": self.action_masks()} if self._in_infos else info


def test_a_vector_env_with_masks_in_a_method_alone_is_refused(monkeypatch):
    registered = EnvSpec("own/Poles-v0", vector_entry_point=MaskedCartPoles)  # type: ignore[arg-type]
    monkeypatch.setitem(gym.registry, "own/Poles-v0", registered)
    make_envs("own/Poles-v0", 2, seed=0, settings=EnvConfig(kwargs=PlainTable({"in_infos": True}))).reset()
    with pytest.raises(EnvFailed, match=r"action_masks\(\) of its vector env is not called: put the masks of all envs"):
        make_envs("own/Poles-v0", 2, seed=0, settings=EnvConfig(kwargs=PlainTable({"in_infos": False}))).reset()


class LateMaskedCartPoles(MaskedCartPoles):
    """Has nothing to decide at a reset, and masks in the infos of steps if `in_steps`."""

    def __init__(self, num_envs: int, *, in_steps: bool) -> None:
        super().__init__(num_envs, in_infos=False)
        self._in_steps = in_steps

    def reset(self, **options: Any) -> Any:
        observation, info = super().reset(**options)
        return observation, {**info, "no_decision": np.ones(self.num_envs, np.bool_)}

    def step(self, action: Any) -> Any:
        *parts, info = super().step(action)
        return *parts, {**info, "action_mask": self.action_masks()} if self._in_steps else info


def test_a_vector_env_with_a_mask_method_may_have_its_first_mask_with_its_first_decision(monkeypatch):
    registered = EnvSpec("own/Late-v0", vector_entry_point=LateMaskedCartPoles)  # type: ignore[arg-type]
    monkeypatch.setitem(gym.registry, "own/Late-v0", registered)
    settings = [EnvConfig(kwargs=PlainTable({"in_steps": in_steps})) for in_steps in (True, False)]
    assert preflight("own/Late-v0", settings[0]).mask == "action_mask"
    with pytest.raises(ConfigError, match=r"action_masks\(\) of its vector env is not called"):
        preflight("own/Late-v0", settings[1])
