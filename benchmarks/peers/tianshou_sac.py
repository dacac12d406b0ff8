"""SAC of Tianshou on one piece of work; started by `speed.py` in the peer's own environment.

    python benchmarks/peers/tianshou_sac.py '{"env": "HalfCheetah-v5", ..., "seed": 1, "threads": 2}'

Prints one JSON object: the versions and the curve [env_steps, wall_time_s, episode_return_mean]. A point is
taken when all env steps so far have been learned from, as in offbeat's metrics.jsonl.
"""

from __future__ import annotations

from math import log, prod
from typing import Any

import gymnasium
from measuring import Curve, given, report, start_on_cpu
from tianshou.algorithm import SAC
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.data import ReplayBuffer
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou_measuring import QUIET, ScoringCollector, adam, layers, make_envs

POINT_EVERY = 100
"""Env steps between the points of a curve."""


def make_algorithm(work: dict[str, Any], env: Any) -> SAC:
    """Return SAC with a learned temperature and two critics."""
    shape = env.action_space.shape
    actor = ContinuousActorProbabilistic(
        preprocess_net=layers(work, env), action_shape=shape, unbounded=True, conditioned_sigma=True
    )
    critics = [ContinuousCritic(preprocess_net=layers(work, env, with_action=True)) for _ in range(2)]
    return SAC(
        policy=SACPolicy(actor=actor, action_space=env.action_space),
        policy_optim=adam(work),
        critic=critics[0],
        critic_optim=adam(work),
        critic2=critics[1],
        critic2_optim=adam(work),
        tau=work["ema_rate"],
        gamma=work["gamma"],
        alpha=AutoAlpha(-float(prod(shape)), log(work["initial_temperature"]), adam(work)),
        n_step_return_horizon=work["n_step"],
    )


def main() -> None:
    """Train, then print what was measured."""
    work = given()
    start_on_cpu(work)
    env, warmup = gymnasium.make(work["env"]), work["warmup"]
    algorithm, curve = make_algorithm(work, env), Curve()
    collector = ScoringCollector(curve, algorithm, make_envs(work), ReplayBuffer(work["capacity"]))
    collector.reset()
    collector.collect(n_step=warmup, random=True)

    def before_a_step(_epoch: int, env_steps: int) -> None:
        if env_steps % POINT_EVERY == 0:
            curve.take(warmup + env_steps)

    params = OffPolicyTrainerParams(
        training_collector=collector,
        max_epochs=1,
        epoch_num_steps=work["steps"] - warmup,
        collection_step_num_env_steps=work["envs"],
        batch_size=work["batch_size"],
        update_step_num_gradient_steps_per_sample=work["utd_ratio"],
        training_fn=before_a_step,
        **QUIET,
    )
    algorithm.run_training(params)
    curve.take(work["steps"])
    report(("tianshou", "torch"), curve.points)


if __name__ == "__main__":
    main()
