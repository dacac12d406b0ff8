"""PPO of Tianshou on one piece of work; started by `speed.py` in the peer's own environment.

    python benchmarks/peers/tianshou_ppo.py '{"env": "CartPole-v1", ..., "seed": 1, "threads": 1}'

Prints one JSON object: the versions and the curve [env_steps, wall_time_s, episode_return_mean]. A point is
taken when all env steps so far have been learned from, as in offbeat's metrics.jsonl.
"""

from __future__ import annotations

from typing import Any

import gymnasium
from measuring import Curve, given, report, start_on_cpu
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy, ProbabilisticActorPolicy
from tianshou.data import VectorReplayBuffer
from tianshou.env import VectorEnvNormObs
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor
from tianshou_measuring import QUIET, ScoringCollector, adam, layers, make_envs
from torch.distributions import Categorical, Independent, Normal


def make_policy(work: dict[str, Any], env: Any) -> Any:
    """Return a categorical policy, or a Gaussian one whose log standard deviation begins at 0."""
    net, space = layers(work, env), env.action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        actor = DiscreteActor(preprocess_net=net, action_shape=space.n, softmax_output=False)
        policy: Any = DiscreteActorPolicy(
            actor=actor, dist_fn=lambda logits: Categorical(logits=logits), action_space=space
        )
        return policy
    return ProbabilisticActorPolicy(
        actor=ContinuousActorProbabilistic(preprocess_net=net, action_shape=space.shape, unbounded=True),
        dist_fn=lambda mean_and_scale: Independent(Normal(*mean_and_scale), 1),
        action_space=space,
    )


def make_algorithm(work: dict[str, Any], env: Any) -> PPO:
    """Return PPO with a network each for policy and value."""
    return PPO(
        policy=make_policy(work, env),
        critic=ContinuousCritic(preprocess_net=layers(work, env)),
        optim=adam(work),
        eps_clip=work["clip"],
        advantage_normalization=work["normalize_advantages"],
        vf_coef=work["value_coef"] / 2,  # here the loss is the whole squared error, in offbeat half of it
        ent_coef=work["entropy_coef"],
        max_grad_norm=work["max_grad_norm"],
        gae_lambda=work["gae_lambda"],
        max_batchsize=work["envs"] * work["unroll_length"],  # values of a whole batch at once
        gamma=work["gamma"],
        return_scaling=work["normalize_returns"],
    )


def main() -> None:
    """Train, then print what was measured."""
    work = given()
    start_on_cpu(work)
    env, envs = gymnasium.make(work["env"]), make_envs(work)
    algorithm, curve, rows = make_algorithm(work, env), Curve(), work["envs"] * work["unroll_length"]
    collector = ScoringCollector(
        curve,
        algorithm,
        VectorEnvNormObs(envs) if work["normalize_observations"] else envs,
        VectorReplayBuffer(rows, work["envs"]),
    )
    params = OnPolicyTrainerParams(
        training_collector=collector,
        max_epochs=1,
        epoch_num_steps=work["steps"],
        collection_step_num_env_steps=rows,
        batch_size=work["minibatch_size"],
        update_step_num_repetitions=work["epochs"],
        training_fn=lambda _epoch, env_steps: curve.take(env_steps),
        **QUIET,
    )
    algorithm.run_training(params)
    curve.take(-(-work["steps"] // rows) * rows)
    report(("tianshou", "torch"), curve.points)


if __name__ == "__main__":
    main()
