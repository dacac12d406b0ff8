"""The works that speeds are measured on, and the sides that do them: offbeat's runtimes and the peers."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import finish, offbeat, read_metrics

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

CARTPOLE: Settings = {
    **PPO, "env": "CartPole-v1", "steps": 500_000, "envs": 32, "unroll_length": 32, "minibatch_size": 256, "epochs": 4,
}  # fmt: skip
ONE_EPOCH: Settings = {
    **PPO, "env": "CartPole-v1", "steps": 1_000_000, "envs": 64, "unroll_length": 32, "minibatch_size": 2048,
    "epochs": 1,
}  # fmt: skip
HALF_CHEETAH: Settings = {
    **PPO, "env": "HalfCheetah-v5", "steps": 500_000, "envs": 32, "unroll_length": 64, "minibatch_size": 1024,
    "epochs": 2, "normalize_observations": True, "normalize_returns": True,
}  # fmt: skip
WORKS = {"cartpole": CARTPOLE, "cartpole-one-epoch": ONE_EPOCH, "halfcheetah": HALF_CHEETAH}

LAYOUTS = {
    "serial": "--runtime serial --max-lag 0 --actors 1",
    "threads": "--runtime threads --max-lag 1 --lag bounded --actors 1",
    "threads-2": "--runtime threads --max-lag 1 --lag bounded --actors 2",
    "processes": "--runtime processes --max-lag 1 --lag bounded --actors 1",
    "processes-exact": "--runtime processes --max-lag 1 --lag exact --actors 1",
    "processes-2": "--runtime processes --max-lag 1 --lag bounded --actors 2",
    "processes-2-exact": "--runtime processes --max-lag 1 --lag exact --actors 2",
}
"""Sides of offbeat's own. A work's envs are dealt out to the actors, so that every side has the same batch."""
PEERS = {"sb3": "sb3_ppo.py", "sample-factory": "sample_factory_ppo.py"}
"""Sides that run in an environment of their own."""
SIDES: dict[str, tuple[str, ...]] = {
    "cartpole": ("serial", "threads", "processes", "processes-exact", "sb3"),
    "cartpole-one-epoch": ("serial", "processes", "processes-exact", "sample-factory"),
    "halfcheetah": (
        "serial", "threads", "processes", "processes-exact", "processes-2", "processes-2-exact", *PEERS,
    ),
}  # fmt: skip
"""What is compared on each work."""

NOT_SETTINGS = ("env", "envs", "steps", "seed", "threads")
NOTHING_ELSE = ("checkpoint_every=0", "eval_episodes=1")
"""What a run does besides training, as little of it as can be."""


def command(work: Settings, side: str) -> list[str]:
    """Return the arguments of `offbeat` that do a work in one of `LAYOUTS`, without evaluation and run directory."""
    layout = LAYOUTS[side].split()
    actors = int(layout[layout.index("--actors") + 1])
    run = f"train ppo {work['env']} --steps {work['steps']} --seed {work['seed']} --progress none"
    settings = [f"{key}={_text(value)}" for key, value in work.items() if key not in NOT_SETTINGS]
    return [*run.split(), *layout, "--envs-per-actor", str(work["envs"] // actors), "--set", *settings]


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def run_offbeat(work: Settings, side: str) -> Settings:
    """Train with offbeat and return its curve and policy lag."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        offbeat(*command(work, side), *NOTHING_ELSE, "--eval-every", "0", "--run-dir", str(run))
        lines = read_metrics(run)
    keys = ("env_steps", "wall_time_s", "episode_return_mean")
    lags = [[line[key] for line in lines if line[key] is not None] for key in ("policy_lag_mean", "policy_lag_max")]
    return {
        "curve": [[line[key] for key in keys] for line in lines],
        "policy_lag": [sum(lags[0]) / len(lags[0]), max(lags[1])],
    }


def run_peer(work: Settings, side: str, python: Path) -> Settings:
    """Train with a peer in its own environment, and return its curve and versions."""
    script = Path(__file__).parent / "peers" / PEERS[side]
    answer: Settings = json.loads(finish([str(python), str(script), json.dumps(work)]).splitlines()[-1])
    return answer
