"""What a subclass replaces is what runs, on plain networks and a CPU too, where its base has gradients of its own."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reference import own_methods
from tests.reference.matrix import OF_ALGORITHM
from torch import Tensor

from offbeat.algorithms.base import Minibatch
from offbeat.algorithms.crossq import CrossQ
from offbeat.algorithms.dqn import DQN
from offbeat.algorithms.ppo import PPO
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.td3 import TD3
from offbeat.api.train import train
from offbeat.core.errors import RunFailed

SMALL: dict[str, Any] = {"hidden_sizes": (8,), "eval_every": 0, "checkpoint_every": 0, "seed": 1}
ON_POLICY: dict[str, Any] = {"steps": 256, "unroll_length": 32, "envs_per_actor": 8}
TASKS: dict[str, Any] = {**OF_ALGORITHM["pearl"], "steps": 60, "warmup": 60}
TASKS |= {"envs_per_actor": 2, "batch_size": 8, "capacity": 100}
REPLAY: dict[str, Any] = {"steps": 30, "warmup": 20, "batch_size": 8, "capacity": 100}


@pytest.mark.parametrize("name", own_methods.CLASSES)
def test_an_overridden_method_runs_and_the_log_reports_training_with_autograd(tmp_path, name):
    own: type[Any] = own_methods.CLASSES[name]
    base = own.__mro__[1]
    replay = base in (SAC, TD3, CrossQ, DQN)
    env = "Pendulum-v1" if base in (SAC, TD3, CrossQ) else "CartPole-v1"
    settings = {**SMALL, **(REPLAY if replay else ON_POLICY), "shards": 2 if name.endswith("Cut") else 1}
    settings |= {"policy_delay": 1} if base in (TD3, CrossQ) else {}
    own_methods.CALLED.clear()
    run = train(own, env, run_dir=tmp_path / "run", **settings)
    calls = own_methods.CALLED.count(name)
    assert calls > 0
    if name.endswith("Loss"):
        assert calls >= run.metrics["updates"] > 0
    said = f"{name} is trained with autograd" in (tmp_path / "run" / "log.txt").read_text()
    assert said == (base is not DQN)


class BareLossPPO(PPO):
    """Returns a tensor in place of a LossResult."""

    def policy_loss(self, log_prob: Tensor, advantages: Tensor, minibatch: Minibatch) -> Any:  # noqa: ARG002
        return -(log_prob * advantages).mean()


class BareLossDQN(DQN):
    """Returns a tensor in place of a LossResult."""

    def loss(self, minibatch: Minibatch) -> Any:
        return super().loss(minibatch).loss


@pytest.mark.parametrize(("own", "settings"), [(BareLossPPO, ON_POLICY), (BareLossDQN, REPLAY)])
def test_a_loss_that_is_not_a_loss_result_is_refused_by_the_name_of_its_method(tmp_path, own, settings):
    with pytest.raises(RunFailed, match=rf"^{own.__name__}\.\w*loss returned a Tensor, but a LossResult is expected"):
        train(own, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **settings)


@pytest.mark.parametrize(("name", "settings"), [("ppo", ON_POLICY), ("pearl", TASKS)])
def test_the_log_of_a_built_in_algorithm_does_not_mention_autograd(tmp_path, name, settings):
    env = "offbeat/PointRobot-v0" if name == "pearl" else "CartPole-v1"
    train(name, env, run_dir=tmp_path / "run", **SMALL, **settings)
    assert "autograd" not in (tmp_path / "run" / "log.txt").read_text()
