"""The list of all settings: each key that can be given, with its default, its preset's value and a sentence."""

from __future__ import annotations

import re
from typing import Any

import pytest

from offbeat.cli.listed_settings import ListedSetting, listed_settings
from offbeat.config.keys import CONSTRUCTOR_TABLES, TABLES
from offbeat.config.registry import ALGORITHMS
from offbeat.config.resolve import resolve, setting_names
from offbeat.config.runtimes import OPTIONAL_KEYS, RUNTIMES
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import hints_of
from offbeat.envs.checking.preflight import preflight
from offbeat.runtime.loop.run_metrics import LINE_EVERY_S

PACED = [name for name, entry in RUNTIMES.items() if not entry.workers_learn]


def by_key(algorithm: str, env: str | None = None) -> dict[str, ListedSetting]:
    return {setting.key: setting for setting in listed_settings(algorithm, env)[1]}


def test_every_setting_of_every_algorithm_is_listed():
    listed = {key for name in ALGORITHMS for key in by_key(name)}
    assert setting_names() - listed == {"algorithm", "env", "preset", *TABLES}
    assert {f"{prefix}NAME" for prefix in CONSTRUCTOR_TABLES.values()} <= listed


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_setting_has_a_sentence_a_type_and_a_default(algorithm):
    for setting in by_key(algorithm).values():
        assert setting.sentence
        assert setting.takes
        assert setting.default


def test_the_value_of_the_preset_stands_beside_the_default():
    name, settings = listed_settings("ppo", "CartPole-v1")
    gamma = next(setting for setting in settings if setting.key == "gamma")
    assert name == "ppo-cartpole-v1"
    assert (gamma.table, gamma.default, gamma.preset) == ("ppo", "0.99", "0.98")
    assert gamma.takes == "a number at least 0 and at most 1"


def test_an_env_without_a_preset_has_none():
    name, settings = listed_settings("ppo", "MountainCar-v0")
    assert name == ""
    assert {setting.preset for setting in settings} == {""}


def test_the_defaults_of_an_atari_game_are_listed():
    assert (by_key("ppo")["noop_max"].default, by_key("ppo", "PongNoFrameskip-v4")["noop_max"].default) == (
        "none",
        "30",
    )


def test_a_default_that_depends_on_the_runtime_is_described():
    assert by_key("ppo")["max_lag"].default == "0 in serial, 1 in threads, processes and ray"
    lag = {name: resolve("ppo", "Own-v0", flags={"runtime": name}).runtime.max_lag for name in PACED}
    assert lag == {"serial": 0, "threads": 1, "processes": 1, "ray": 1}
    assert "--set max_ahead=N" in by_key("sac")["max_lag"].sentence


@pytest.mark.parametrize("key", OPTIONAL_KEYS)
def test_a_setting_of_some_runtimes_names_them(key):
    assert re.search(r"\b(Only|Not) for ", by_key("ppo")[key].sentence)


def test_the_default_of_a_limit_is_a_number():
    listed = by_key("ppo")
    limits = {"step_timeout_s": "60.0", "reset_timeout_s": "300.0", "stall_timeout_s": "120.0", "restart_budget": "5"}
    assert {key: listed[key].default for key in limits} == limits
    assert listed["eval_episodes"].default.startswith(f"{resolve('ppo', 'Own-v0').run.evaluation_episodes(None)};")
    assert listed["log_every_s"].default.startswith(f"{LINE_EVERY_S:g};")


def test_listed_defaults_are_those_of_a_run_without_a_preset():
    config = resolve("dqn", "Own-v0")
    hints = hints_of(type(config.algorithm_settings))
    listed = by_key("dqn")
    assert {key: listed[key].default for key in ("learning_rate", "double", "ema_every")} == {
        key: str(getattr(config.algorithm_settings, key)).lower() for key in ("learning_rate", "double", "ema_every")
    }
    assert hints.keys() - {"encoder_kwargs"} <= listed.keys()


def test_settings_of_an_own_algorithm_are_listed():
    name = "tests.support.own_code:CarefulDQN"
    assert by_key(name)["doubt"] == ListedSetting(
        name, "doubt", "a number at least 0 and at most 1", "0.25", "", "Share of each target that is not believed."
    )


def test_an_unknown_algorithm_is_refused():
    with pytest.raises(ConfigError, match="'ppo'"):
        listed_settings("pppo")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_default_layers_are_those_of_the_network_that_is_made(algorithm):
    env = "CartPole-v1" if algorithm == "dqn" else "Pendulum-v1"
    settings: Any = ALGORITHMS[algorithm].config_class()()
    made = settings.policy_spec(preflight(env)).hidden_sizes
    assert by_key(algorithm)["hidden_sizes"].default == ",".join(map(str, made))
