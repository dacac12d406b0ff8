from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from tests.sample_envs.curious_envs import Line, Waiting
from tests.sample_envs.env_zoo import SOUND, DictActions, Unbounded, zoo_id

from offbeat.core.errors import ConfigError
from offbeat.envs.checking.check import check_env
from offbeat.envs.checking.preflight import preflight
from offbeat.envs.findings import check_ends, fault_of_ends

BAD_TREES = [*("WrongKeys", "WrongInnerTuple", "NoSuchChoice", "HalfAChoice"), *("NothingAllowed", "TupleOfMasks")]
KNOWN = [f"offbeat/{name}-v0" for name in ("ChainTruncates", "ChainTerminates", "FailsOnLastStep", "OneStep")]

WITHOUT_WARNING = [env for env in SOUND if env not in (Unbounded, DictActions)]
"""Envs without faults, and with bounded actions."""
QUESTIONS = [f"offbeat/{name}-v0" for name in ("Recall", "Pixels", "PixelsMotion", "PixelsGoal")]


@pytest.mark.parametrize(
    "env_id",
    [
        *("CartPole-v1", "Pendulum-v1", *KNOWN, *QUESTIONS, *map(zoo_id, WITHOUT_WARNING), "zoo/Limited-v0"),
        *("zoo/TreesVector-v0", "Taxi-v4"),
    ],
)
def test_check_finds_nothing_in_a_correct_env(env_id: str) -> None:
    assert check_env(env_id, steps=250 if env_id == "Pendulum-v1" else 120) == []


class MaskOfDecisions(Waiting):
    def info(self) -> dict[str, Any]:
        waits = self.age % 3 != 0
        return {"no_decision": waits, "action_mask": np.full(2, not waits)}


def test_a_mask_may_allow_nothing_in_a_row_without_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = MaskOfDecisions
    spec = gym.envs.registration.EnvSpec("curious/MaskOfDecisions-v0", kind)
    monkeypatch.setitem(gym.registry, spec.id, spec)
    assert check_env(spec.id, steps=50) == []


def test_an_env_that_marks_rows_without_a_decision_only_later_is_refused_as_in_a_run() -> None:
    (finding,) = check_env("curious/LateWaiting-v0", steps=40)
    assert finding.severity == "error"
    assert "has 'no_decision' in an info, but not in those of its first steps" in finding.problem


def test_a_check_makes_only_envs_that_it_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Waiting] = []

    def make(**_arguments: Any) -> Waiting:
        made.append(Waiting())
        return made[-1]

    spec = gym.envs.registration.EnvSpec("curious/Counted-v0", make)
    monkeypatch.setitem(gym.registry, spec.id, spec)
    assert check_env(spec.id, columns=3, steps=20) == []
    # To read its spec, to step one alone, to compare two rollouts of 3 columns, and to save and restore 3 columns.
    assert len(made) == 1 + 1 + 2 * 3 + 2 * 3


class FewAtOnce(CartPoleEnv):
    """Cannot be made or, if `late`, cannot be stepped while more than three are open, as with a simulator's licence."""

    opened = 0

    def __init__(self, *, late: bool = False) -> None:
        super().__init__()
        FewAtOnce.opened += 1
        if not late and FewAtOnce.opened > 3:
            self.close()
            raise RuntimeError("only three connections to the simulator")

    def step(self, action: Any) -> Any:
        if FewAtOnce.opened > 3:
            raise RuntimeError("only three connections to the simulator")
        return super().step(action)

    def close(self) -> None:
        FewAtOnce.opened -= 1


@pytest.mark.parametrize("late", [False, True])
def test_envs_of_which_only_a_few_can_be_open_are_compared_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    monkeypatch.setattr(FewAtOnce, "opened", 0)
    own: Any = FewAtOnce
    spec = gym.envs.registration.EnvSpec("own/FewAtOnce-v0", own, max_episode_steps=500, kwargs={"late": late})
    monkeypatch.setitem(gym.registry, spec.id, spec)
    taken: list[tuple[int, int]] = []
    assert check_env(spec.id, steps=30, report=lambda *done: taken.append(done)) == []
    assert taken[-1] == (90, 90)


@pytest.mark.parametrize(
    ("name", "severity", "seen"),
    [
        ("LateNaN", "error", "NaN or infinity"),
        ("NaNReward", "error", "reward is NaN"),
        ("WrongShape", "error", "shape (1,)"),
        ("WrongDtype", "error", "float32, but the observation space declares uint8"),
        ("OutOfBounds", "warning", "outside the bounds"),
        ("Unseeded", "warning", "same seed"),
        ("SharesAGenerator", "warning", "same seed"),
        ("SeedIgnored", "warning", "different seeds give the same rows"),
        ("ArrayReward", "error", "the reward is an array of shape (1,)"),
        ("NumberedEnds", "error", "truncated is None"),
        ("OldReset", "error", "reset() returned an array"),
        ("OldStep", "error", "step() returned a tuple of 4"),
        ("NeverEnds", "warning", "no episode ended in 200 random steps"),
        ("Raises", "error", "raised ZeroDivisionError: the cart has no mass"),
        ("Exits", "error", "step(), step 0 of the check, raised SystemExit: 0"),
        ("OneAtATime", "error", "2 envs in one process disturb each other, one alone works"),
        ("WrongKeys", "error", "not a dict with the keys"),
        (
            "WrongInnerTuple",
            "error",
            "the observation 'table' is a tuple of 1, but the observation space declares a tuple",
        ),
        (
            "NoSuchChoice",
            "error",
            "the observation 'card' is not one of the choices of its space, Discrete(5, start=-2)",
        ),
        ("HalfAChoice", "error", "the observation 'card' is of float64, but the observation space"),
        ("NothingAllowed", "error", "allows no choice"),
        ("MaskVanishes", "error", "info has no action_mask"),
        ("MaskTooShort", "error", "shape (4,) where (5,)"),
        ("TupleOfMasks", "error", "a tuple where one flat array of flags is expected"),
        (
            "SavesASet",
            "error",
            "that snapshot() returns cannot be saved: envs / 0 / env / seen is of type set",
        ),
        ("SavesAThird", "warning", "new envs that restore a snapshot go on with other rows"),
        ("SavesNothing", "error", "a new env that has restored a snapshot fails"),
        ("NeedsAReset", "error", "restore() of a new env raised AttributeError"),
    ],
)
def test_check_reports_the_fault_of_a_broken_env_with_a_remedy(name: str, severity: str, seen: str) -> None:
    findings = check_env(f"zoo/{name}-v0", steps=200)
    assert [finding.severity for finding in findings] == [severity]
    assert seen in findings[0].problem
    assert findings[0].remedy


def test_an_env_whose_close_fails_is_checked_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"FailsToClose-v0: close\(\) raised RuntimeError: the window is gone"):
        assert check_env("zoo/FailsToClose-v0", steps=200) == []


def test_the_remedy_of_a_reset_without_a_seed_is_the_line_to_write() -> None:
    (finding,) = check_env("zoo/ResetWithoutSeed-v0", steps=200)
    assert finding.remedy == "define it as `def reset(self, *, seed=None, options=None)`"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("Unseeded", "sample all random numbers from self.np_random"),
        ("ReseedsItself", "from a reset without a seed on"),
    ],
)
def test_the_remedy_of_an_unrepeatable_env_is_that_of_its_first_different_row(name: str, remedy: str) -> None:
    (finding,) = check_env(f"zoo/{name}-v0", steps=200)
    assert finding.problem.startswith("the same seed and the same actions give different rows")
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "OldReset",
            r"reset\(\) did not return \(observation, info\) \(.*\)\. An env with gym's old API",
        ),
        ("OldStep", r"step\(\) did not return \(observation, reward, terminated, truncated, info\) \("),
    ],
)
def test_a_run_on_an_env_with_gyms_old_api_is_refused_with_what_is_expected(name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        preflight(f"zoo/{name}-v0")


@pytest.mark.parametrize("name", ["WrongDtype", *BAD_TREES])
def test_preflight_refuses_an_env_that_fails_in_its_first_steps(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"offbeat.check[^`]*zoo/{name}-v0"):
        preflight(f"zoo/{name}-v0")


def test_preflight_refuses_an_env_whose_state_a_checkpoint_cannot_store() -> None:
    with pytest.raises(ConfigError, match="seen is of type set: let it return a dict"):
        preflight("zoo/SavesASet-v0")


@pytest.mark.parametrize("env_id", ["zoo/CannotBeMade-v0", "zoo/TextObservations-v0", "Nothing-v0"])
def test_check_refuses_an_env_that_cannot_be_created(env_id: str) -> None:
    with pytest.raises(ConfigError):
        check_env(env_id)


class Tensors(Line):
    """Returns tensors of torch: a reward of one number is one, flags are not flags."""

    flag: Any = staticmethod(bool)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        ends = self.flag(terminated), self.flag(truncated)
        return torch.from_numpy(observation), torch.tensor(reward), *ends, info


class TensorsAsFlags(Tensors):
    flag = staticmethod(torch.tensor)


def test_check_accepts_a_reward_that_is_a_tensor_of_one_number() -> None:
    assert check_env(f"{__name__}:Tensors", steps=50) == []


def test_check_names_flags_that_are_tensors() -> None:
    problems = [finding.problem for finding in check_env(f"{__name__}:TensorsAsFlags", steps=50)]
    assert problems == ["terminated is Tensor, not a bool", "truncated is Tensor, not a bool"]


@pytest.mark.parametrize("reward", [[1.0, 2.0], [[1.0], [2.0, 3.0]], {"a": 1.0, "b": 2.0}, torch.ones(2)])
def test_a_reward_of_several_numbers_is_named_whatever_holds_them(reward: Any) -> None:
    assert "a reward of 2 numbers" in (fault_of_ends(reward, terminated=False, truncated=False) or "")


@pytest.mark.parametrize(("terminated", "truncated"), [(0, 1), (np.int64(1), np.uint8(0))])
def test_ends_that_are_0_or_1_are_a_warning_with_which_a_run_trains(terminated: int, truncated: int) -> None:
    assert [finding.severity for finding in check_ends(1.0, terminated, truncated)] == ["warning", "warning"]
    assert fault_of_ends(1.0, terminated, truncated) is None
    assert fault_of_ends(1.0, terminated, 2) is not None
