from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from importlib import resources

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.thorough import examples

import offbeat.envs.own  # noqa: F401 - registers offbeat's own envs
from offbeat.algorithms.ppo import PPOConfig
from offbeat.config.assignments import parse_assignments
from offbeat.config.config import Config
from offbeat.config.config_file import load
from offbeat.config.preset_files import preset_names
from offbeat.config.registry import ALGORITHMS, algorithm_entry
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import hints_of


def preset_text(name: str) -> str:
    return (resources.files("offbeat") / "config" / "presets" / f"{name}.toml").read_text()


# --- where values come from ---------------------------------------------------------------------------------


def test_flags_and_assignments_override_presets_which_override_defaults():
    plain = resolve("ppo", "MountainCar-v0")
    assert (plain.run.preset, plain.settings_as(PPOConfig).epochs, plain.runtime.unroll_length) == (None, 10, 128)
    preset = resolve("ppo", "CartPole-v1")
    assert preset.run.preset == "ppo-cartpole-v1"
    assert preset.settings_as(PPOConfig).gamma == 0.98
    given = resolve("ppo", "CartPole-v1", flags={"steps": 5000}, assignments={"gamma": "0.5", "unroll_length": "64"})
    assert (given.run.steps, given.settings_as(PPOConfig).gamma, given.runtime.unroll_length) == (5000, 0.5, 64)
    assert given.settings_as(PPOConfig).epochs == preset.settings_as(PPOConfig).epochs


def test_preset_none_gives_the_defaults_where_there_is_a_preset():
    config = resolve("ppo", "CartPole-v1", preset="none")
    assert (config.run.preset, config.algorithm_settings) == (None, PPOConfig())
    assert resolve("ppo", "MountainCar-v0").runtime == config.runtime


def test_an_algorithm_has_its_own_defaults_of_the_runtime_and_given_values_and_presets_replace_them():
    lengths = [resolve(name, "MountainCar-v0").runtime.unroll_length for name in ("ppo", "a2c", "impala")]
    assert lengths == [128, 32, 32]
    assert resolve("ppo", "MountainCar-v0", flags={"unroll_length": 7}).runtime.unroll_length == 7
    assert resolve("ppo", "CartPole-v1").runtime.unroll_length == 32  # of the preset


def test_an_env_of_someones_own_with_the_name_of_a_family_has_no_preset():
    assert resolve("ppo", "games:Atari").run.preset is None
    assert resolve("ppo", "ale_py:ALE/Pong-v5").run.preset == "ppo-atari-sticky"


def test_a_preset_can_be_used_for_another_env():
    config = resolve("ppo", "MountainCar-v0", preset="ppo-cartpole-v1")
    assert (config.run.env, config.run.preset, config.settings_as(PPOConfig).gamma) == (
        "MountainCar-v0",
        "ppo-cartpole-v1",
        0.98,
    )


def test_a_named_preset_gives_a_subclass_of_its_algorithm_its_settings():
    own = "tests.support.own_methods:OwnPPO"
    config = resolve(own, "CartPole-v1", preset="ppo-cartpole-v1")
    preset = resolve("ppo", "CartPole-v1")
    assert (config.run.algorithm, config.run.preset) == (own, "ppo-cartpole-v1")
    assert (config.algorithm_settings, config.runtime) == (preset.algorithm_settings, preset.runtime)
    assert resolve(own, "CartPole-v1").run.preset is None  # only if it is named
    with pytest.raises(ConfigError, match=f"is for dqn, not {own}"):
        resolve(own, "CartPole-v1", preset="dqn-cartpole-v1")


def test_an_unknown_algorithm_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"unknown algorithm 'pppo'\. Did you mean 'ppo'\?"):
        resolve("pppo", "CartPole-v1")


def test_a_key_that_only_one_known_key_begins_with_is_taken_for_its_abbreviation():
    with pytest.raises(ConfigError, match=r"unknown key 'batch'\. Did you mean 'batch_size'\?"):
        resolve("sac", "Pendulum-v1", flags={"batch": 64})
    with pytest.raises(ConfigError) as refused:  # eval_every, eval_episodes and others
        resolve("sac", "Pendulum-v1", flags={"eval_": 64})
    assert "Did you mean" not in str(refused.value)


def test_an_unknown_key_of_a_table_is_compared_without_the_name_of_the_table():
    env = "pettingzoo:mpe2/simple_tag_v3"
    with pytest.raises(ConfigError, match=r"unknown key 'league.windw'\. Did you mean 'league.window'\?"):
        resolve("ppo", env, flags={"league.windw": 5})
    for key in ("bar", "foo"):  # nothing is like them, but the table is the same
        with pytest.raises(ConfigError, match=rf"unknown key 'league.{key}'\. See `offbeat list settings"):
            resolve("ppo", env, flags={f"league.{key}": 5})


@pytest.mark.parametrize(("name", "says"), [("A3C", "a2c with --runtime hogwild"), ("appo", "ppo with --runtime proc")])
def test_an_algorithm_of_another_library_is_refused_with_what_it_is_here(name, says):
    with pytest.raises(ConfigError, match=f"unknown algorithm '{name}': .*{says}.*There are ppo, "):
        resolve(name, "CartPole-v1")


@pytest.mark.parametrize("key", ["env", "algorithm", "preset"])
def test_keys_that_the_command_has_as_arguments_cannot_be_assigned(key):
    with pytest.raises(ConfigError, match=f"^{key} is no setting: "):
        resolve("ppo", "CartPole-v1", assignments={key: "nonsense"})


def test_assignments_are_split_at_the_first_equals_sign():
    assert parse_assignments(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize(
    ("items", "words"),
    [(["a=1", "b=2", "a=3"], "gives a twice"), (["a"], "'a' is not key=value"), (["=1"], "'=1' is not key=value")],
)
def test_assignments_without_a_key_or_given_twice_are_refused(items, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        parse_assignments(items)


# --- derived values -----------------------------------------------------------------------------------------


def test_batch_size_and_pace_follow_from_the_topology():
    runtime = resolve("ppo", "MountainCar-v0", assignments={"actors": "3", "max_lag": "2"}).runtime
    assert (runtime.batch_unrolls, runtime.batch_rows) == (3, 3 * 128 * 8)
    assert (runtime.batch_unrolls, runtime.max_lag) == (3, 2)
    assert replace(runtime, unrolls_per_batch=5).batch_unrolls == 5


@pytest.mark.parametrize(("given", "expected"), [({}, 100), ({"eval_every": 7}, 7), ({"eval_every": 0}, 0)])
def test_evaluations_are_made_after_every_tenth_of_the_steps_by_default(given, expected):
    assert resolve("ppo", "MountainCar-v0", flags={"steps": 1000, **given}).run.evaluation_interval == expected


# --- runtimes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", ["threads", "processes"])
def test_max_lag_defaults_to_1_in_runtimes_that_overlap_acting_and_learning(runtime):
    assert resolve("ppo", "CartPole-v1").runtime.max_lag == 0
    assert resolve("ppo", "CartPole-v1", flags={"runtime": runtime}).runtime.max_lag == 1
    assert resolve("ppo", "CartPole-v1", flags={"runtime": runtime, "max_lag": 0}).runtime.max_lag == 0


@pytest.mark.parametrize(
    ("given", "split"),
    [
        ({}, "given"),
        ({"runtime": "threads"}, "measured"),
        ({"runtime": "processes"}, "measured"),
        ({"runtime": "processes", "lag": "exact"}, "given"),
        ({"runtime": "processes", "actors": 2}, "given"),
        ({"runtime": "processes", "envs_per_actor": 16}, "given"),
        ({"runtime": "processes", "unrolls_per_batch": 1}, "given"),
        ({"runtime": "processes", "split": "given"}, "given"),
    ],
    ids=str,
)
def test_auto_layout_is_used_only_with_bounded_lag_and_no_given_topology(given, split):
    assert resolve("ppo", "MountainCar-v0", flags=given).runtime.split == split


def test_a_change_of_the_runtime_keeps_the_topology_and_drops_unsupported_keys():
    only = {"actor_threads": 2, "restart_budget": 3, "start_together": 1, "actor_nice": 4, "step_timeout_s": 9.0}
    layout = {"runtime": "processes", "actors": 2, "max_lag": 2}
    processes = resolve("ppo", "CartPole-v1", flags={**layout, **only})
    assert processes.in_runtime("processes") == processes
    threads = processes.in_runtime("threads").runtime
    assert (threads.actor_nice, threads.step_timeout_s) == (4, 9.0)
    assert (threads.actor_threads, threads.restart_budget, threads.start_together) == (None, 3, None)
    kept = {"restart_budget": 3, "step_timeout_s": 9.0}  # of evaluations, which have a process in every runtime
    expected = resolve("ppo", "CartPole-v1", flags={**layout, **kept, "runtime": "serial"})
    assert processes.in_runtime("serial") == expected


def test_an_unknown_runtime_is_refused():
    with pytest.raises(
        ConfigError,
        match=r"unknown runtime 'threds'. Did you mean 'threads'\? There are serial, threads, processes, ray, hogwild",
    ):
        resolve("ppo", "CartPole-v1").in_runtime("threds")


# --- TOML ---------------------------------------------------------------------------------------------------

values = st.fixed_dictionaries(
    {},
    optional={
        "steps": st.integers(1, 2**62),
        "stop_at": st.none() | st.integers(1, 2**40),
        "time": st.none() | st.floats(1e-3, 1e9),
        "seed": st.integers(0, 2**62),
        "imports": st.lists(st.sampled_from(["colorsys", "json.decoder"]), max_size=2),
        "unrolls_per_batch": st.none() | st.integers(1, 5),
        "max_lag": st.integers(0, 3),
        "lag": st.sampled_from(["bounded", "exact"]),
        "runtime": st.sampled_from(["serial", "threads", "processes"]),
        "learning_rate": st.floats(1e-12, 1.0),
        "gamma": st.floats(0, 1),
        "value_clip": st.none() | st.floats(0.1, 10),
        "hidden_sizes": st.lists(st.integers(1, 512), max_size=3),
        "activation": st.sampled_from(["tanh", "relu"]),
        "normalize_observations": st.booleans(),
        "log_std_init": st.floats(-3, 1),
    },
)


@examples(60)
@given(assignments=values)
def test_a_saved_and_loaded_config_is_unchanged(assignments, tmp_path_factory):
    config = resolve("ppo", "CartPole-v1", assignments=assignments)
    path = tmp_path_factory.mktemp("config") / "config.toml"
    config.save(path)
    assert load(path) == config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[run]\nalgorithm = 'ppo'\nenv = 'E'\n[sac]\n", ["unknown table 'sac'"]),
        ("[run]\nalgorithm = 'ppo'\nenv = 'E'\nstepps = 1\n", ["unknown key 'stepps'", "'steps'", "table [run]"]),
        ("[run]\nalgorithm = 'ppo'\n", ["lacks env: add the missing key"]),
        ("[run]\n", ["lacks algorithm, env: add the missing keys"]),
        ("ppo = 5\n[run]\nalgorithm = 'ppo'\nenv = 'E'\n", ["table [ppo] is 5, but a table"]),
        ("[run\n", ["is not TOML"]),
    ],
)
def test_an_invalid_config_file_is_refused_with_its_path(text, words, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(path)
    assert all(word in str(refused.value) for word in [*words, str(path)])


def test_a_missing_config_file_is_refused_with_its_path(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path / "config.toml")


def test_with_run_changes_only_fields_of_the_run():
    config = resolve("ppo", "CartPole-v1")
    longer = config.with_run(steps=7)
    assert longer.run.steps == 7
    assert (longer.runtime, longer.algorithm_settings) == (config.runtime, config.algorithm_settings)


# --- presets ------------------------------------------------------------------------------------------------


OTHER_GOALS = ("-fast", "-10m")
"""How the names of presets end that do not apply by themselves: they are for another number of env steps or seconds."""
BY_ITSELF = [name for name in preset_names() if name.partition("-")[0] in ALGORITHMS and not name.endswith(OTHER_GOALS)]
NAMED = sorted({*preset_names()} - {*BY_ITSELF})
"""Presets that apply only where they are named."""


def env_of(name: str) -> str:
    """Return the registered env that a preset's name stands for."""
    name = name.partition("-")[2]
    own = [env_id for env_id in gym.registry if env_id.lower().replace("/", "-") == name]
    [env_id] = own or [NOT_REGISTERED[name]]
    return env_id


NOT_REGISTERED = {
    "atari": "BreakoutNoFrameskip-v4",
    "atari-sticky": "ALE/Pong-v5",
    "pongnoframeskip-v4": "PongNoFrameskip-v4",
    "minigrid-empty-5x5-v0": "minigrid:MiniGrid-Empty-5x5-v0",
    "minigrid-doorkey-5x5-v0": "minigrid:MiniGrid-DoorKey-5x5-v0",
    "minigrid-fourrooms-v0": "minigrid:MiniGrid-FourRooms-v0",
}
"""Presets that are for families of envs, with one env of each, and those for envs of packages."""


def assert_preset_applied(config: Config, name: str) -> None:
    """Each number of the preset is in the config, in its place."""
    algorithm, tables = config.run.algorithm, tomllib.loads(preset_text(name))
    assert config.run.preset == name
    assert tables.keys() <= {"run", "env", "runtime", algorithm}
    assert tables[algorithm].keys() <= hints_of(algorithm_entry(algorithm).config_class()).keys()
    of_run = (
        (config.run, "run"),
        (config.env, "env"),
        (config.runtime, "runtime"),
        (config.algorithm_settings, algorithm),
    )
    for table, where in of_run:
        for key, value in tables.get(where, {}).items():
            assert getattr(table, key) == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("name", BY_ITSELF)
def test_a_preset_applies_automatically_to_its_env_and_has_only_known_keys(name):
    assert_preset_applied(resolve(name.partition("-")[0], env_of(name)), name)


@pytest.mark.parametrize("name", NAMED)
def test_a_named_preset_documents_its_command_and_runs_in_serial_with_the_same_settings(name):
    typed = re.search(r"run offbeat train (\w+) (\S+) --preset (\S+)", preset_text(name))
    assert typed
    algorithm, env_id, itself = typed.groups()
    assert itself == name
    config = resolve(algorithm, env_id, preset=name)
    assert_preset_applied(config, name)
    assert name.endswith(OTHER_GOALS) or config.runtime.runtime == "hogwild"
    twin = resolve(algorithm, env_id, preset=name, flags={"runtime": "serial"})
    assert (twin.runtime.runtime, twin.algorithm_settings) == ("serial", config.algorithm_settings)
    assert (twin.runtime.workers, twin.runtime.hogwild, twin.runtime.hogwild_moments) == (None, None, None)


@pytest.mark.parametrize("name", preset_names())
def test_every_number_of_a_preset_has_a_unit_or_source_and_the_file_names_its_source(name):
    lines = preset_text(name).splitlines()
    assert any(line.startswith("# Source") for line in lines)
    numbers = [line for line in lines if re.match(r"\w+ *=[^#]*\d", line)]
    assert numbers
    bare = [line for line in numbers if not re.search(r"#.*\w{3,}", line)]
    assert bare == []


def test_a_preset_of_another_algorithm_is_refused(monkeypatch, tmp_path):
    (tmp_path / "mine.toml").write_text("[a2c]\ngamma = 0.5\n")
    monkeypatch.setattr("offbeat.config.preset_files._presets", lambda: tmp_path)
    monkeypatch.setattr("offbeat.config.preset_files.ALGORITHMS", {"ppo": None, "a2c": None})
    with pytest.raises(ConfigError, match="preset 'mine' is for a2c, not ppo: train with a2c, or"):
        resolve("ppo", "CartPole-v1", preset="mine")
