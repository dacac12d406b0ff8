"""A resume with changed settings: which may change, what is written down, and what is refused."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.replay_runs import small_sac
from tests.support.runs import contents, files_up_to, lines_of, offbeat, small_run, weights_of

from offbeat.api.resume import resume
from offbeat.cli.main import _parse
from offbeat.cli.train import Train
from offbeat.config import new_run
from offbeat.config.changes import changed_config
from offbeat.config.config import Config
from offbeat.config.config_file import load
from offbeat.config.keys import values_of
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError

HALF: dict[str, Any] = {"steps": 1024, "stop_at": 512, "learning_rate_schedule": "constant"}


@pytest.fixture(scope="module")
def half_run(tmp_path_factory) -> Path:
    return small_run(tmp_path_factory.mktemp("half") / "run", **HALF).path


@pytest.fixture
def run(half_run, tmp_path) -> Path:
    return Path(shutil.copytree(half_run, tmp_path / "run", symlinks=True))


@pytest.fixture(scope="module")
def sac_run(tmp_path_factory) -> Path:
    return small_sac(tmp_path_factory.mktemp("sac") / "run", steps=240, stop_at=120).path


def edit(run: Path, key: str, value: str) -> None:
    """Change a line of config.toml by hand."""
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(re.sub(rf"^{key} = .*", f"{key} = {value}", config, flags=re.MULTILINE))


# --- what may change ----------------------------------------------------------------------------------------


def test_changed_settings_are_saved_in_the_config_and_the_log_has_old_and_new_values(run):
    ended = resume(run, steps=768, learning_rate=1e-4, gamma=0.9, entropy_coef="0.02", eval_every=256, eval_episodes=2)
    assert ended.state == "finished"
    config = load(run / "config.toml")
    assert (config.run.steps, config.run.eval_every, config.run.eval_episodes) == (768, 256, 2)
    saved = config.tables()["ppo"]
    assert (saved["learning_rate"], saved["gamma"], saved["entropy_coef"]) == (1e-4, 0.9, 0.02)
    log = (run / "log.txt").read_text()
    assert "settings changed: steps from 1024 to 768, eval_every from 0 to 256, eval_episodes from none to 2" in log
    assert "gamma from 0.98 to 0.9" in log
    assert lines_of(run)[-1]["learning_rate"] == 1e-4
    assert lines_of(run)[-1]["eval_return_mean"] is not None


def test_a_changed_setting_gives_the_bits_of_a_run_whose_config_file_has_it(run, tmp_path):
    edited = Path(shutil.copytree(run, tmp_path / "edited", symlinks=True))
    before = weights_of(run)
    edit(edited, "learning_rate", "0.01")
    edit(edited, "clip", "0.05")
    resume(edited)
    resume(run, learning_rate=0.01, clip=0.05)
    assert weights_of(run) == weights_of(edited) != before
    assert load(run / "config.toml") == load(edited / "config.toml")


def test_settings_are_given_as_a_dict_as_arguments_or_on_the_command_line_with_the_same_bits(run, tmp_path):
    copies = [Path(shutil.copytree(run, tmp_path / name, symlinks=True)) for name in ("dict", "arguments", "command")]
    resume(copies[0], settings={"learning_rate": 0.01, "clip": 0.05, "steps": 768})
    resume(copies[1], learning_rate=0.01, clip=0.05, steps=768)
    said = offbeat("resume", copies[2], "--steps", "768", "--set", "learning_rate=0.01", "--set", "clip=0.05")
    assert said.code == 0, said.err
    assert weights_of(copies[0]) == weights_of(copies[1]) == weights_of(copies[2]) != weights_of(run)
    assert len({load(copy / "config.toml") for copy in copies}) == 1


def test_a_resume_with_changed_settings_repeats_bit_for_bit(tmp_path):
    exact: dict[str, Any] = {"lag": "exact", "max_lag": 1, "runtime": "processes"}
    first = small_run(tmp_path / "first", **HALF, **exact).path
    second = Path(shutil.copytree(first, tmp_path / "second", symlinks=True))
    for path in (first, second):
        resume(path, settings={"learning_rate": 0.01, "gamma": 0.9, "epochs": 3, "steps": 1536, "eval_every": 512})
    assert weights_of(first) == weights_of(second)


def test_the_settings_so_far_stay_in_the_run_directory(run):
    first = load(run / "config.toml")
    resume(run, stop_at=768)
    assert not (run / "config-1.toml").exists()  # only a limit was given
    resume(run, settings={"gamma": 0.9}, stop_at=896)
    resume(run, settings={"gamma": 0.8, "clip": 0.3})
    kept = [load(run / f"config-{number}.toml") for number in (1, 2)]
    assert kept[0].with_run(stop_at=None) == first.with_run(stop_at=None)
    assert [config.tables()["ppo"]["gamma"] for config in kept] == [0.98, 0.9]
    assert load(run / "config.toml").tables()["ppo"]["gamma"] == 0.8
    steps = lines_of(run)[-1]["env_steps"]
    for number, changed in ((1, "gamma"), (2, "gamma, clip")):
        note = (run / f"config-{number}.toml").read_text().splitlines()[0]
        said = re.fullmatch(rf"# the settings up to env step (\d+); then these were changed: {changed}", note)
        assert said, note
        assert 512 <= int(said[1]) < steps


@pytest.mark.parametrize(
    "given",
    [
        {"learner_threads": 2, "device": "cpu", "step_timeout_s": 5.0, "restart_budget": 1},
        {"shards": 3},
        {"runtime": "threads", "load_ahead": 1},  # which only the new runtime supports
        {"reward_scale": 0.1},
    ],
    ids=str,
)
def test_a_resumed_run_ends_with_settings_that_can_change(given, run):
    assert resume(run, **given).state == "finished"
    saved = values_of(load(run / "config.toml"))
    assert {key: saved[key] for key in given} == given


def test_schedules_run_over_the_new_steps(run):
    resume(run, steps=2048, stop_at=1024, learning_rate_schedule="linear", learning_rate=0.1, log_every=1)
    last = lines_of(run)[-1]
    before = max(line["env_steps"] for line in lines_of(run) if line["env_steps"] < last["env_steps"])
    assert last["learning_rate"] == pytest.approx(0.1 * (1 - before / 2048))


def test_a_limit_applies_only_to_the_resume_that_it_is_given_to(run, tmp_path):
    stopped = resume(run, stop_at=768)
    assert stopped.state == "interrupted"
    assert 768 <= stopped.metrics["env_steps"] < 1024
    assert resume(run).state == "finished"
    whole = small_run(tmp_path / "whole", **{**HALF, "stop_at": None}).path
    assert weights_of(run) == weights_of(whole)


def test_a_value_that_the_run_already_has_is_no_change(run):
    resume(run, seed=0, hidden_sizes=(16,), envs_per_actor="4", algorithm="ppo", env="CartPole-v1")
    assert "settings changed" not in (run / "log.txt").read_text()


# --- what may not -------------------------------------------------------------------------------------------

INIT_FROM = "offbeat train ppo CartPole-v1 --init-from"
REFUSED: dict[str, tuple[Any, list[str]]] = {
    "seed": (3, ["seed is 0 in", "every random stream", INIT_FROM]),
    "algorithm": (
        "a2c",
        [
            "algorithm is ppo in",
            "cannot change it to a2c",
            "`offbeat train a2c CartPole-v1 --steps 1024 --eval-every 0 ",
        ],
    ),
    "env": (
        "Acrobot-v1",
        [
            "env is CartPole-v1 in",
            "weights, if Acrobot-v1 has the same observations and actions: `offbeat train ppo Acrobot-v1 --init-from",
        ],
    ),
    "envs_per_actor": (
        8,
        ["envs_per_actor is 4 in", "cannot change it to 8", "tickets", INIT_FROM, " --envs-per-actor 8 "],
    ),
    "max_lag": (1, ["max_lag is 0 in", INIT_FROM]),
    "hidden_sizes": (
        "32,32",
        ["hidden_sizes is 16 in", "network", " --envs-per-actor 4 ", " hidden_sizes=32,32 ", " gamma=0.5`"],
    ),
    "normalize_observations": (False, ["normalize_observations is true in", "network and its statistics"]),
    "frame_stack": (2, ["frame_stack is 1 in", "belong to an env"]),
    "init_from": (
        "elsewhere",
        ["initial weights", "start a new run: `offbeat train ppo CartPole-v1 ", " --init-from elsewhere --set "],
    ),
    "stop_at": (512, ["has learned from", "env steps, and stop_at is 512", "above"]),
    "time": (1e-9, ["time is 1e-09", "nothing is left to do"]),
    "steps": (100, ["nothing is left to do"]),
    "learning_rat": (0.1, ["unknown key 'learning_rat'", "'learning_rate'"]),
    "learning_rate": (-1, ["learning_rate is -1", "more than 0"]),
    "minibatch_size": (1000, ["minibatch_size is 1000", "= 64 rows"]),
    "shards": (100, ["shards is 100", "= 64 rows"]),
}


@pytest.mark.parametrize("key", REFUSED)
def test_a_setting_that_cannot_change_is_refused_in_words_and_nothing_is_changed(run, key):
    before = contents(run)
    value, says = REFUSED[key]
    with pytest.raises(ConfigError) as refused:
        resume(run, **{key: value, "gamma": 0.5})
    assert [fragment for fragment in says if fragment not in str(refused.value)] == []
    assert contents(run) == before


@pytest.mark.parametrize(
    ("change", "says"),
    [({"decorrelate": "true"}, "is false in .* to true:"), ({"hidden_sizes": "8,8"}, "is none .*64,64; .* to 8,8:")],
)
def test_a_value_that_cannot_change_is_shown_as_it_is_typed(change, says):
    with pytest.raises(ConfigError, match=says):
        changed_config(resolve("ppo", "CartPole-v1"), change, Path("runs/a"))


def test_the_command_of_a_run_that_leaves_out_all_arguments_of_the_env_ends_with_its_last_flag():
    config = resolve("ppo", "CartPole-v1", flags={"kwargs": {"sutton_barto_reward": True}})
    with pytest.raises(ConfigError, match="`offbeat train ppo CartPole-v1 --init-from runs/a`"):
        changed_config(config, {"kwargs": {}}, Path("runs/a"))


def test_layers_that_were_not_given_are_named_when_they_cannot_change():
    with pytest.raises(ConfigError, match=r"hidden_sizes is none \(the default: 64,64; no layers if .* to 8:"):
        changed_config(resolve("ppo", "CartPole-v1"), {"hidden_sizes": "8"}, Path("runs/a"))


@pytest.mark.parametrize(
    ("league", "change", "start", "flags"),
    [
        ({}, {"league": True}, "runs/a has no league", "--set league=true"),
        ({}, {"league.window": 5}, "runs/a has no league", "--set league.window=5"),
        ({"league": True}, {"league.window": 5}, "league.window is 10 in runs/a", "--set league.window=5"),
    ],
)
def test_a_league_that_cannot_change_is_refused_with_the_command_of_a_new_run(league, change, start, flags):
    config = resolve("ppo", "offbeat.envs.testing.games:Nim", flags=league)
    with pytest.raises(ConfigError) as refused:
        changed_config(config, change, Path("runs/a"))
    assert str(refused.value).startswith(start)
    assert str(refused.value).endswith(f"--init-from runs/a {flags}`")


def command_in(error: ConfigError) -> list[str]:
    """Return the arguments of `offbeat` in the command that a message names."""
    return shlex.split(str(error).partition("`offbeat ")[2].partition("`")[0])


def config_of_new_run(config: Config, change: dict[str, Any]) -> Config:
    """Return the config of the command that the refusal of a change names."""
    with pytest.raises(ConfigError) as refused:
        changed_config(config, change, Path("runs/a"))
    command = _parse(command_in(refused.value))
    assert isinstance(command, Train)
    return command.config()


@pytest.mark.parametrize("given", [{"seed": 3, "gamma": 0.5, "steps": 99}, {"steps": 99, "seed": 3, "max_lag": 1}])
def test_the_command_of_a_new_run_has_all_settings_that_were_given(given):
    values = values_of(config_of_new_run(resolve("ppo", "CartPole-v1"), given))
    assert {key: values[key] for key in given} == given


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        ({"runtime": "hogwild", "workers": 2}, "workers", 3),
        ({"runtime": "hogwild", "workers": 2}, "seed", 3),
        ({"runtime": "processes", "actors": 2}, "actors", 4),
        ({"runtime": "processes", "actors": 2, "max_lag": 2, "lag": "exact"}, "unroll_length", 8),
        ({"steps": 5000, "seed": 4, "eval_every": 0, "log_every_s": 5.0}, "max_lag", 1),
        ({"steps": 5000, "eval_every": 0, "envs_per_actor": 2, "gamma": 0.9, "frame_stack": 2}, "hidden_sizes", [32]),
    ],
)
def test_the_command_of_a_new_run_has_the_settings_of_the_run(settings, key, value):
    config = resolve("a2c", "CartPole-v1", flags=settings)
    new = config_of_new_run(config, {key: value}).with_run(init_from=None)
    assert values_of(new) == {**values_of(config), key: value}


def test_the_command_of_a_run_of_another_algorithm_has_the_length_the_evaluation_and_the_env_of_the_run():
    kept = {"steps": 5000, "eval_every": 0, "frame_stack": 2}
    config = resolve("ppo", "CartPole-v1", flags={**kept, "runtime": "processes", "envs_per_actor": 2, "epochs": 1})
    assert config_of_new_run(config, {"algorithm": "a2c"}) == resolve("a2c", "CartPole-v1", flags=kept)


def test_the_command_of_a_run_of_another_algorithm_has_the_env_and_the_length_of_the_preset_of_the_run():
    config = resolve("ppo", "CarRacing-v3")
    new = config_of_new_run(config, {"algorithm": "dqn"})
    assert (new.env, new.run.steps, new.run.eval_every) == (config.env, config.run.steps, config.run.eval_every)


def test_the_command_of_a_new_run_has_the_runtime_also_if_its_usual_settings_are_refused():
    config = resolve("sac", "Pendulum-v1", flags={"runtime": "hogwild", "workers": 2}, assignments={"warmup": 512})
    with pytest.raises(ConfigError, match="the first sample of each needs"):
        resolve("sac", "Pendulum-v1", flags={"runtime": "hogwild"})
    new = config_of_new_run(config, {"seed": 5})
    assert (new.algorithm_settings, new.runtime) == (config.algorithm_settings, config.runtime)


def test_the_command_of_a_new_run_that_measures_its_layout_has_no_number_of_actors():
    config = resolve("ppo", "CartPole-v1", flags={"runtime": "processes", "actors": 2})
    assert config_of_new_run(config, {"split": "measured"}).runtime.split == "measured"


def test_the_command_of_a_new_run_has_the_preset_that_was_given():
    with pytest.raises(ConfigError) as refused:
        changed_config(resolve("ppo", "CartPole-v1"), {"algorithm": "dqn", "preset": "none"}, Path("runs/a"))
    assert command_in(refused.value)[-2:] == ["--preset", "none"]


def test_a_function_that_chooses_policies_is_refused_in_a_resume():
    config = resolve("ppo", "offbeat.envs.testing.games:Nim", flags={"policies": lambda _agent: "all"})
    with pytest.raises(ConfigError, match="a resume cannot change it to other tables"):
        changed_config(config, {"policies": lambda _agent: "one"}, Path("runs/a"))


def test_the_command_of_a_new_run_has_the_arguments_of_the_env_in_evaluations():
    config = resolve("ppo", "CartPole-v1", flags={"eval_kwargs": {"sutton_barto_reward": True}})
    with pytest.raises(ConfigError, match=r"--set env\.eval_kwargs\.sutton_barto_reward=true`"):
        changed_config(config, {"seed": 3}, Path("runs/a"))
    with pytest.raises(ConfigError, match="--init-from runs/a --seed 3`"):
        changed_config(config, {"seed": 3, "eval_kwargs": {}}, Path("runs/a"))


def test_the_command_of_a_new_run_has_the_arguments_of_the_env_that_were_given():
    config = resolve("ppo", "CartPole-v1", flags={"kwargs": {"sutton_barto_reward": True}})
    with pytest.raises(ConfigError, match="--env-kwargs sutton_barto_reward=false`"):
        changed_config(config, {"env.kwargs.sutton_barto_reward": False}, Path("runs/a"))


@pytest.mark.parametrize(
    ("kind", "given", "fits"),
    [
        ("shared", "shared", True), ("shared", "separate", True), ("shared", "two", True),
        ("separate", "shared", False), ("separate", "separate", True), ("separate", "two", False),
        ("one", "shared", True), ("one", "separate", True), ("one", "one", True), ("one", "two", True),
        ("two", "shared", False), ("two", "separate", False), ("two", "one", False), ("two", "two", True),
        ("two", "exchanged", True), ("two", "reordered", True), ("two", "named", True),
    ],
)  # fmt: skip
def test_other_policies_are_refused_with_the_command_of_a_new_run(kind, given, fits, tmp_path):
    """`fits`: whether each new policy finds its weights in the run, by its name or as those of the only policy."""
    tables = {
        "one": '[policies.all]\nagents = "*"\n',
        "two": '[policies.a]\nagents = "player_0"\n[policies.b]\nagents = "player_1"\n',
        "reordered": '[policies.b]\nagents = "player_1"\n[policies.a]\nagents = "player_0"\n',
        "exchanged": '[policies.a]\nagents = "player_1"\n[policies.b]\nagents = "player_0"\n',
        "named": '[policies.c]\nagents = "*"\ninit_policy = "b"\n',
    }
    files = {name: tmp_path / f"{name}.toml" for name in tables}
    for name, file in files.items():
        file.write_text(tables[name])
    config = resolve("ppo", "offbeat.envs.testing.games:Nim", flags={"policies": files.get(kind, kind)})
    if kind == given:
        assert changed_config(config, {"policies": files.get(given, given)}, Path("runs/a")) == config
    else:
        with pytest.raises(ConfigError, match=r"policies is .* in runs/a, and a resume cannot change it") as refused:
            changed_config(config, {"policies": files.get(given, given)}, Path("runs/a"))
        init_from = ["--init-from", "runs/a"] if fits else []
        assert command_in(refused.value)[3:] == [*init_from, "--policies", str(files.get(given, given))]


@pytest.mark.parametrize("change", [{"seed": 3}, {"hidden_sizes": "8"}])
def test_the_command_of_a_new_run_imports_what_the_run_imports_and_the_encoders_of_its_policies(change):
    policies = {"all": {"agents": "*", "settings": {"encoder": "csv:Encoder"}}}
    config = resolve("ppo", "CartPole-v1", flags={"imports": ("json",), "policies": policies})
    with pytest.raises(ConfigError, match=r"`offbeat train ppo CartPole-v1 .*--import json --import csv"):
        changed_config(config, change, Path("runs/a"))


def test_the_command_of_a_new_run_from_the_weights_has_the_network_of_the_run(run, tmp_path):
    with pytest.raises(ConfigError, match="`offbeat train") as refused:
        resume(run, envs_per_actor=8)
    command = str(refused.value).partition("`offbeat ")[2].removesuffix("`")
    command = command.replace("--steps 1024", "--steps 64")
    said = offbeat(*shlex.split(command), "--run-dir", tmp_path / "new", "--progress", "none")
    assert said.code == 0, said.err


@pytest.mark.parametrize(
    ("key", "value", "resolved"),
    [("preset", "none", 0), ("seed", 3, 1)],
)
def test_the_settings_of_a_new_run_are_only_resolved_for_a_command_that_has_them(key, value, resolved, monkeypatch):
    envs: list[str] = []

    def counted(algorithm: str, env: str, flags: dict[str, object]) -> Config:
        envs.append(env)
        return resolve(algorithm, env, flags=flags)

    monkeypatch.setattr(new_run, "resolve", counted)
    with pytest.raises(ConfigError, match="Instead, "):
        changed_config(resolve("ppo", "CartPole-v1"), {key: value}, Path("runs/a"))
    assert len(envs) == resolved


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"settings": {"gamma": 0.9}, "gamma": 0.9}, "gamma is given twice, as an argument and in settings"),
        ({"settings": {"steps": 2048}, "steps": 2048}, "steps is given twice"),
        ({"env_kwargs": {"size": 2}, "env.kwargs.size": 3}, "env.kwargs.size is given twice, by this key and in the"),
        ({"eval_kwargs": {"size": 2}, "env.eval_kwargs.size": 3}, "env.eval_kwargs.size is given twice, by this key"),
        ({"settings": ["gamma"]}, "but a dict with names of settings is expected"),
        ({"settings": {1: 0.9}}, "but a dict with names of settings is expected"),
    ],
)
def test_settings_that_are_given_twice_or_in_another_form_are_refused(run, given, words):
    before = contents(run)
    with pytest.raises(ConfigError, match=words):
        resume(run, **given)
    assert contents(run) == before


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("reward_scale", 0.5, "saved replay has rewards"),
        ("capacity", 5000, "memory and counts"),
        ("critics", 3, "network and its statistics"),
        ("learning_rat", 1, "unknown key"),
    ],
)
def test_a_replay_run_refuses_what_its_replay_depends_on(sac_run, key, value, reason):
    with pytest.raises(ConfigError, match=reason):
        resume(sac_run, **{key: value})


@pytest.mark.parametrize("algorithm", ["sac", "crossq"])
@pytest.mark.parametrize(("old", "new"), [("none", "0.1"), ("0.2", "none")])
def test_a_temperature_cannot_change_between_learned_and_fixed(algorithm, old, new):
    config = resolve(algorithm, "Pendulum-v1", assignments={"temperature": old})
    with pytest.raises(ConfigError) as refused:
        changed_config(config, {"temperature": new}, Path("runs/a"))
    assert f"temperature is {old} in runs/a, and a resume cannot change it to {new}" in str(refused.value)
    assert f"start a new run: `offbeat train {algorithm} Pendulum-v1 --set temperature={new}`" in str(refused.value)


def test_a_fixed_temperature_can_change_to_another_one():
    config = resolve("sac", "Pendulum-v1", assignments={"temperature": "0.2"})
    assert changed_config(config, {"temperature": "0.1"}, Path("runs/a")).tables()["sac"]["temperature"] == 0.1


def test_the_learning_rate_of_a_run_that_adapts_it_cannot_change(tmp_path):
    run = small_run(
        tmp_path / "run", steps=256, stop_at=64, learning_rate_schedule="kl", kl_target=0.01
    ).path  # fmt: skip
    with pytest.raises(ConfigError, match="the run adapts its rate"):
        resume(run, learning_rate=0.002)
    assert resume(run, learning_rate=0.1, learning_rate_schedule="constant").state == "finished"


@pytest.mark.parametrize(("given", "expected"), [({}, 0.002), ({"learning_rate": 0.004}, 0.004)])
def test_a_run_that_changes_to_an_adapted_learning_rate_starts_from_the_setting(tmp_path, given, expected):
    adapted: dict[str, Any] = {"learning_rate_schedule": "kl", "kl_target": 1e-9}  # decreases in each learning step
    run = small_run(tmp_path / "run", steps=256, stop_at=64, **adapted).path
    resume(run, stop_at=128, learning_rate_schedule="constant", learning_rate=0.002)
    resume(run, learning_rate_schedule="kl", **given)
    rates = [line["learning_rate"] for line in lines_of(run)]
    assert rates[3] == expected  # the first step after the second resume
    assert rates[4] < expected


def test_a_full_disk_leaves_the_settings_as_they_were(run):
    before = (run / "config.toml").read_text()
    with files_up_to(500), pytest.raises(ConfigError, match="raise the limit of file sizes"):
        resume(run, gamma=0.9)
    assert (run / "config.toml").read_text() == before
