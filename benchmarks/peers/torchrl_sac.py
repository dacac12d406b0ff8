"""SAC of TorchRL on one piece of work; started by `speed.py` in the peer's own environment.

    python benchmarks/peers/torchrl_sac.py '{"env": "HalfCheetah-v5", ..., "seed": 1, "threads": 2}'

It has the parts and the order of TorchRL's own script for SAC. Prints one JSON object: the versions and the curve
[env_steps, wall_time_s, episode_return_mean]. A point is taken when all env steps so far have been learned from, as
in offbeat's metrics.jsonl.
"""

from __future__ import annotations

from typing import Any

import torch
from measuring import ACTIVATIONS, Curve, given, report, start_on_cpu
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss, SoftUpdate
from torchrl_measuring import make_envs, returns_in

POINT_EVERY = 100
"""Env steps between the points of a curve."""


def make_network(work: dict[str, Any], inputs: int, outputs: int) -> MLP:
    """Return a network."""
    return MLP(inputs, outputs, num_cells=work["hidden_sizes"], activation_class=ACTIVATIONS[work["activation"]])


def make_models(work: dict[str, Any], env: Any) -> tuple[ProbabilisticActor, ValueOperator]:
    """Return the policy and a critic."""
    action = env.action_spec_unbatched
    size, inputs = action.shape[-1], env.observation_spec["observation"].shape[-1]
    net = torch.nn.Sequential(make_network(work, inputs, 2 * size), NormalParamExtractor(scale_mapping="exp"))
    policy = ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        spec=action,
        distribution_class=TanhNormal,
        distribution_kwargs={"low": action.space.low, "high": action.space.high, "tanh_loc": False},
    )
    return policy, ValueOperator(make_network(work, inputs + size, 1), in_keys=["action", "observation"])


class Learner:
    """The loss, the optimizer, the target critics and the replay buffer."""

    def __init__(self, work: dict[str, Any], policy: ProbabilisticActor, critic: ValueOperator) -> None:
        self._loss = SACLoss(
            policy, critic, num_qvalue_nets=work["critics"], loss_function="l2", alpha_init=work["initial_temperature"]
        )
        self._loss.make_value_estimator(gamma=work["gamma"])
        self._targets = SoftUpdate(self._loss, tau=work["ema_rate"])
        self._optimizer = torch.optim.Adam(self._loss.parameters(), lr=work["learning_rate"], eps=work["adam_eps"])
        self.buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(work["capacity"]), batch_size=work["batch_size"])

    def update(self) -> None:
        """Make one update of policy, critics and temperature."""
        losses = self._loss(self.buffer.sample())
        (losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]).backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._targets.step()


def main() -> None:
    """Train, then print what was measured."""
    work = given()
    start_on_cpu(work)
    env, curve, env_steps = make_envs(work), Curve(), 0
    policy, critic = make_models(work, env)
    learner = Learner(work, policy, critic)
    collector = Collector(
        env, policy, frames_per_batch=work["envs"], total_frames=work["steps"], init_random_frames=work["warmup"]
    )
    for batch in collector:
        curve.returns.extend(returns_in(batch))
        learner.buffer.extend(batch.reshape(-1))
        env_steps += batch.numel()
        if env_steps > work["warmup"]:
            for _ in range(batch.numel() * work["utd_ratio"]):
                learner.update()
        if env_steps % POINT_EVERY == 0:
            curve.take(env_steps)
    collector.shutdown()
    report(("torchrl", "tensordict", "torch"), curve.points)


if __name__ == "__main__":
    main()
