"""`eval_kwargs`: arguments of an env's constructor that only the envs of evaluations have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.pearl_runs import SMALL_PEARL
from tests.support.runs import lines_of, offbeat, small_arguments, small_run
from tests.support.thorough import thorough

import offbeat as package
from offbeat.core.errors import ConfigError
from offbeat.envs.checking.rollouts import FIRST_STEPS

VARIANTS = "tests.sample_envs.evaluated_variants"
CARTS = "offbeat.envs.testing.worlds:CartPoles"
EVALUATED: dict[str, Any] = {"steps": 512, "eval_every": 256, "eval_episodes": 2}


def of_metric(path: Path, metric: str) -> set[float]:
    """Return the values of a metric in all lines of a run."""
    return {line[metric] for line in lines_of(path) if line.get(metric) is not None}


@pytest.mark.parametrize("runtime", ["serial", *thorough("processes"), *thorough("hogwild")])
def test_arguments_of_evaluations_reach_evaluations_and_videos_but_no_training(tmp_path, runtime):
    """With the argument a whole episode of CartPole has the return -1; without it, its length."""
    path = tmp_path / "run"
    settings = {**EVALUATED, "runtime": runtime, "env.eval_kwargs.sutton_barto_reward": "true"}
    said = offbeat(*small_arguments(path, **settings))
    assert said.code == 0, said
    assert of_metric(path, "eval_return_mean") == of_metric(path, "best_eval_return_mean") == {-1.0}
    assert min(of_metric(path, "episode_return_mean")) > 0
    command = ("eval", path, "--episodes", "2", "--json")
    assert json.loads(offbeat(*command).out)["returns"] == [-1, -1]
    figures = json.loads(offbeat(*command, "--env-kwargs", "sutton_barto_reward=false").out)
    assert figures["returns"] == figures["lengths"]
    for run in (path, package.load(path), package.load_all(path)):
        assert package.evaluate(run, episodes=1).return_mean == -1
        assert package.watch(run, video=tmp_path / "episode.gif").returns == {"default": -1}


def test_evaluations_with_other_arguments_stop_a_run_at_their_return(tmp_path):
    settings = {**EVALUATED, "stop_at_return": 60, "eval_kwargs": {"pay": 100.0}}
    run = small_run(tmp_path / "run", f"{VARIANTS}:Sized", **settings)
    assert run.reason.endswith("an evaluation had a mean return of 400.0")


def test_a_resume_changes_the_arguments_of_evaluations(tmp_path):
    run = small_run(tmp_path / "run", f"{VARIANTS}:Sized", **EVALUATED, eval_kwargs={"pay": 2, "length": 3})
    assert of_metric(run.path, "eval_return_mean") == {6}
    package.resume(run, steps=768, settings={"env.eval_kwargs.pay": 3}, progress="none")
    assert lines_of(run.path)[-1]["eval_return_mean"] == 9
    package.resume(run, steps=1024, eval_kwargs={}, progress="none")
    assert lines_of(run.path)[-1]["eval_return_mean"] == 4
    assert "[env.eval_kwargs]\n\n" in (run.path / "config.toml").read_text()


def test_arguments_of_evaluations_replace_those_of_the_training_one_by_one(tmp_path):
    settings = {"env_kwargs": {"pay": 5, "length": 2}, "eval_kwargs": {"length": 3}}
    run = small_run(tmp_path / "run", f"{VARIANTS}:Sized", **EVALUATED, **settings)
    assert of_metric(run.path, "episode_return_mean") == {10}
    assert of_metric(run.path, "eval_return_mean") == {15}
    assert package.evaluate(run, episodes=1, env_kwargs={"pay": 1}).return_mean == 3
    assert package.evaluate(run, f"{VARIANTS}:Sized", episodes=1).return_mean == 15
    assert package.evaluate(run, "tests.sample_envs.evaluated_variants:Other", episodes=1).return_mean == 4


def test_worlds_of_evaluations_have_other_arguments(tmp_path):
    settings = {**EVALUATED, "policies": "separate", "eval_kwargs": {"max_steps": 3}}
    run = small_run(tmp_path / "run", CARTS, **settings)
    assert of_metric(run.path, "eval_length_mean") == of_metric(run.path, "policies/cart_1/eval_length_mean") == {3}
    assert max(of_metric(run.path, "episode_length_mean")) > 3
    assert package.evaluate(run, episodes=2).length_mean == 3


def test_an_error_in_a_world_of_an_evaluation_names_its_arguments(tmp_path):
    settings = {**EVALUATED, "evaluator": "inline", "eval_kwargs": {"falls_after": FIRST_STEPS}}
    run = small_run(tmp_path / "run", f"{VARIANTS}:Falling", **settings)
    assert lines_of(run.path)[-1]["evaluations_failed"] == 2
    assert (
        f"offbeat check {VARIANTS}:Falling --env-kwargs falls_after={FIRST_STEPS}" in (run.path / "log.txt").read_text()
    )


@pytest.mark.parametrize(
    ("env", "kwargs", "says"),
    [
        ("Sized", {"size": 3}, r"the observations in evaluations are observation \[3\] float32, not observation \[2\]"),
        ("Sized", {"actions": 3}, r"the actions in evaluations are discrete \[3\], not discrete \[2\]"),
        ("Sized", {"first": 1}, "the actions in evaluations have other bounds or numbers"),
        ("Sized", {"reach": 1.0}, r"the actions in evaluations are box \[1\], not discrete \[2\]"),
        ("Sized", {"sise": 3}, r"in evaluations, with eval_kwargs \{'sise': 3\}: .* has no argument 'sise'.* 'size'"),
        ("Sized", {"size": -3}, r"in evaluations, with eval_kwargs \{'size': -3\}: .* cannot be made"),
        ("Falling", {"falls_after": 1}, r"in evaluations, with eval_kwargs .*falls.*ZeroDivisionError: it fell"),
        (
            "CartPoles",
            {"carts": 2},
            "the agents of the env of evaluations are cart_0, cart_1, not cart_0, cart_1, cart_2",
        ),
        ("one_or_several", {"several": True}, "evaluations are cart_0, cart_1, cart_2, not a single one"),
    ],
)
def test_arguments_with_which_evaluations_cannot_be_played_are_refused_before_a_run_starts(tmp_path, env, kwargs, says):
    with pytest.raises(ConfigError, match=says):
        small_run(tmp_path / "run", f"{VARIANTS}:{env}", eval_kwargs=kwargs)
    assert not (tmp_path / "run").exists()


def test_a_resume_refuses_arguments_that_change_the_spaces_and_leaves_the_run(tmp_path):
    run = small_run(tmp_path / "run", f"{VARIANTS}:Sized", steps=256)
    before = (run.path / "config.toml").read_text()
    with pytest.raises(ConfigError, match="the observations in evaluations are"):
        package.resume(run, steps=512, eval_kwargs={"size": 3})
    assert (run.path / "config.toml").read_text() == before


def test_trials_in_new_tasks_have_the_arguments_of_evaluations(tmp_path):
    """A larger radius of the goal gives rewards in more steps."""
    robot, wide = "offbeat/SparsePointRobot-v0", {"goal_radius": 10.0}
    run = package.train("pearl", robot, **SMALL_PEARL, eval_kwargs=wide, run_dir=tmp_path / "run", progress="none")
    assert min(of_metric(run.path, "eval_return_mean")) > 0
    assert package.evaluate(run, env_kwargs={"goal_radius": 0.0}).return_mean == 0
    with pytest.raises(ConfigError, match="the actions in evaluations have other bounds"):
        package.train("pearl", robot, **SMALL_PEARL, eval_kwargs={"max_step": 1.0})


def test_a_spec_file_has_the_arguments_of_evaluations_as_a_table(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text(
        f'algorithm = "ppo"\nenv = "{VARIANTS}:Sized"\nsessions = 1\n[settings]\nsteps = 512\n'
        "[settings.env.kwargs]\npay = 2\n[settings.env.eval_kwargs]\nlength = 1\n"
    )
    said = offbeat("run", spec, "--dry-run", "--import", VARIANTS)
    assert said.code == 0, said
    assert {"env.kwargs.pay=2", "env.eval_kwargs.length=1"} <= set(said.out.split())
