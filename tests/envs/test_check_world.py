"""`offbeat check` finds the faults of worlds with several agents, and names the agent and the step."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.sample_envs import wrong_worlds

from offbeat.cli.check import Check
from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError
from offbeat.envs.checking.check import check_env
from offbeat.envs.checking.preflight import preflight_world

TESTING = "offbeat.envs.testing"
SOUND = [f"{TESTING}.worlds:{name}" for name in ("CartPoles", "LateArrivals", "MixedSpaces")]
SOUND.append(f"{TESTING}.smuggling:Smuggling")
DETERMINISTIC = [f"{TESTING}.games:{name}" for name in ("Nim", "RockPaperScissors")]
OF_LIBRARIES = ["pettingzoo:mpe2/simple_spread_v3", "openspiel:kuhn_poker"]
SAME_ROWS = "worlds with different seeds give the same rows"


def wrong(name: str) -> str:
    return f"{wrong_worlds.__name__}:{name}"


@pytest.mark.parametrize("env_id", [*SOUND, wrong("Sound"), wrong("EndsAll"), *OF_LIBRARIES])
def test_check_finds_nothing_in_a_correct_world(env_id: str) -> None:
    if ":" in env_id and env_id.startswith(("pettingzoo", "openspiel")):
        pytest.importorskip({"pettingzoo": "mpe2", "openspiel": "pyspiel"}[env_id.partition(":")[0]])
    assert check_env(env_id, steps=80) == []


@pytest.mark.parametrize("env_id", DETERMINISTIC)
def test_check_warns_of_a_game_that_its_seed_does_not_change(env_id: str) -> None:
    (finding,) = check_env(env_id, steps=80)
    assert finding.severity == "warning"
    assert SAME_ROWS in finding.problem
    assert "unless the world is deterministic on purpose" in finding.remedy


@pytest.mark.parametrize(
    ("name", "severity", "seen"),
    [
        ("RewardsTheDead", "error", "step 4 of the episode: agent a got a reward of 2.0, but its episode has ended"),
        ("Revives", "error", "step 4 of the episode: agent a is alive again, but its episode has ended before"),
        ("LosesAnAgent", "error", "step 2 of the episode: agent b is missing, but it was neither terminated nor"),
        ("LeavesWithoutAnEnd", "error", "step 5 of the episode: agent b is missing, but it was neither terminated"),
        ("LosesAReward", "error", "step 2 of the episode: agent b has no value in rewards"),
        ("HasAStranger", "error", "step 2 of the episode: agent z appears, but it is not one of the world's possible"),
        ("RewardsAStranger", "warning", "step 1 of the episode: agent z: is in rewards, where it is ignored"),
        ("EndsAtOnce", "error", "step 5 of the episode: agent c appeared and ended in the same step"),
        ("LeavesItsSpace", "warning", "step 2 of the episode: agent b: the observation is outside the bounds"),
        ("HasNaN", "error", "step 2 of the episode: agent b: the observation has NaN"),
        ("AllowsNothing", "error", "step 2 of the episode: agent b: action_mask is 0 for all choices"),
        (
            "LosesItsMask",
            "error",
            "step 2 of the episode: agent b: action_mask is 0 for all choices of an action, or missing in the",
        ),
        ("ListsAnInfo", "error", "step 2 of the episode: the info of agent b is list, not a dict"),
        ("LacksAnInfo", "error", "step 2 of the episode: the info of agent b is None"),
        ("WaitsLate", "error", "the world has 'no_decision' in an info, but not in those of its first steps"),
        ("ReturnsFourValues", "error", "step 2 of the episode: step() returned a tuple of 4"),
        ("RaisesAnError", "error", "step 2 of the episode: ZeroDivisionError: the field has no width"),
        ("RefusesProgress", "error", "set_progress(0.0) raised RuntimeError: not now"),
        ("NeverEnds", "warning", "the world did not end in 60 random steps"),
        ("PaysTooMuch", "warning", "agent b: rewards are as large as 1e+05"),
        ("ShowsLargeImages", "warning", "agent a: observation has images of 240 x 320 pixels"),
        ("IgnoresItsSeed", "warning", SAME_ROWS),
        ("DrawsWithoutASeed", "warning", "agent a, row 0: the same seed and the same actions give different rows"),
        ("SharesAGenerator", "warning", "agent a, row 1: the same seed and the same actions give different rows"),
        ("ForgetsItsAge", "warning", "new envs that restore a snapshot go on with other rows"),
        ("SavesAnObject", "error", "worlds / 0 / world / env / rules is of type method"),
        ("NobodyCalledC", "warning", "agent c did not appear in 60 random steps"),
        ("StartsWithNobody", "error", "reset(): it left no agent alive"),
        ("NimWithNobody", "error", "reset(): it left no agent alive"),
        ("NimWithoutMoves", "error", "agent player_1: observation/action_mask is 0 for all choices"),
        ("NimWithRevenge", "error", "step 5 of the episode: agent player_1: observation/action_mask is 0"),
    ],
)
def test_check_reports_the_fault_of_a_wrong_world_with_agent_step_and_remedy(
    name: str, severity: str, seen: str
) -> None:
    finding, *others = check_env(wrong(name), steps=60)
    assert (finding.severity, others) == (severity, [])
    assert seen in finding.problem
    assert finding.remedy or severity == "error"  # an error of a run says itself what to do


def test_what_an_agent_gets_after_its_end_is_not_checked() -> None:
    assert check_env(wrong("KeepsTheDead"), steps=60) == []


@pytest.mark.parametrize("name", ["RaisesAnError", "RefusesProgress"])
def test_the_remedy_of_an_exception_of_a_world_is_the_line_that_raised_it(name: str) -> None:
    (finding,) = check_env(wrong(name), steps=60)
    assert re.match(r"see .*wrong_worlds\.py, line \d+: raise ", finding.remedy)


def test_a_fault_and_an_end_in_the_last_step_of_a_check_are_found() -> None:
    (finding,) = check_env(wrong("HasNaN"), steps=2)
    assert "step 2 of the episode: agent b: the observation has NaN" in finding.problem
    assert check_env(wrong("Sound"), steps=max(wrong_worlds.LIVES.values())) == []


def test_a_world_whose_close_fails_is_checked_and_trained_with_a_warning() -> None:
    raised = r"FailsToClose: close\(\) raised RuntimeError: the window is gone"
    with pytest.warns(UserWarning, match=raised):
        assert check_env(wrong("FailsToClose"), steps=60) == []
    with pytest.warns(UserWarning, match=raised):
        assert preflight_world(wrong("FailsToClose"))


@pytest.mark.parametrize("name", ["ListsAnInfo", "ReturnsFourValues"])
def test_the_remedy_of_a_fault_that_offbeat_finds_in_a_step_is_its_message(name: str) -> None:
    (finding,) = check_env(wrong(name), steps=60)
    assert str(finding) == f"error: {finding.problem}"


class FewAtOnce(wrong_worlds.Sound):
    """Cannot be made while two are open."""

    opened = 0

    def __init__(self) -> None:
        if FewAtOnce.opened == 2:
            raise RuntimeError("only two connections to the simulator")
        FewAtOnce.opened += 1
        super().__init__()

    def close(self) -> None:
        FewAtOnce.opened -= 1


def test_worlds_of_which_only_a_few_can_be_open_are_compared_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FewAtOnce, "opened", 0)
    assert check_env(f"{__name__}:FewAtOnce", steps=30) == []


def test_a_world_without_an_end_is_correct_with_a_time_limit() -> None:
    assert check_env(wrong("NeverEnds"), steps=60, settings=EnvConfig(max_episode_steps=20)) == []


def test_a_run_in_a_world_whose_state_a_checkpoint_cannot_store_is_refused() -> None:
    with pytest.raises(ConfigError, match="rules is of type method: let it return a dict"):
        preflight_world(wrong("SavesAnObject"))


def test_a_run_in_a_world_that_refuses_the_progress_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"set_progress\(0.0\) raised RuntimeError: not now"):
        preflight_world(wrong("RefusesProgress"))


def test_an_exception_of_the_spaces_of_a_world_is_named_with_the_command_that_finds_it() -> None:
    with pytest.raises(ConfigError, match=r"world 0: before the first step: KeyError: 'b'. Run `offbeat check tests"):
        preflight_world(wrong("LacksASpace"))


def test_an_exception_of_the_code_of_a_world_is_named_with_its_type() -> None:
    with pytest.raises(ConfigError, match=r"world 0: before the first step: ValueError: no goal is free"):
        preflight_world(wrong("RefusesEachReset"))


@pytest.mark.parametrize("name", ["StartsWithNobody", "NimWithNobody"])
def test_a_run_in_a_world_whose_reset_leaves_no_agent_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"world 0: reset\(\): it left no agent alive: start each episode"):
        preflight_world(wrong(name))


@pytest.mark.parametrize("refuse", [preflight_world, check_env])
def test_a_parameter_of_the_curriculum_that_a_world_does_not_have_is_refused(refuse: Callable[..., object]) -> None:
    with pytest.raises(ConfigError, match=f"curriculum sets wind, but {wrong('Sound')} has no such attribute"):
        refuse(wrong("Sound"), settings=EnvConfig(curriculum=("wind 0:1 1:2",)))


def test_the_command_checks_worlds_and_ends_with_1_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert Check(wrong("Revives")).run() == 1
    assert "step 4 of the episode: agent a is alive again" in capsys.readouterr().out


def test_each_step_of_a_check_of_a_world_is_reported() -> None:
    reported: list[tuple[int, int]] = []
    check_env(wrong("Sound"), steps=20, report=lambda done, total: reported.append((done, total)))
    assert reported == [(step, 60) for step in range(1, 61)]
