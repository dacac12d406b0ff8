"""PPO of TorchRL on one piece of work; started by `speed.py` in the peer's own environment.

    python benchmarks/peers/torchrl_ppo.py '{"env": "CartPole-v1", ..., "seed": 1, "threads": 1}'

It has the parts and the order of TorchRL's own script for PPO. Prints one JSON object: the versions and the curve
[env_steps, wall_time_s, episode_return_mean]. A point is taken when all env steps so far have been learned from, as
in offbeat's metrics.jsonl.
"""

from __future__ import annotations

from typing import Any

import torch
from measuring import ACTIVATIONS, Curve, given, report, start_on_cpu
from tensordict.nn import AddStateIndependentNormalScale, TensorDictModule
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE
from torchrl_measuring import make_envs, returns_in


def make_network(work: dict[str, Any], envs: Any, outputs: int) -> MLP:
    """Return a network for observations."""
    inputs = envs.observation_spec["observation"].shape[-1]
    return MLP(inputs, outputs, num_cells=work["hidden_sizes"], activation_class=ACTIVATIONS[work["activation"]])


def make_policy(work: dict[str, Any], envs: Any) -> ProbabilisticActor:
    """Return a categorical policy, or a Gaussian one with a tanh behind it, as TorchRL's own script has."""
    spec = envs.full_action_spec_unbatched
    action, bounds = spec["action"], {}
    if action.dtype.is_floating_point:
        size = action.shape[-1]
        scale = AddStateIndependentNormalScale(size, scale_mapping="exp")
        net, keys = torch.nn.Sequential(make_network(work, envs, size), scale), ["loc", "scale"]
        distribution: Any = TanhNormal
        bounds = {"low": action.space.low, "high": action.space.high, "tanh_loc": False}
    else:
        net, keys, distribution = make_network(work, envs, action.space.n), ["logits"], torch.distributions.Categorical
    return ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=keys),
        in_keys=keys,
        spec=spec,
        distribution_class=distribution,
        distribution_kwargs=bounds,
        return_log_prob=True,
    )


class Learner:
    """The loss, the optimizer and the buffer of minibatches."""

    def __init__(self, work: dict[str, Any], policy: Any, critic: Any) -> None:
        self._work = work
        self._advantages = GAE(gamma=work["gamma"], lmbda=work["gae_lambda"], value_network=critic)
        self._loss = ClipPPOLoss(
            policy,
            critic,
            clip_epsilon=work["clip"],
            loss_critic_type="l2",
            critic_coeff=work["value_coef"] / 2,  # here the loss is the whole squared error, in offbeat half of it
            entropy_bonus=work["entropy_coef"] > 0,
            entropy_coeff=work["entropy_coef"],
            normalize_advantage=work["normalize_advantages"],
        )
        self._optimizer = torch.optim.Adam(self._loss.parameters(), lr=work["learning_rate"], eps=work["adam_eps"])
        self._buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(work["envs"] * work["unroll_length"]),
            sampler=SamplerWithoutReplacement(),
            batch_size=work["minibatch_size"],
        )

    def learn(self, batch: Any) -> None:
        """Learn from a batch."""
        with torch.no_grad():
            batch = self._advantages(batch)
        for _ in range(self._work["epochs"]):
            self._buffer.extend(batch.reshape(-1))
            for minibatch in self._buffer:
                losses = self._loss(minibatch)
                sum(loss for name, loss in losses.items() if name.startswith("loss_")).backward()
                torch.nn.utils.clip_grad_norm_(self._loss.parameters(), self._work["max_grad_norm"])
                self._optimizer.step()
                self._optimizer.zero_grad()


def main() -> None:
    """Train, then print what was measured."""
    work = given()
    start_on_cpu(work)
    envs, curve, env_steps = make_envs(work), Curve(), 0
    policy = make_policy(work, envs)
    learner = Learner(work, policy, ValueOperator(make_network(work, envs, 1), in_keys=["observation"]))
    rows = work["envs"] * work["unroll_length"]
    collector = Collector(envs, policy, frames_per_batch=rows, total_frames=-(-work["steps"] // rows) * rows)
    curve.take(0)
    for batch in collector:
        curve.returns.extend(returns_in(batch))
        learner.learn(batch)
        env_steps += batch.numel()
        curve.take(env_steps)
    collector.shutdown()
    report(("torchrl", "tensordict", "torch"), curve.points)


if __name__ == "__main__":
    main()
