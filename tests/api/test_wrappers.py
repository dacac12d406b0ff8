"""Arguments and wrappers of envs, in Python and on the command line: all envs of a run and its policy have them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.wrappers import FlattenObservation, NormalizeObservation, NormalizeReward, TimeLimit, vector
from tests.sample_envs.wrapped_envs import HalvedReward, ShortCartPole
from tests.support.runs import CommandResult, lines_of, run_python, run_script, small_arguments, small_run, weights_of
from tests.support.runs import offbeat as command

import offbeat
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError, UnsavedStatistics
from offbeat.envs.make import make_envs
from offbeat.envs.normalizers import normalizers_of

ENVS = "tests.sample_envs.wrapped_envs"
HALVED, MINUS_ONE = f"{ENVS}:HalvedReward", f"{ENVS}:MinusOne"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> offbeat.Run:
    """Episodes of 8 steps, each with the reward (1 / 2) - 1."""
    settings: dict[str, Any] = {"steps": 512, "eval_every": 256, "eval_episodes": 2, "runtime": "processes"}
    wrapped: dict[str, Any] = {"env_kwargs": {"steps": 8}, "wrappers": [HalvedReward, MINUS_ONE]}
    path = tmp_path_factory.mktemp("runs") / "run"
    return small_run(path, ShortCartPole, actors=1, **settings, **wrapped)  # type: ignore[arg-type]


def test_arguments_and_wrappers_reach_actors_evaluations_videos_exports_and_resumed_runs(run, tmp_path):
    for metric in ("episode_return_mean", "eval_return_mean"):
        assert {line[metric] for line in lines_of(run.path)} - {None} == {-4.0}, metric
    assert (offbeat.evaluate(run, episodes=2).return_mean, offbeat.evaluate(run, episodes=2).length_mean) == (-4, 8)
    assert json.loads(command("eval", run.path, "--episodes", "2", "--json").out)["return_mean"] == -4
    assert offbeat.watch(run, video=tmp_path / "episode.gif").returns == {"default": -4}
    exported = offbeat.export(run, tmp_path / "policy.pt", format="torchscript")
    assert exported.agreement.decisions > 0
    resumed = offbeat.resume(run, steps=768, progress="none")
    assert resumed.metrics["episode_return_mean"] == -4


def test_the_run_keeps_them_in_its_config(run):
    config = (run.path / "config.toml").read_text()
    assert f'"{HALVED}",\n    "{MINUS_ONE}",' in config
    assert "[env.kwargs]\nsteps = 8" in config


def test_evaluate_and_watch_play_with_other_arguments_and_wrappers(run, tmp_path):
    result = offbeat.evaluate(run, episodes=2, env_kwargs={"steps": 3}, wrappers=[])
    assert (result.return_mean, result.length_mean) == (3, 3)
    shown = offbeat.watch(run, env_kwargs={"steps": 3}, wrappers=[HALVED], video=tmp_path / "episode.gif")
    assert (shown.returns, shown.length) == ({"default": 1.5}, 3)
    said = command("eval", run.path, "--episodes", "2", "--env-kwargs", "steps=3", "--wrapper", HALVED, "--json")
    assert json.loads(said.out)["return_mean"] == 1.5


def test_python_and_the_command_line_train_the_same(tmp_path):
    wrapped: dict[str, Any] = {"env_kwargs": {"steps": 8}, "wrappers": (HALVED,)}
    small_run(tmp_path / "python", f"{ENVS}:ShortCartPole", steps=64, **wrapped)
    flags = ["--env-kwargs", "steps=8", "--wrapper", HALVED]
    said = command(*small_arguments(tmp_path / "flags", f"{ENVS}:ShortCartPole", steps=64), *flags)
    assert said.code == 0, said
    assert weights_of(tmp_path / "python") == weights_of(tmp_path / "flags")


def test_check_steps_the_wrapped_env():
    said = command("check", f"{ENVS}:ShortCartPole", "--env-kwargs", "steps=8", "--wrapper", HALVED)
    assert (said.code, said.out) == (0, f"{ENVS}:ShortCartPole: no problems found\n")


def test_check_and_train_warn_of_wrappers_with_statistics_of_their_own(tmp_path):
    wrapped: dict[str, Any] = {"wrappers": [NormalizeReward, NormalizeObservation]}
    findings = offbeat.check(ShortCartPole, steps=30, **wrapped)
    with pytest.warns(UnsavedStatistics) as found:
        small_run(tmp_path / "run", ShortCartPole, steps=64, **wrapped)  # type: ignore[arg-type]
    texts = [each.remedy for each in findings], [str(each.message) for each in found]
    for own in texts:
        assert [name for text in own for name in re.findall(r"(normalize_\w+)=", text)] == [
            "normalize_observations",
            "normalize_returns",
        ]


def test_statistics_that_do_not_change_are_none_and_those_of_vector_envs_are_found():
    env = NormalizeObservation(gym.make("CartPole-v1"))
    assert normalizers_of(TimeLimit(env, 3)) == ("observations",)
    env.update_running_mean = False
    assert normalizers_of(TimeLimit(env, 3)) == ()
    assert normalizers_of(vector.NormalizeReward(gym.make_vec("CartPole-v1", 2))) == ("rewards",)


def test_a_wrapper_changes_what_the_policy_observes():
    wrappers = (f"{FlattenObservation.__module__}:FlattenObservation",)
    config = resolve("ppo", "FrozenLake-v1", flags={"wrappers": wrappers})
    envs = make_envs("FrozenLake-v1", 1, seed=0, settings=config.env)
    envs.close()
    assert envs.spec.observation[0].shape == (16,)


# --- refusals -------------------------------------------------------------------------------------------------


def no_module() -> type[gym.Wrapper[Any, Any, Any, Any]]:
    class Local(HalvedReward):
        pass

    return Local


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("CartPole-v1", {"wrappers": [no_module()]}, "define it at the top level of a module"),
    ("CartPole-v1", {"wrappers": "a:B"}, "wrappers is 'a:B', but a list is expected"),
    ("CartPole-v1", {"wrappers": ["FlattenObservation"]}, "the path of a wrapper is expected"),
    ("CartPole-v1", {"wrappers": [f"{ENVS}:NeedsArgument"]}, "it is called with the env alone"),
    ("CartPole-v1", {"wrappers": [f"{ENVS}:not_an_env"]}, "returned a int, but an env is expected"),
    ("CartPole-v1", {"wrappers": [f"{ENVS}:Nothing"]}, "has no Nothing"),
    ("CartPole-v1", {"wrappers": ["FlattenObservation"]}, "--wrapper my_module:MyWrapper"),
    ("CartPole-v1", {"env_kwargs": {"wings": 2}}, "CartPole-v1 has no argument 'wings'"),
    ("CartPole-v1", {"env_kwargs": ["wings"]}, "a dict is expected"),
    ("CartPole-v1", {"kwargs": {"wings": 2}}, "kwargs is the name in files"),
    ("ALE/Pong-v5", {"wrappers": [HALVED]}, "only single envs of Gymnasium have wrappers"),
    ("offbeat.envs.testing.games:Nim", {"wrappers": [HALVED]}, "only single envs of Gymnasium have wrappers"),
]


@pytest.mark.parametrize(("env", "arguments", "message"), REFUSED)
def test_wrong_arguments_and_wrappers_are_refused(tmp_path, env, arguments, message):
    with pytest.raises(ConfigError) as refused:
        small_run(tmp_path / "run", env, steps=64, **arguments)
    assert message in str(refused.value)
    assert "pass that name" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_wrapper_of_the_program_is_refused_where_other_processes_need_it(tmp_path):
    code = f"""
import gymnasium, offbeat
class Own(gymnasium.Wrapper): pass
settings = dict(steps=64, envs_per_actor=4, unroll_length=16, minibatch_size=32, progress="none", wrappers=[Own])
print(offbeat.train("ppo", "CartPole-v1", run_dir={str(tmp_path / "a")!r}, **settings).state)
offbeat.train("ppo", "CartPole-v1", run_dir={str(tmp_path / "b")!r}, runtime="processes", actors=1, **settings)
"""
    (tmp_path / "program.py").write_text(code)
    said = run_script(tmp_path / "program.py", folder=tmp_path)
    assert said.out == "finished\n", said.err
    assert "the wrapper __main__:Own cannot be sent to another process" in said.err
    assert not (tmp_path / "b").exists()


# --- code that is not trusted ---------------------------------------------------------------------------------


REFUSED_USES = """
uses = [offbeat.evaluate, lambda run: offbeat.watch(run, video="a.gif"), lambda run: offbeat.resume(run, steps=128)]
for use in uses:
    try:
        use({run!r})
    except offbeat.ConfigError as error:
        print(error)
offbeat.load({run!r})  # acting needs no env
"""


def test_a_run_of_another_user_does_not_import_its_wrappers_unless_trusted(tmp_path):
    (tmp_path / "evil_wrappers.py").write_text(
        "import gymnasium\nprint('imported')\nclass Evil(gymnasium.Wrapper):\n    pass\n"
    )

    def python(code: str) -> CommandResult:
        return run_python(f"import offbeat\n{code}", folder=tmp_path)

    run = str(tmp_path / "run")
    settings = "steps=64, envs_per_actor=4, unroll_length=16, minibatch_size=32, progress='none', eval_every=0"
    wrapped = "wrappers=['evil_wrappers:Evil']"
    assert python(f"offbeat.train('ppo', 'CartPole-v1', run_dir={run!r}, {settings}, {wrapped})").code == 0
    refused = python(REFUSED_USES.format(run=run))
    assert refused.code == 0, refused.err
    assert refused.out.count("would import evil_wrappers") == refused.out.count("Nothing was imported") == 3
    assert "imported" not in refused.out.splitlines()
    trusted = python(f"print(offbeat.evaluate({run!r}, episodes=1, trust_code=True))")
    assert "import and call evil_wrappers:Evil as its wrapper" in trusted.err
    assert trusted.code == 0, trusted.err


def test_a_spec_of_another_user_does_not_import_its_wrappers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("secret_wrappers.py").write_text("raise SystemExit('imported')")
    for setting in ("[settings]\nwrappers = ", "[search]\nmethod = 'grid'\n[search.over]\nwrappers = "):
        for value in (
            '["secret_wrappers:Evil"]',
            '[["secret_wrappers:Evil"]]',
            '"gymnasium:Wrapper,secret_wrappers:Evil"',
        ):
            Path("spec.toml").write_text(f'algorithm = "ppo"\nenv = "CartPole-v1"\nseeds = [0]\n{setting}{value}\n')
            said = command("run", "spec.toml", "--dry-run")
            assert (said.code, "secret_wrappers" in said.err) == (2, True), (setting, value, said)


# --- watch ----------------------------------------------------------------------------------------------------


def test_watch_passes_the_render_mode_to_a_function_that_accepts_it(run, tmp_path):
    shown = offbeat.watch(run, f"{ENVS}:with_render_mode", wrappers=[], video=tmp_path / "a.gif")
    assert shown.length == 5


def test_watch_shows_the_env_of_a_function_that_has_the_mode_already(run, tmp_path):
    shown = offbeat.watch(run, f"{ENVS}:always_pictures", wrappers=[], video=tmp_path / "a.gif")
    assert shown.length == 5


def test_watch_says_in_words_that_a_function_has_no_render_mode(run, tmp_path):
    with pytest.raises(ConfigError) as refused:
        offbeat.watch(run, f"{ENVS}:without_render_mode", wrappers=[], video=tmp_path / "a.gif")
    assert "without_render_mode cannot be rendered here: it has no argument render_mode" in str(refused.value)
    assert "a picture needs 'rgb_array'. Give the function the argument render_mode=None" in str(refused.value)
    assert not (tmp_path / "a.gif").exists()
