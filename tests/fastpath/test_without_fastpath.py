"""Without the folder of fast paths everything works, slower."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("offbeat.fastpath"):
            raise ModuleNotFoundError(name=name if name == "offbeat.fastpath" else "offbeat.fastpath")

sys.meta_path.insert(0, Missing())
import offbeat
from offbeat.models.torch_acting import TorchNetwork

settings = dict(hidden_sizes=(8,), eval_every=0, seed=1, **{settings})
run = offbeat.train({algorithm!r}, {env!r}, run_dir={directory!r}, **settings)
assert run.metrics["updates"] > 0, run.metrics
assert isinstance(offbeat.load({directory!r}).policy.network, TorchNetwork)
assert not [name for name in sys.modules if name.startswith("offbeat.fastpath")]
"""


@pytest.mark.parametrize(
    ("algorithm", "env", "settings"),
    [
        ("sac", "Pendulum-v1", {"steps": 60, "warmup": 20, "batch_size": 8, "capacity": 100}),
        ("ppo", "CartPole-v1", {"steps": 512, "unroll_length": 32, "envs_per_actor": 8}),
    ],
)
def test_training_and_acting_work_without_the_fastpath_package(tmp_path, algorithm, env, settings):
    program = WITHOUT.format(algorithm=algorithm, env=env, directory=str(tmp_path / "run"), settings=settings)
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
