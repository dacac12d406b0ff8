"""Without the folder of fast paths everything works, slower."""

from __future__ import annotations

from tests.support.runs import run_python

WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("offbeat.fastpath"):
            raise ModuleNotFoundError(name=name if name == "offbeat.fastpath" else "offbeat.fastpath")

sys.meta_path.insert(0, Missing())
for name in [name for name in sys.modules if name.startswith("offbeat")]:
    del sys.modules[name]
import offbeat
from offbeat.models.torch_acting import TorchNetwork

settings = dict(hidden_sizes=(8,), eval_every=0, seed=1)
sac = dict(steps=60, warmup=20, batch_size=8, capacity=100)
ppo = dict(steps=512, unroll_length=32, envs_per_actor=8)
for algorithm, env, more in (("sac", "Pendulum-v1", sac), ("ppo", "CartPole-v1", ppo)):
    run = offbeat.train(algorithm, env, run_dir=algorithm, **settings, **more)
    assert run.metrics["updates"] > 0, run.metrics
    assert isinstance(offbeat.load(algorithm).acting_policy.network, TorchNetwork), algorithm
assert not [name for name in sys.modules if name.startswith("offbeat.fastpath")]
"""


def test_training_and_acting_work_without_the_fastpath_package(tmp_path):
    said = run_python(WITHOUT, folder=tmp_path)
    assert said.code == 0, said.err
