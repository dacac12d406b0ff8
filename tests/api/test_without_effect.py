"""A run warns of the settings that have no effect beside its other settings or in its env."""

from __future__ import annotations

import re
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

import offbeat
from offbeat.api.running.start_warnings import start_warnings
from offbeat.config.resolve import resolve
from offbeat.core.errors import WithoutEffect
from offbeat.runtime.runtimes import build

SMALL: dict[str, Any] = {"steps": 64, "hidden_sizes": (8,), "eval_every": 0}
UNROLLS: dict[str, Any] = {"unroll_length": 16, "envs_per_actor": 4}
REPLAY: dict[str, Any] = {"warmup": 40, "batch_size": 8, "capacity": 500, "envs_per_actor": 4}
PIXELS = "offbeat/Pixels-v0"
CARTS = "offbeat.envs.testing.worlds:CartPoles"
OWN_ENCODER = f"{__name__}:Floats"
RATES = {"policy_learning_rate": 1e-4, "critic_learning_rate": 1e-4, "learning_rate": 1e-3}


class Floats(nn.Module):
    """Flattens what is observed, whatever it is."""

    def __init__(self, leaf: Any) -> None:
        super().__init__()
        self.leaf = leaf

    def forward(self, observations: Tensor) -> Tensor:
        return observations.float().reshape(len(observations), -1)


def train(path: Path, **settings: Any) -> offbeat.Run:
    return offbeat.train(
        "ppo", "CartPole-v1", run_dir=path, preset="none", progress="none", **{**SMALL, **UNROLLS, **settings}
    )


def policies_of(**settings: Any) -> dict[str, Any]:
    """Return the tables of two policies; the first has these settings of its own."""
    return {"own": {"agents": "cart_1", "settings": settings}, "other": {"agents": "*"}}


def warnings_of(algorithm: str, env: str, **settings: Any) -> list[str]:
    """Return what a new run would say of settings without effect."""
    memory = REPLAY if algorithm in ("dqn", "sac", "td3") else UNROLLS
    flags = {key: value for key, value in {**SMALL, **memory, **settings}.items() if value is not None}
    with closing(build(resolve(algorithm, env, preset="none", flags=flags))) as parts:
        return [str(warning) for warning in start_warnings(parts) if isinstance(warning, WithoutEffect)]


@pytest.mark.parametrize(
    ("algorithm", "env", "settings", "says"),
    [
        ("ppo", "CartPole-v1", {"normalize_returns": False, "return_scale": 2}, "return_scale is 2.*_returns=true"),
        ("a2c", "CartPole-v1", {"log_std_init": -1}, "log_std_init is -1.*in CartPole-v1, where all actions are disc"),
        ("ppo", "CartPole-v1", {"epochs": 1, "recompute_advantages": True}, "recompute_advantages is true.*epochs=2"),
        ("ppo", "CartPole-v1", {"epochs": 1, "kl_target": 0.1}, "kl_target is 0.1.*while epochs is 1.*epochs=2"),
        ("a2c", "FrozenLake-v1", {"normalize_observations": True}, "normalize_observations is true.*choices or enc"),
        ("dqn", PIXELS, {"hidden_sizes": None, "normalize_observations": True}, "^normalize_observations is true"),
        ("ppo", "CartPole-v1", {"c_clip": 1}, "c_clip is 1.*pass --set clip_reference=proximal, or leave it out"),
        ("a2c", "CartPole-v1", {"c_clip": 2}, "c_clip is 2.*with max_lag=0 and passes=1"),
        ("impala", "CartPole-v1", {"max_lag": 0, "rho_clip": 2}, "rho_clip is 2.*with max_lag=0 and passes=1"),
        ("ppo", "CartPole-v1", {"clip_reference": "proximal", "c_clip": 1}, "c_clip is 1.*with max_lag=0 and passes=1"),
        ("a2c", "CartPole-v1", {"hidden_sizes": (), "layer_norm": True}, "layer_norm is true.*without hidden layers"),
        (
            "ppo",
            PIXELS,
            {"hidden_sizes": None, "activation": "relu"},
            "activation is relu.*pass --set hidden_sizes=128",
        ),
        ("td3", "Pendulum-v1", {"target_policy_noise": 0, "target_noise_clip": 1}, "target_noise_clip is 1.*noise=0.2"),
        ("ppo", "CartPole-v1", {"core_size": 64}, "^core_size is 64, which has no effect without a core.*core=gru"),
        ("ppo", "CartPole-v1", {"exploration": "symmetric_kl"}, "^exploration is symmetric_kl.*entropy_coef=0.01"),
        (
            "a2c",
            "CartPole-v1",
            {"entropy_coef": 0, "entropy_coef_schedule": "0:1 1:0.5"},
            "the weight entropy_coef is 0",
        ),
        ("dqn", "CartPole-v1", {"burn_in": 8}, "^burn_in is 8.*without a core.*--set core=gru"),
        ("dqn", "CartPole-v1", {"priority_delay": 1}, "^priority_delay is 1.*while prioritized is false.*=true"),
        ("sac", "Pendulum-v1", {"temperature": 0.1, "target_entropy": -1}, "^target_entropy is -1.*fixed at 0.1.*none"),
        ("sac", "Pendulum-v1", {"temperature": 0.1, "initial_temperature": 2}, "^initial_temperature is 2.*=none"),
        ("td3", "Pendulum-v1", RATES, "^learning_rate is 0.001, which has no effect while each part"),
        ("ppo", "CartPole-v1", {"encoder": OWN_ENCODER}, f"^normalize_observations is true.* what {OWN_ENCODER} gets"),
        (
            *("sac", "Pendulum-v1", {"encoder": OWN_ENCODER, "normalize_observations": True}),
            "the env or in the encoder, and pass --set normalize_observations=false$",
        ),
    ],
)
def test_a_new_run_warns_of_a_setting_without_effect(algorithm, env, settings, says):
    (warning,) = warnings_of(algorithm, env, **settings)
    assert re.search(says, warning)


@pytest.mark.parametrize(
    ("algorithm", "env", "settings"),
    [
        ("ppo", "Pendulum-v1", {"log_std_init": -1, "return_scale": 2, "recompute_advantages": True}),
        ("ppo", "CartPole-v1", {"clip_reference": "proximal", "c_clip": 1, "max_lag": 1, "runtime": "threads"}),
        ("a2c", "CartPole-v1", {"passes": 2, "c_clip": 2}),
        ("ppo", "CartPole-v1", {"epochs": 1, "minibatch_size": 8, "learning_rate_schedule": "kl", "kl_target": 0.1}),
        ("ppo", "FrozenLake-v1", {}),
        ("impala", "CartPole-v1", {"max_lag": 0, "rho_clip": 0.5}),
        ("ppo", PIXELS, {"activation": "relu", "layer_norm": True}),
        ("ppo", PIXELS, {"encoder": OWN_ENCODER}),
        ("ppo", "FrozenLake-v1", {"encoder": OWN_ENCODER}),
        ("ppo", "CartPole-v1", {"encoder": OWN_ENCODER, "normalize_observations": False}),
        ("sac", "Pendulum-v1", RATES),  # the temperature has this learning rate
        ("ppo", "tests.sample_envs.drawn_worlds:DrawnSpaces", {"policies": "separate", "log_std_init": -1}),
        ("ppo", CARTS, {"core": "gru", "core_size": 8, "policies": policies_of(core="none")}),
        ("dqn", CARTS, {"core": "gru", "burn_in": 4, "chunk_length": 4, "policies": policies_of(core="none")}),
    ],
)
def test_a_run_in_which_a_policy_uses_each_setting_does_not_warn(algorithm, env, settings):
    assert warnings_of(algorithm, env, **settings) == []


def test_a_run_warns_once_in_the_line_of_its_caller_and_in_its_log_and_not_again_when_it_is_resumed(tmp_path):
    with pytest.warns(WithoutEffect) as found:
        run = train(tmp_path / "run", epochs=1, recompute_advantages=True)
    assert [warning.filename for warning in found if warning.category is WithoutEffect] == [__file__]
    assert (run.path / "log.txt").read_text().count("which has no effect") == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", WithoutEffect)
        offbeat.resume(run.path, steps=128, progress="none")


def test_a_resume_warns_of_a_setting_that_it_changes_without_effect(tmp_path):
    run = train(tmp_path / "run")
    with pytest.warns(WithoutEffect, match="rho_clip is 0.5, which has no effect"):
        offbeat.resume(run.path, steps=128, rho_clip=0.5, progress="none")
    assert (run.path / "log.txt").read_text().count("rho_clip is 0.5, which has no effect") == 1
