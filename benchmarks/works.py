"""The works that speeds are measured on, and the sides that do them: offbeat's runtimes and the peers."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import finish, offbeat
from offbeat.core.typed_text import as_text
from offbeat.metrics.sinks import read_metrics

Settings = dict[str, Any]
Curve = list[tuple[int, float, float | None]]
"""Points [env_steps, wall_time_s, episode_return_mean], each once all steps so far have been learned from."""

PPO: Settings = {
    "hidden_sizes": [64, 64],
    "activation": "tanh",
    "shared_trunk": False,
    "action_distribution": "auto",
    "log_std_init": 0.0,
    "learning_rate": 1e-3,
    "learning_rate_schedule": "constant",
    "adam_eps": 1e-5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip": 0.2,
    "clip_reference": "proximal",  # the default when this was measured first
    "clip_schedule": "constant",
    "value_clip": "none",
    "value_coef": 1.0,  # of half the squared error
    "entropy_coef": 0.0,
    "exploration": "entropy",
    "max_grad_norm": 0.5,
    "kl_target": "none",
    "recompute_advantages": False,
    "normalize_advantages": True,
    "normalize_observations": False,
    "normalize_returns": False,
}
"""Every key that decides the work or the result is given, so that no preset has a say."""
EARLIER: Settings = {"clip_reference": "proximal"}
"""Settings that older records do not name, with the values that all runs had before."""

CARTPOLE: Settings = {
    **PPO, "env": "CartPole-v1", "steps": 500_000, "envs": 32, "unroll_length": 32, "minibatch_size": 256, "epochs": 4,
}  # fmt: skip
ONE_EPOCH: Settings = {
    **PPO, "env": "CartPole-v1", "steps": 1_000_000, "envs": 64, "unroll_length": 32, "minibatch_size": 2048,
    "epochs": 1,
}  # fmt: skip
HALF_CHEETAH: Settings = {
    **PPO, "env": "HalfCheetah-v5", "steps": 300_000, "envs": 32, "unroll_length": 64, "minibatch_size": 1024,
    "epochs": 2, "normalize_observations": True, "normalize_returns": True, "return_scale": 1.0,
}  # fmt: skip
PONG: Settings = {
    **PPO, "env": "PongNoFrameskip-v4", "steps": 40_960, "envs": 64, "unroll_length": 16, "minibatch_size": 1024,
    "epochs": 1, "encoder": "nature_cnn", "hidden_sizes": "none", "activation": "relu", "shared_trunk": True,
    "learning_rate": 2.5e-4, "clip": 0.1, "entropy_coef": 0.01, "precision": "fp32",
}  # fmt: skip
"""In batches of 1,024 with the Nature CNN alone; Sample Factory steps EnvPool's game, the same emulator."""
PONG_BF16: Settings = {**PONG, "precision": "bf16"}
"""The same in bfloat16; Sample Factory has only float32."""
WORKS = {
    "cartpole": CARTPOLE,
    "cartpole-one-epoch": ONE_EPOCH,
    "halfcheetah": HALF_CHEETAH,
    "pong": PONG,
    "pong-bf16": PONG_BF16,
}

SAC: Settings = {
    "algorithm": "sac",
    "hidden_sizes": [256, 256],
    "activation": "relu",
    "critics": 2,
    "learning_rate": 3e-4,
    "policy_learning_rate": "none",
    "critic_learning_rate": "none",
    "temperature_learning_rate": "none",
    "adam_eps": 1e-8,
    "gamma": 0.99,
    "ema_rate": 0.005,
    "policy_delay": 1,
    "temperature": "none",  # learned
    "initial_temperature": 1.0,
    "target_entropy": "none",  # -1 for each number in an action
    "n_step": 1,
    "prioritized": False,
    "max_grad_norm": "none",
    "normalize_observations": False,
    "capacity": 1_000_000,
}
HALF_CHEETAH_SAC: Settings = {
    **SAC, "env": "HalfCheetah-v5", "steps": 12_000, "envs": 1, "batch_size": 256, "utd_ratio": 1, "warmup": 1_000,
    "measured_after": 2_000,
}  # fmt: skip
"""Measured after the warm-up and after JAX has compiled."""
HALF_CHEETAH_ASYNC_SAC: Settings = {**HALF_CHEETAH_SAC, "lock_free": True}
"""The same for workers that learn lock-free, each on one thread and with an env of its own; serial has two threads."""
CARTPOLE_A3C: Settings = {
    "algorithm": "a2c", "lock_free": True, "env": "CartPole-v1", "steps": 300_000, "envs": 8, "unroll_length": 5,
    "hidden_sizes": [64, 64],
    "activation": "tanh", "shared_trunk": False, "learning_rate": 7e-4, "learning_rate_schedule": "constant",
    "gamma": 0.99, "gae_lambda": 1.0, "entropy_coef": 0.0, "value_coef": 1.0, "max_grad_norm": 0.5, "adam_eps": 1e-5,
    "normalize_advantages": False, "normalize_observations": False, "normalize_returns": False,
}  # fmt: skip
REPLAY_WORKS = {"halfcheetah-sac": HALF_CHEETAH_SAC}
HOGWILD_WORKS = {"cartpole-a3c": CARTPOLE_A3C, "halfcheetah-async-sac": HALF_CHEETAH_ASYNC_SAC}

LAYOUTS = {
    "serial": "--runtime serial --max-lag 0 --actors 1",
    "threads": "--runtime threads --max-lag 1 --lag bounded --actors 1",
    "threads-2": "--runtime threads --max-lag 1 --lag bounded --actors 2",
    "processes": "--runtime processes --max-lag 1 --lag bounded --actors 1",
    "processes-exact": "--runtime processes --max-lag 1 --lag exact --actors 1",
    "processes-2": "--runtime processes --max-lag 1 --lag bounded --actors 2",
    "processes-2-exact": "--runtime processes --max-lag 1 --lag exact --actors 2",
    "processes-2-equals": "--runtime processes --max-lag 1 --lag bounded --actors 2 --set actor_nice=0",
    "serial-compiled": "--runtime serial --max-lag 0 --actors 1 --set kernels=numba",
    "processes-compiled": "--runtime processes --max-lag 1 --lag bounded --actors 1 --set kernels=numba",
}
"""Sides of offbeat's own. A work's envs are dealt out to the actors, so that every side has the same batch."""
REPLAY_LAYOUTS = {
    "serial": "--runtime serial --actors 1",
    "processes": "--runtime processes --lag bounded --actors 1",
    "processes-exact": "--runtime processes --lag exact --actors 1",
}
"""The same for works on a replay, where what max_lag is elsewhere follows from the runtime."""
HOGWILD_LAYOUTS = {
    "serial": "--runtime serial --actors 1",
    "hogwild-1": "--runtime hogwild --workers 1 --set hogwild=shared",
    "hogwild-2": "--runtime hogwild --workers 2 --set hogwild=shared",
    "hogwild-2-synced": "--runtime hogwild --workers 2 --set hogwild=synced",
}
"""The same for workers that learn lock-free: each has as many envs as the work names."""
PEERS = {
    "sb3": {"ppo": "sb3_ppo.py", "sac": "sb3_sac.py"},
    "sbx": {"sac": "sb3_sac.py"},
    "tianshou": {"ppo": "tianshou_ppo.py", "sac": "tianshou_sac.py"},
    "torchrl": {"ppo": "torchrl_ppo.py", "sac": "torchrl_sac.py"},
    "rl-games": {"ppo": "rl_games_ppo.py"},
    "sample-factory": {"ppo": "sample_factory_ppo.py"},
}
"""Sides that run in an environment of their own, and their scripts by algorithm."""
TORCH_PEERS = ("sb3", "tianshou", "torchrl", "rl-games")
"""Those of them that do all in one process, with as many torch threads as they are told."""
PEERS_IN_WORLDS = {"rllib": {"ppo": "rllib_ppo.py"}}
"""The same for sides that only `two_policies.py` measures."""
SIDES: dict[str, tuple[str, ...]] = {
    "cartpole": (
        "serial", "serial-compiled", "threads", "processes", "processes-compiled", "processes-exact", "sb3",
        "tianshou", "torchrl", "rl-games",
    ),
    "cartpole-one-epoch": (
        "serial", "serial-compiled", "processes", "processes-compiled", "processes-exact", "sample-factory",
    ),
    "halfcheetah": (
        "serial", "threads", "processes", "processes-exact", "processes-2", "processes-2-exact", "sb3",
        "tianshou", "torchrl", "rl-games", "sample-factory",
    ),
    "pong": ("serial", "processes-2", "sample-factory"),
    "pong-bf16": ("processes-2", "sample-factory"),
    "halfcheetah-sac": ("serial", "processes", "processes-exact", "sb3", "sbx", "tianshou", "torchrl"),
    "cartpole-a3c": ("serial", "hogwild-1", "hogwild-2", "hogwild-2-synced"),
    "halfcheetah-async-sac": ("serial", "hogwild-1", "hogwild-2", "hogwild-2-synced", "sbx"),
}  # fmt: skip
"""What is compared on each work."""

POLICIES = Path(__file__).parent / "specs" / "two-policies.toml"
"""The policies of a work with two of them."""
NOT_SETTINGS = (
    "algorithm", "lock_free", "env", "envs", "agents", "policies", "steps", "seed", "threads", "measured_after",
)  # fmt: skip
NOTHING_ELSE = {
    **dict.fromkeys(("ppo", "a2c"), ("checkpoint_every=0", "eval_episodes=1")),
    "sac": ("checkpoint_every=0", "eval_episodes=1", "save_replay=false"),
}
"""What a run does besides training, as little of it as can be."""


def algorithm_of(work: Settings) -> str:
    """Return the algorithm that does a work."""
    return str(work.get("algorithm", "ppo"))


def layouts_of(work: Settings) -> dict[str, str]:
    """Return the sides of offbeat's own for a work."""
    if work.get("lock_free"):
        return HOGWILD_LAYOUTS
    return REPLAY_LAYOUTS if algorithm_of(work) == "sac" else LAYOUTS


def command(work: Settings, side: str) -> list[str]:
    """Return the arguments of `offbeat` that do a work in one of its layouts, without evaluation and run directory."""
    layout = layouts_of(work)[side].split()
    actors = int(layout[layout.index("--actors") + 1]) if "--actors" in layout else 1
    steps = work["steps"] // work.get("agents", 1)
    run = f"train {algorithm_of(work)} {work['env']} --steps {steps} --seed {work['seed']} --progress none"
    settings = [f"{key}={as_text(value)}" for key, value in work.items() if key not in NOT_SETTINGS]
    policies = ["--policies", str(POLICIES)] if work.get("policies", 1) > 1 else []
    return [*run.split(), *policies, *layout, "--envs-per-actor", str(work["envs"] // actors), "--set", *settings]


def run_offbeat(work: Settings, side: str) -> Settings:
    """Train with offbeat and return its curve, and its policy lag where there is one."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        offbeat(*command(work, side), *NOTHING_ELSE[algorithm_of(work)], "--eval-every", "0", "--run-dir", str(run))
        lines = read_metrics(run)
    keys = ("agent_steps" if work.get("agents", 1) > 1 else "env_steps", "wall_time_s", "episode_return_mean")
    lags = [[line[key] for line in lines if line.get(key) is not None] for key in ("policy_lag_mean", "policy_lag_max")]
    return {
        "curve": [[line[key] for key in keys] for line in lines],
        "policy_lag": [sum(lags[0]) / len(lags[0]), max(lags[1])] if lags[0] else None,
    }


def run_peer(work: Settings, side: str, python: Path) -> Settings:
    """Train with a peer in its own environment, and return its curve and versions."""
    script = Path(__file__).parent / "peers" / {**PEERS, **PEERS_IN_WORLDS}[side][algorithm_of(work)]
    arguments = json.dumps({**work, "peer": side})
    answer: Settings = json.loads(finish([str(python), str(script), arguments]).splitlines()[-1])
    return answer
