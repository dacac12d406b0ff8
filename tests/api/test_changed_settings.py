"""A resume with changed settings: which may change, what is written down, and what is refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.replay_runs import small_sac
from tests.support.runs import contents, files_up_to, lines_of, offbeat, small_run, weights_of

from offbeat.api.resume import resume
from offbeat.config.changes import changed_config
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
ANEW = "Instead, start a new run with the settings that you need: "
REFUSED: dict[str, tuple[Any, list[str]]] = {
    "seed": (3, ["seed is 0 in", "every random stream", INIT_FROM]),
    "algorithm": ("a2c", ["algorithm is ppo in", "cannot change it to a2c", ANEW]),
    "env": ("Acrobot-v1", ["env is CartPole-v1 in", "the same observations", "`offbeat train ppo ENV --init-from "]),
    "envs_per_actor": (8, ["envs_per_actor is 4 in", "cannot change it to 8", "tickets", INIT_FROM]),
    "max_lag": (1, ["max_lag is 0 in", INIT_FROM]),
    "hidden_sizes": ("32,32", ["hidden_sizes is 16 in", "network", ANEW]),
    "normalize_observations": (False, ["normalize_observations is true in", "network and its statistics"]),
    "frame_stack": (2, ["frame_stack is 1 in", "belong to an env"]),
    "init_from": ("elsewhere", ["initial weights", ANEW]),
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


def test_a_refused_change_is_answered_with_a_new_run_from_the_weights_and_the_file_of_the_settings():
    with pytest.raises(ConfigError) as refused:
        changed_config(resolve("ppo", "CartPole-v1"), {"seed": 3}, Path("runs/a b"))
    assert str(refused.value).endswith(
        "Instead, start a new run from this run's weights, `offbeat train ppo CartPole-v1 --init-from 'runs/a b'`, "
        "with the settings that you need: runs/a b/config.toml has those of this run"
    )


def test_layers_that_were_not_given_are_named_when_they_cannot_change():
    with pytest.raises(ConfigError, match=r"hidden_sizes is none \(the default: 64,64; no layers if .* to 8:"):
        changed_config(resolve("ppo", "CartPole-v1"), {"hidden_sizes": "8"}, Path("runs/a"))


@pytest.mark.parametrize(
    ("league", "change", "start"),
    [
        ({}, {"league": True}, "runs/a has no league"),
        ({}, {"league.window": 5}, "runs/a has no league"),
        ({"league": True}, {"league.window": 5}, "league.window is 10 in runs/a"),
    ],
)
def test_a_league_that_cannot_change_is_refused_with_the_command_of_a_new_run(league, change, start):
    config = resolve("ppo", "offbeat.envs.testing.games:Nim", flags=league)
    with pytest.raises(ConfigError) as refused:
        changed_config(config, change, Path("runs/a"))
    assert str(refused.value).startswith(start)
    assert "Nim --init-from runs/a`" in str(refused.value)


def test_a_function_that_chooses_policies_is_refused_in_a_resume():
    config = resolve("ppo", "offbeat.envs.testing.games:Nim", flags={"policies": lambda _agent: "all"})
    with pytest.raises(ConfigError, match="a resume cannot change it to other tables"):
        changed_config(config, {"policies": lambda _agent: "one"}, Path("runs/a"))


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("shared", "shared"), ("shared", "separate"), ("shared", "two"),
        ("separate", "shared"), ("separate", "separate"), ("separate", "two"),
        ("one", "shared"), ("one", "separate"), ("one", "one"), ("one", "two"),
        ("two", "shared"), ("two", "separate"), ("two", "one"), ("two", "two"),
        ("two", "exchanged"), ("two", "reordered"),
    ],
)  # fmt: skip
def test_other_policies_are_refused(kind, given, tmp_path):
    tables = {
        "one": '[policies.all]\nagents = "*"\n',
        "two": '[policies.a]\nagents = "player_0"\n[policies.b]\nagents = "player_1"\n',
        "reordered": '[policies.b]\nagents = "player_1"\n[policies.a]\nagents = "player_0"\n',
        "exchanged": '[policies.a]\nagents = "player_1"\n[policies.b]\nagents = "player_0"\n',
    }
    files = {name: tmp_path / f"{name}.toml" for name in tables}
    for name, file in files.items():
        file.write_text(tables[name])
    config = resolve("ppo", "offbeat.envs.testing.games:Nim", flags={"policies": files.get(kind, kind)})
    if kind == given:
        assert changed_config(config, {"policies": files.get(given, given)}, Path("runs/a")) == config
    else:
        with pytest.raises(ConfigError, match=r"policies is .* in runs/a, and a resume cannot change it"):
            changed_config(config, {"policies": files.get(given, given)}, Path("runs/a"))


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
    assert ANEW in str(refused.value)


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
