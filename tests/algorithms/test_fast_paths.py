"""Fast paths are registered for exact classes, and everything works without them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.reference.models import policy_spec

import offbeat
from offbeat.algorithms import fast_paths
from offbeat.algorithms.fast_paths import autograd_notice, register
from offbeat.algorithms.ppo import PPO, PPOConfig
from offbeat.fastpath.ppo import PPOFastPath

TRAIN = """
import offbeat, sys
assert offbeat.__file__.startswith(sys.argv[1])
small = {"hidden_sizes": (8,), "eval_every": 0, "checkpoint_every": 0, "seed": 1, "progress": "none"}
ppo = offbeat.train("ppo", "CartPole-v1", steps=512, unroll_length=32, envs_per_actor=8, run_dir="ppo", **small)
sac = offbeat.train("sac", "Pendulum-v1", steps=60, warmup=20, batch_size=8, capacity=100, run_dir="sac", **small)
assert ppo.metrics["updates"] and sac.metrics["updates"], (ppo.metrics, sac.metrics)
assert not any(name.startswith("offbeat.fastpath") for name in sys.modules)
"""


class MyPPO(PPO):
    """PPO, unchanged."""


def made(algorithm_class: type[PPO], **settings: Any) -> PPO:
    config = PPOConfig(hidden_sizes=(8,), **settings)
    return algorithm_class(config, policy_spec("discrete"), seed=0, corrected=False)


def test_training_works_without_the_folder_of_fast_paths(tmp_path):
    package = Path(offbeat.__file__).parent
    shutil.copytree(package, tmp_path / "offbeat", ignore=shutil.ignore_patterns("fastpath", "__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", TRAIN, str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_a_subclass_has_a_fast_path_only_if_it_is_registered_itself(monkeypatch):
    assert made(PPO).stages[0].gradients is not None
    assert made(MyPPO).stages[0].gradients is None
    monkeypatch.setattr(fast_paths, "_ENTRIES", dict(fast_paths._ENTRIES))
    register(MyPPO, PPOFastPath, applies=PPOFastPath.applies)
    mine = made(MyPPO)
    assert mine.stages[0].gradients is not None
    assert autograd_notice(mine) == ""


@pytest.mark.parametrize(("settings", "noticed"), [({}, True), ({"shared_trunk": True}, False)])
def test_autograd_is_noticed_only_where_the_settings_would_have_allowed_a_fast_path(settings, noticed):
    assert ("MyPPO is trained with autograd" in autograd_notice(made(MyPPO, **settings))) is noticed
    assert autograd_notice(made(PPO, **settings)) == ""
