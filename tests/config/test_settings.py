"""The contract of algorithms' settings: what the rest of offbeat asks of them, with types."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from offbeat.algorithms.dqn import DQNConfig
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.ppo import PPOConfig
from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.algorithms.returned import policy_of
from offbeat.config.resolve import resolve
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.settings import AlgorithmSettings
from offbeat.core.errors import ConfigError
from offbeat.core.types import EnvSpec
from offbeat.envs.checking.preflight import preflight


@dataclass(frozen=True)
class WithoutPolicy(PPOConfig):
    """Settings that make something else than a policy's spec."""

    def policy_spec(self, env: EnvSpec) -> str:  # type: ignore[override]
        return env.id


@pytest.mark.parametrize("runtime", ["serial", "threads", "hogwild"])
def test_on_policy_settings_are_the_same_in_every_runtime(runtime):
    assert PPOConfig.with_defaults({"epochs": 3}, {"epochs"}, RuntimeConfig(runtime=runtime)) == {"epochs": 3}


@pytest.mark.parametrize(
    ("runtime", "given", "expected"),
    [
        ({"actors": 3}, {}, {"max_ahead": 2}),
        ({"actors": 3, "runtime": "threads"}, {}, {"max_ahead": 3}),
        ({"actors": 3, "runtime": "threads"}, {"max_ahead": 1}, {"max_ahead": 1}),
        ({"runtime": "hogwild"}, {}, {}),
        ({"runtime": "hogwild"}, {"max_ahead": 1}, {"max_ahead": 1}),
        ({}, {"utd_ratio": "1/4"}, {"utd_ratio": "1/4", "max_ahead": 0}),
    ],
)
def test_replay_settings_are_adapted_to_the_runtime_and_the_given_keys(runtime, given, expected):
    preset = {"steps_per_update": 2} if "utd_ratio" in given else {}
    assert DQNConfig.with_defaults({**preset, **given}, given, RuntimeConfig(**runtime)) == expected


def test_settings_of_another_class_are_refused():
    config = resolve("ppo", "CartPole-v1")
    assert config.settings_as(OnPolicyConfig) is config.settings_as(AlgorithmSettings) is config.algorithm_settings
    with pytest.raises(ConfigError, match="the settings of ppo are PPOConfig, but a class that extends ReplayConfig"):
        config.settings_as(ReplayConfig)


def test_a_policy_spec_of_another_type_is_refused():
    env = preflight("CartPole-v1", resolve("ppo", "CartPole-v1").env)
    assert policy_of(PPOConfig(), env).observation == env.observation
    with pytest.raises(ConfigError, match=r"WithoutPolicy\.policy_spec returned 'CartPole-v1', but a PolicySpec"):
        policy_of(WithoutPolicy(), env)
