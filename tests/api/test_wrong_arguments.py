"""Arguments of wrong names and types are refused in words, with what is expected, by every public function."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.support.runs import small_run

import offbeat
from offbeat.config.other_libraries import other_calls
from offbeat.core.errors import ConfigError

FUNCTIONS = [name for name in offbeat.__all__ if inspect.isfunction(getattr(offbeat, name))]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> offbeat.Run:
    return small_run(tmp_path_factory.mktemp("runs") / "run", steps=64, eval_every=0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_refuses_a_missing_argument(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"offbeat.{name}: missing a required argument"):
        getattr(offbeat, name)()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_refuses_a_number_as_its_first_argument(name: str) -> None:
    function = getattr(offbeat, name)
    required = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    others = [None for each in required[1:] if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    with pytest.raises(ConfigError, match=rf"{required[0].name} is 3, but .* is expected"):
        function(3, *others)


@pytest.mark.parametrize("name", ["evaluate", "match", "plot"])
def test_help_does_not_show_the_arguments_that_only_the_command_line_passes(name: str) -> None:
    function = getattr(offbeat, name)
    passed = re.findall(r"^ *(\w+): for the command line", inspect.getdoc(function) or "", re.MULTILINE)
    assert passed
    assert not set(passed) & inspect.signature(function).parameters.keys()


RUN = object()
"""Stands for a run in the arguments of a call."""


@pytest.mark.parametrize(
    ("name", "given", "options", "says"),
    [
        ("evaluate", [RUN], {"episodes": "a"}, "episodes is 'a', but a whole number or None is expected"),
        (
            "evaluate",
            [RUN],
            {"episodes": 1e50},
            "episodes is 1e+50, but a whole number has at most 128 bits: pass",
        ),
        ("evaluate", [RUN], {"episodes": 10**9}, "but a whole number at least 1 and at most 100000000 "),
        ("match", [["a", "b"]], {"episodes": 10**9}, "but a whole number at least 1 and at most 100000000 "),
        ("evaluate", [RUN], {"sampled": "yes"}, "sampled is 'yes', but True or False is expected"),
        ("evaluate", [RUN], {"seed": True}, "seed is True, but a whole number is expected: pass seed=0"),
        ("evaluate", [RUN], {"checkpoint": 3}, 'checkpoint is 3, but text is expected: pass checkpoint="latest"'),
        ("evaluate", [RUN], {"on_step": 3}, "on_step is 3, but a function is expected"),
        ("evaluate", [RUN], {"episods": 3}, "unknown argument 'episods'. Did you mean 'episodes'?"),
        ("evaluate", [RUN], {"on_steps": 3}, "max_episode_steps, max_steps, trust_code"),
        ("evaluate", [RUN], {"n_eval_episodes": 3}, "in offbeat, offbeat.evaluate(run, episodes=20)"),
        ("evaluate", [{}], {}, "the loaded policies of a run are expected"),
        ("evaluate", [{"a": 3}], {}, "the loaded policies of a run are expected"),
        (
            "load",
            [RUN],
            {"checkpoint": "bset"},
            "latest, step-000000000000, ",
        ),
        ("plot", [RUN], {"smooth": "a"}, "smooth is 'a', but a whole number is expected"),
        ("plot", [[RUN, 3]], {}, "3 is given as a path"),
        ("watch", [RUN], {"max_steps": "a"}, "max_steps is 'a'"),
        ("match", [3], {}, "runs is 3, but a path or a list of run directories is expected"),
        ("check", ["CartPole-v1"], {"imports": "my_envs"}, "but a list of texts is expected"),
        ("check", ["CartPole-v1"], {"imports": [3]}, "imports is [3], but a list of texts is expected"),
        ("check", [""], {}, "env is '', but a name is expected"),
        ("evaluate", [RUN, ""], {}, "env is '', but a name is expected"),
        ("load", [""], {}, "a path is empty"),
        ("plot", [RUN], {"metrics": [3]}, "metrics is [3], but text or a list of texts is expected"),
        ("plot", [RUN], {"metrics": []}, "metrics is empty, but at least one is expected"),
        ("train", ["ppo", "CartPole-v1"], {"run_dir": ""}, "a path is empty"),
        ("train", ["ppo", "CartPole-v1"], {"preset": 3}, "preset is 3, but text or None is expected"),
        ("train", ["CartPole-v1", "ppo"], {}, "swap them, as in `offbeat train ppo CartPole-v1`"),
        ("train", ["ppo", "CartPole-v1", 1000], {}, "only algorithm, env can be passed by position, and all others by"),
        ("train", ["apo", "CartPole-v1"], {}, "unknown algorithm 'apo'. There are ppo, impala, "),
        ("train", ["ppo", "CartPole-v1"], {"use_sde": True}, "there is no state-dependent exploration"),
        ("train", ["ppo", "CartPole-v1"], {"settings": {"gamma": 0.9}}, "pass each setting by its name, such as gamma"),
        ("train", ["ppo", "A-v0"], {"env_kwargs": {"a": {"b": [1, None]}}}, "env_kwargs['a']['b'][1] is None, but a"),
        ("train", ["ppo", "A-v0"], {"env_kwargs": {"a": {"b": {3: 1}}}}, "env_kwargs['a']['b'] is {3: 1}, but a"),
        ("load", ["{run}/checkpoints/latest"], {}, "is expected: pass {run}. Where a checkpoint can be"),
        ("resume", [RUN], {"env_kwargs": {"size": 8}}, "env_kwargs is {} in"),
        ("resume", [RUN], {"env_kwargs": {"size": 8}}, "resume cannot change"),
        ("resume", [RUN], {"settings": {"env_kwargs": {"size": 8}}}, "resume cannot change"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_is_expected(
    run: offbeat.Run, name: str, given: list[Any], options: dict[str, Any], says: str
) -> None:
    arguments = [run if each is RUN else [run, 3] if each == [RUN, 3] else each for each in given]
    arguments = [each.replace("{run}", str(run.path)) if isinstance(each, str) else each for each in arguments]
    with pytest.raises(ConfigError) as refused:
        getattr(offbeat, name)(*arguments, **options)
    assert says.replace("{run}", str(run.path)) in str(refused.value)


def test_whole_floats_and_numbers_of_numpy_are_accepted(run: offbeat.Run) -> None:
    given: dict[str, Any] = {"episodes": 1.0, "seed": np.int32(1), "sampled": np.bool_(True), "max_steps": 1e6}
    result = offbeat.evaluate(run, **given)
    assert result.episodes == 1
    resume: Any = offbeat.resume
    with pytest.raises(ConfigError, match="and steps is 1: nothing is left to do"):
        resume(run, steps=1e0)
    for wrong in (1.5, math.inf, math.nan):
        with pytest.raises(ConfigError, match=rf"steps is {wrong}, but a whole number or None is expected"):
            resume(run, steps=wrong)


# --- loaded policies ------------------------------------------------------------------------------------------


def test_a_policy_says_what_to_write_for_an_argument_of_another_library(run: offbeat.Run) -> None:
    policy: Any = offbeat.load(run)
    average: Any = offbeat.AveragePolicy([policy])
    with pytest.raises(TypeError, match="deterministic is a name of Stable-Baselines3"):
        average(np.zeros(4, np.float32), deterministic=True)
    with pytest.raises(TypeError, match="deterministic is a name of Stable-Baselines3; in offbeat, the most likely"):
        policy(np.zeros(4, np.float32), deterministic=True)
    with pytest.raises(TypeError, match=r"unknown argument 'mask'. A policy is called with observation, reward"):
        policy(np.zeros(4, np.float32), mask=1)
    with pytest.raises(TypeError, match=r"random is True, but a generator is expected: pass random=np\.random"):
        policy(np.zeros(4, np.float32), random=True)


@pytest.mark.parametrize("play", [offbeat.evaluate, offbeat.watch])
def test_a_function_that_is_no_loaded_policy_cannot_be_played(run: offbeat.Run, play: Any) -> None:
    with pytest.raises(ConfigError, match=r"run is <built-in function len>, but a run directory, a Run or a loaded"):
        play(len)
    average = offbeat.AveragePolicy([offbeat.load(run)])
    with pytest.raises(ConfigError, match=r"pass the run to offbeat\.evaluate, with average=True"):
        play(average)


def test_the_seed_of_an_average_is_not_negative(run: offbeat.Run) -> None:
    with pytest.raises(ConfigError, match="seed is -1, but at least 0 is expected"):
        offbeat.AveragePolicy([offbeat.load(run)], seed=-1)


def test_an_empty_batch_is_refused(run: offbeat.Run) -> None:
    with pytest.raises(ValueError, match=r"shape \(0, 4\), which is no observation"):
        offbeat.load(run)(np.zeros((0, 4), np.float32))


@pytest.mark.parametrize("name", ["predict", "learn", "save", "get_distribution", "predict_values"])
def test_methods_of_another_library_are_answered_with_ours(run: offbeat.Run, name: str) -> None:
    for owner in (run, offbeat.load(run)):
        assert not hasattr(owner, name)
        with pytest.raises(AttributeError) as refused:
            getattr(owner, name)
        assert other_calls()[name] in str(refused.value)


def test_a_name_with_a_typo_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'trian'\. Did you mean 'train'\?"):
        offbeat.trian  # noqa: B018 - the access is what is tested


@pytest.mark.parametrize(
    "name", ["PPO", "make_vec_env", "evaluate_policy", "check_env", "VecNormalize", "EvalCallback"]
)
def test_names_of_another_library_are_answered_with_ours(name: str) -> None:
    with pytest.raises(AttributeError, match=r"is a name of Stable-Baselines3; in offbeat, offbeat\."):
        getattr(offbeat, name)


def test_an_env_that_was_made_is_refused_with_what_to_pass() -> None:
    env: Any = gym.make("CartPole-v1")
    with pytest.raises(ConfigError, match='as offbeat makes its own envs: pass its id, "CartPole-v1", or the class'):
        offbeat.train("ppo", env)
    with pytest.raises(ConfigError, match="as offbeat makes its own envs: pass its id, or the class"):
        offbeat.train("ppo", env.unwrapped.__class__().unwrapped)


def test_a_loaded_policy_is_shown_in_one_line(run: offbeat.Run) -> None:
    assert repr(offbeat.load(run)) == "LoadedPolicy(ppo on CartPole-v1, env_steps=64)"


def test_a_single_choice_is_an_observation(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "FrozenLake-v1", steps=64, eval_every=0)
    assert offbeat.load(run)(3) in range(4)


def test_settings_are_not_blamed_for_a_missing_argument() -> None:
    with pytest.raises(ConfigError, match="missing a required argument: 'env'"):
        offbeat.train("ppo", steps=1000)  # type: ignore[call-arg]
