"""What the docstring of an algorithm's settings says to be from a source has the source's value."""

from __future__ import annotations

import re
from typing import Any

import pytest

from offbeat.config.registry import algorithm_entry
from offbeat.core.types import ActionSpec, EnvSpec, Leaf

ENV = EnvSpec("test", (Leaf("observation", (3,), "float32"),), ActionSpec("box", (1,), low=(-1.0,), high=(1.0,)), 1)
PPO: dict[str, Any] = {"learning_rate": 3e-4, "gamma": 0.99, "gae_lambda": 0.95, "clip": 0.2, "hidden_sizes": (64, 64)}
PPO |= {"learning_rate_schedule": "constant", "epochs": 10, "minibatch_size": 64}
IMPALA: dict[str, Any] = {
    "learning_rate": 6e-4,
    "learning_rate_schedule": "linear",
    "gamma": 0.99,
    "entropy_coef": 0.01,
}
IMPALA |= {"value_coef": 0.5, "rho_clip": 1.0, "c_clip": 1.0}
A2C: dict[str, Any] = {"learning_rate": 7e-4, "learning_rate_schedule": "linear", "gamma": 0.99, "gae_lambda": 1.0}
A2C |= {"entropy_coef": 0.01, "value_coef": 0.5, "max_grad_norm": 0.5}
SAC: dict[str, Any] = {"learning_rate": 3e-4, "gamma": 0.99, "batch_size": 256, "capacity": 1_000_000}
SAC |= {"ema_rate": 0.005, "hidden_sizes": (256, 256), "activation": "relu", "target_entropy": None}
TD3: dict[str, Any] = {"learning_rate": 3e-4, "gamma": 0.99, "batch_size": 256, "capacity": 1_000_000}
TD3 |= {"ema_rate": 0.005, "hidden_sizes": (256, 256), "activation": "relu", "policy_delay": 2}
TD3 |= {"exploration_noise": 0.1, "target_policy_noise": 0.2, "target_noise_clip": 0.5}
CROSSQ: dict[str, Any] = {"learning_rate": 1e-3, "policy_delay": 3, "gamma": 0.99, "batch_size": 256}
CROSSQ |= {"activation": "relu", "target_entropy": None, "adam_beta1": 0.5}
PEARL: dict[str, Any] = {
    "train_tasks": 100,
    "test_tasks": 30,
    "meta_batch": 16,
    "batch_size": 16 * 256,
    "context_size": 100,
}
PEARL |= {"prior_steps": 400, "extra_steps": 600, "latent_size": 5, "context_hidden_sizes": (200, 200, 200)}
PEARL |= {"learning_rate": 3e-4, "gamma": 0.99, "ema_rate": 0.005}
SOURCES = {"ppo": PPO, "impala": IMPALA, "a2c": A2C, "sac": SAC, "td3": TD3, "crossq": CROSSQ, "pearl": PEARL}
"""Algorithm -> the values of the source that its docstring names."""


@pytest.mark.parametrize("name", SOURCES)
def test_settings_that_the_docstring_attributes_to_a_source_have_the_values_of_the_source(name):
    config: Any = algorithm_entry(name).config_class()
    sentence = re.search(r"From .*?\. All other defaults", config.__doc__, re.DOTALL)
    assert sentence
    attributed = re.findall(r"`(\w+)`", sentence[0])
    settings = config()
    values = {key: getattr(settings, key) for key in attributed}
    if "hidden_sizes" in values:
        values["hidden_sizes"] = settings.policy_spec(ENV).hidden_sizes
    assert values == SOURCES[name]
