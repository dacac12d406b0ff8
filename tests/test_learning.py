"""It learns: values that are known in closed form, and scores."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.reference.runs import offbeat, small_run

from offbeat.checkpoint import load
from offbeat.envs.known_values import CHAIN, RING, exact_values
from offbeat.models.numpy_mlp import NumpyMLP
from offbeat.training import train

# --- values -------------------------------------------------------------------------------------------------

GAMMA = 0.9
CRITIC: dict[str, Any] = {
    "steps": 16_000,
    "gamma": GAMMA,
    "gae_lambda": 0.5,
    "learning_rate": 3e-3,
    "hidden_sizes": (32,),
    "normalize_observations": False,
    "normalize_returns": False,
}


@pytest.mark.parametrize("max_lag", [0, 2])
@pytest.mark.parametrize(
    ("env", "positions"),
    [("ChainTruncates", RING), ("ChainTerminates", CHAIN), ("FailsOnLastStep", CHAIN), ("OneStep", CHAIN)],
)
def test_the_critic_approaches_values_known_in_closed_form(tmp_path, env, positions, max_lag):
    run = small_run(tmp_path / "run", f"offbeat/{env}-v0", max_lag=max_lag, **CRITIC)
    weights = load(run.path / "checkpoints" / "latest").weights
    observations = np.array([(place, noise) for place in range(positions) for noise in (0.1, 0.5, 0.9)], np.float32)
    values = NumpyMLP(["critic_body.0", "critic_head"], weights, "tanh").forward(observations)[:, 0]
    # A truncation that is taken for a termination, or the other way round, is off by several times as much.
    np.testing.assert_allclose(values, exact_values(f"offbeat/{env}-v0", observations, GAMMA), atol=0.4)


# --- scores -------------------------------------------------------------------------------------------------

HALF_OF_THE_PRESET = 100_000
"""Env steps, and all that the preset's source takes."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "layout"),
    [(1, {}), (2, {}), (3, {}), (4, {"max_lag": 1}), (5, {"actors": 2, "envs_per_actor": 4, "max_lag": 1})],
    ids=str,
)
def test_the_preset_solves_cartpole(tmp_path, seed, layout: dict[str, Any]):
    path = tmp_path / "run"
    settings = {"steps": HALF_OF_THE_PRESET, "eval_every": 0, "seed": seed, **layout}
    train("ppo", "CartPole-v1", run_dir=path, **settings)
    said = offbeat("eval", path, "--episodes", 20, "--json")
    assert json.loads(said.out)["return_mean"] >= 475
