"""PPO of rl_games on one piece of work; started by `speed.py` in the peer's own environment.

    python benchmarks/peers/rl_games_ppo.py '{"env": "HalfCheetah-v5", ..., "seed": 1, "threads": 1}'

Prints one JSON object: the versions and the curve [env_steps, wall_time_s, episode_return_mean]. A point is
taken when all env steps so far have been learned from, as in offbeat's metrics.jsonl.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from measuring import Curve, given, report, start_on_cpu
from rl_games.common import env_configurations, vecenv
from rl_games.common.algo_observer import AlgoObserver
from rl_games.common.ivecenv import IVecEnv
from rl_games.torch_runner import Runner

NAME = "gymnasium"
"""The name that the envs are registered by."""
NEVER = 10**9


class VectorEnv(IVecEnv):
    """Gymnasium's vector env: rl_games has Ray's processes or EnvPool, and takes others by this interface."""

    def __init__(self, work: dict[str, Any]) -> None:
        make = partial(gymnasium.make, work["env"], disable_env_checker=True)
        self._envs = SyncVectorEnv([make] * work["envs"], autoreset_mode=AutoresetMode.SAME_STEP)
        self._seed: int | None = work["seed"]

    def reset(self) -> Any:
        """Return the first observations."""
        observations, _ = self._envs.reset(seed=self._seed)
        return observations.astype(np.float32)

    def step(self, actions: Any) -> Any:
        """Return observations, rewards, whether episodes have ended, and which were cut off."""
        observations, rewards, terminated, truncated, _ = self._envs.step(actions)
        ended = np.logical_or(terminated, truncated)
        return observations.astype(np.float32), rewards.astype(np.float32), ended, {"time_outs": truncated}

    def get_env_info(self) -> dict[str, Any]:
        """Return the spaces of an env."""
        return {
            "observation_space": self._envs.single_observation_space,
            "action_space": self._envs.single_action_space,
        }


class Observer(AlgoObserver):
    """Takes a point after each learning step."""

    def __init__(self, curve: Curve) -> None:
        super().__init__()
        self._curve = curve

    def after_init(self, algo: Any) -> None:
        """Keep the algorithm."""
        self._algorithm = algo

    def process_infos(self, infos: Any, done_indices: Any) -> None:  # noqa: ARG002
        """Note the returns of the episodes that end."""
        self._curve.returns.extend(self._algorithm.current_rewards[done_indices].flatten().tolist())

    def after_print_stats(self, frame: int, epoch_num: int, total_time: float) -> None:  # noqa: ARG002
        """Take a point, unless this is the second call for a learning step."""
        env_steps = self._algorithm.frame
        if env_steps > self._curve.points[-1][0]:
            self._curve.take(env_steps)


def parameters(work: dict[str, Any], folder: str) -> dict[str, Any]:
    """Return the work in rl_games' words."""
    discrete = isinstance(gymnasium.make(work["env"]).action_space, gymnasium.spaces.Discrete)
    gaussian = {
        "mu_activation": "None",
        "sigma_activation": "None",
        "mu_init": {"name": "default"},
        "sigma_init": {"name": "const_initializer", "val": work["log_std_init"]},
        "fixed_sigma": True,  # it does not depend on observations
    }
    rows = work["envs"] * work["unroll_length"]
    return {
        "seed": work["seed"],
        "torch_threads": work["threads"],
        "algo": {"name": "a2c_discrete" if discrete else "a2c_continuous"},
        "model": {"name": "discrete_a2c" if discrete else "continuous_a2c_logstd"},
        "network": {
            "name": "actor_critic",
            "separate": not work["shared_trunk"],
            "space": {"discrete": {}} if discrete else {"continuous": gaussian},
            "mlp": {
                "units": work["hidden_sizes"],
                "activation": work["activation"],
                "initializer": {"name": "default"},
            },
        },
        "config": {
            "name": "run",
            "env_name": NAME,
            "train_dir": folder,
            "device": "cpu",
            "num_actors": work["envs"],
            "horizon_length": work["unroll_length"],
            "minibatch_size": work["minibatch_size"],
            "mini_epochs": work["epochs"],
            "max_epochs": -(-work["steps"] // rows),  # learning steps
            "learning_rate": work["learning_rate"],
            "lr_schedule": None,
            "gamma": work["gamma"],
            "tau": work["gae_lambda"],
            "e_clip": work["clip"],
            "clip_value": False,
            "critic_coef": work["value_coef"],  # of half the squared error, as in offbeat
            "entropy_coef": work["entropy_coef"],
            "bounds_loss_coef": 0.0,
            "truncate_grads": True,
            "grad_norm": work["max_grad_norm"],
            "normalize_advantage": work["normalize_advantages"],
            "normalize_input": work["normalize_observations"],
            "normalize_value": work["normalize_returns"],
            "value_bootstrap": True,  # where an episode is cut off
            "reward_shaper": {"scale_value": 1.0},
            "print_stats": False,
            "save_best_after": NEVER,
        },
    }


def main() -> None:
    """Train, then print what was measured."""
    work = given()
    start_on_cpu(work)
    vecenv.register(NAME, lambda *_names, **_settings: VectorEnv(work))
    env_configurations.register(NAME, {"vecenv_type": NAME, "env_creator": None})
    curve = Curve()
    curve.take(0)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        runner = Runner(Observer(curve))
        runner.load({"params": parameters(work, folder)})
        runner.run({"train": True, "play": False})
    report(("rl-games", "torch"), curve.points)


if __name__ == "__main__":
    main()
