"""Arguments of an own encoder: how they are given, printed, stored and refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.support.own_code import Sized

import offbeat
from offbeat.algorithms.network_config import NetworkConfig
from offbeat.config.assignments import assignments_of, parse_assignments
from offbeat.config.changes import changed_config
from offbeat.config.config import Config
from offbeat.config.config_file import from_tables
from offbeat.config.keys import flat, is_argument
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.core.frozen_table import thawed

SIZED = "tests.support.own_code:Sized"
ROWS = "tests.support.own_code:Rows"
ARGUMENTS: dict[str, Any] = {"units": 64, "text": "8", "name": "a b", "layers": [8, 8], "on": True, "inner": {"a": 0.5}}
POLICIES: dict[str, Any] = {
    "a": {"agents": "player_0", "settings": {"encoder": SIZED, "encoder_kwargs": {"units": 8}}},
    "b": {"agents": "player_1"},
}


def config_of(*assignments: str, algorithm: str = "ppo", **flags: object) -> Config:
    return resolve(algorithm, "CartPole-v1", flags=flags, assignments=parse_assignments(assignments))


def kwargs_of(config: Config, policy: str = "default") -> dict[str, Any]:
    return thawed(config.of_policy(policy).settings_as(NetworkConfig).encoder_kwargs)


@pytest.mark.parametrize("algorithm", ["ppo", "impala", "a2c", "sac", "td3", "crossq", "dqn"])
def test_arguments_of_an_encoder_that_are_typed_are_read_unchanged(algorithm):
    typed = assignments_of(flat({"encoder_kwargs": ARGUMENTS}))
    assert typed[:3] == ["encoder_kwargs.units=64", 'encoder_kwargs.text="8"', "encoder_kwargs.name=a b"]
    config = config_of(f"encoder={SIZED}", *typed, algorithm=algorithm)
    assert kwargs_of(config) == ARGUMENTS
    assert config == config_of(algorithm=algorithm, encoder=SIZED, encoder_kwargs=ARGUMENTS)
    again = from_tables(tomllib.loads(config.as_toml().decode()), "config.toml")
    assert (again, hash(again.algorithm_settings)) == (config, hash(config.algorithm_settings))


def test_keys_of_arguments_are_those_below_the_tables_of_arguments():
    of_policies = ("policies.a.settings.encoder_kwargs.units", "policies.encoder_kwargs.settings.gamma")
    keys = ("env.kwargs.a", "encoder_kwargs.a", "encoder", "env_kwargs.a", "encoder_kwargs", *of_policies)
    assert [is_argument(key) for key in keys] == [True, True, False, False, False, True, False]


def test_a_policy_has_the_arguments_of_its_own_encoder_or_those_of_the_run():
    given: dict[str, Any] = {"encoder": SIZED, "encoder_kwargs": {"units": 4, "layers": 2}, "policies": POLICIES}
    config = config_of(**given)
    assert kwargs_of(config, "a") == {"units": 8}
    assert kwargs_of(config, "b") == {"units": 4, "layers": 2}
    one = config_of("policies.a.settings.encoder_kwargs.units=9", "policies.a.settings.encoder_kwargs.text=x", **given)
    assert kwargs_of(one, "a") == {"units": 9, "text": "x"}
    other = config_of(f"policies.b.settings.encoder={ROWS}", **given)
    assert kwargs_of(other, "b") == {}
    same = config_of(f"policies.b.settings.encoder={SIZED}", **given)
    assert kwargs_of(same, "b") == {"units": 4, "layers": 2}


def test_an_encoder_in_place_of_another_one_starts_without_its_arguments():
    changed = config_of(f"policies.a.settings.encoder={ROWS}", policies=POLICIES)
    assert kwargs_of(changed, "a") == {}
    arguments, encoder = "policies.a.settings.encoder_kwargs.x=1", f"policies.a.settings.encoder={ROWS}"
    assert kwargs_of(config_of(arguments, encoder, policies=POLICIES), "a") == {"x": 1}
    assert kwargs_of(config_of(f"policies.a.settings.encoder={SIZED}", policies=POLICIES), "a") == {"units": 8}


@pytest.mark.parametrize("encoder", ["auto", "nature_cnn", ROWS])
def test_a_resume_with_another_encoder_is_refused_because_of_the_encoder(encoder):
    config = config_of(encoder=SIZED, encoder_kwargs={"units": 64})
    with pytest.raises(ConfigError, match=f"encoder is {SIZED} in .* cannot change it to {encoder}: .* new run"):
        changed_config(config, {"encoder": encoder}, Path("runs/a"))


def test_an_argument_of_another_type_is_a_change_though_its_value_is_equal():
    config = config_of(encoder=SIZED, encoder_kwargs={"units": 1, "layers": [2]})
    assert changed_config(config, {"encoder_kwargs": {"layers": (2,), "units": 1}}, Path("runs/a")) == config
    for other in ({"units": 1.0, "layers": [2]}, {"units": True, "layers": [2]}, {"units": 1, "layers": [2.0]}):
        with pytest.raises(ConfigError, match="a resume cannot change it"):
            changed_config(config, {"encoder_kwargs": other}, Path("runs/a"))


def test_a_number_of_a_policy_is_the_same_setting_with_and_without_decimals():
    own = {"a": {"agents": "player_0", "settings": {"return_scale": 1}}, "b": {"agents": "player_1"}}
    config = config_of(policies=own)
    assert changed_config(config, {"policies.a.settings.return_scale": 1}, Path("runs/a")) == config


def test_an_argument_in_a_table_and_by_a_flag_is_refused():
    with pytest.raises(ConfigError, match=r"env\.kwargs\.x is given twice, by this key and in the table kwargs"):
        resolve("ppo", "CartPole-v1", flags={"env.kwargs.x": 1}, assignments=parse_assignments(["kwargs={x = 2}"]))


@pytest.mark.parametrize("arguments", [{}, {"units": 4, "layers": [8, 8], "name": "a"}])
def test_a_whole_table_of_arguments_can_be_typed(arguments):
    typed = assignments_of({"policies.a.settings.encoder_kwargs": arguments})
    assert kwargs_of(config_of(*typed, policies=POLICIES), "a") == arguments
    typed = assignments_of({"encoder": SIZED, "encoder_kwargs": arguments})
    assert kwargs_of(config_of(*typed)) == arguments


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"encoder_kwargs.units": 8}, "encoder_kwargs is {'units': 8}, but encoder is auto, and only your own encoder"),
        ({"encoder": "nature_cnn", "encoder_kwargs": {"units": 8}}, "but encoder is nature_cnn"),
        ({"encoder": SIZED, "encoder_kwargs": "units=8"}, "a table of numbers"),
        ({"encoder": SIZED, "encoder_kwargs": "units=8"}, "--set encoder_kwargs.NAME=VALUE"),
        ({"encoder": SIZED, "encoder_kwargs": {"units": object()}}, "a table of numbers"),
        ({"encoder": SIZED, "encoder_kwargs.a.b": 8}, "'a.b', which cannot be the name of an argument"),
        ({"policies": POLICIES, "policies.a.settings.encoder_kwarg.b": 8}, "is not a key"),
        ({"policies": POLICIES, "policies.b.settings.encoder_kwargs.b": 8}, "the policy b, in [policies.b.settings]"),
    ],
)
def test_arguments_that_no_encoder_can_have_are_refused(flags, says):
    with pytest.raises(ConfigError) as refused:
        resolve("ppo", "CartPole-v1", flags=flags)
    assert says in str(refused.value)


def test_an_argument_that_is_no_plain_data_is_refused_in_python_with_its_place():
    with pytest.raises(ConfigError, match=r"encoder_kwargs\['layers'\]\[0\] is <object"):
        offbeat.train("ppo", "CartPole-v1", encoder=Sized, encoder_kwargs={"layers": [object()]})
    settings = {"encoder": Sized, "encoder_kwargs": {"units": object()}}
    with pytest.raises(ConfigError, match=r"encoder_kwargs\['units'\] is <object"):
        offbeat.train("ppo", "CartPole-v1", policies={"a": {"agents": "*", "settings": settings}})
