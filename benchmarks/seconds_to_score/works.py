"""What is trained until which score, and the best published settings of the peers.

Sources of the peers' settings: RL Baselines3 Zoo, hyperparams/ppo.yml; for Sample Factory its own example for MuJoCo.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from benchmarks.works import EARLIER, PPO, Settings
from offbeat.config.preset_files import preset_tables

OURS = "offbeat"
SAMPLE_FACTORY = "sample-factory"
PEERS = ("sb3", "sbx", SAMPLE_FACTORY)
SEEDS = 5


@dataclass(frozen=True)
class Work:
    """An env and the scores to reach in it."""

    name: str
    env: str
    preset: str
    """Of offbeat: its runtime, actors and settings, chosen for the seconds on two cores."""
    scores: tuple[float, ...]
    """Mean returns of an evaluation, in rising order; a run ends at the last."""
    eval_every: int
    """Env steps between evaluations, on all sides."""
    peer_steps: int
    """Env steps of the peers, over which schedules run, and after which they have failed. Those of offbeat are in its
    preset."""
    peer: Settings | None = None
    """Settings of the peers, where they differ from `benchmarks.works.PPO`; None: no peer is run."""
    arguments: tuple[str, ...] = ()
    """Arguments of `offbeat train` beside the preset."""
    sample_factory_steps: int = 0
    """Env steps of Sample Factory, whose own example has its settings; 0 if it has none for this env."""
    chosen_on: range = range(0)
    """The seeds on which the preset was chosen: they do not count on any side."""

    @property
    def seeds(self) -> range:
        """The seeds that are run."""
        first = self.chosen_on.stop if 1 in self.chosen_on else 1
        return range(first, first + SEEDS)

    @property
    def sides(self) -> list[str]:
        """The sides that can be run."""
        peers = [] if self.peer is None else ["sb3", "sbx"]
        return [OURS, *peers, *([SAMPLE_FACTORY] if self.sample_factory_steps else [])]

    def peer_settings(self, side: str, seed: int) -> Settings:
        """Return all that a peer is given."""
        steps = self.sample_factory_steps if side == SAMPLE_FACTORY else self.peer_steps
        own = {"env": self.env, "steps": steps, "seed": seed, "eval_every": self.eval_every, "scores": self.scores}
        if side == SAMPLE_FACTORY:
            return own
        return {**PPO, **(self.peer or {}), **own}

    def digest(self, side: str) -> str:
        """Return a digest of a side's settings: a record of other ones is not of this work."""
        given = preset_tables("ppo", self.env, self.preset) if side == OURS else self.peer_settings(side, 0)
        more = self.arguments if side == OURS else ()
        text = json.dumps([_as_recorded(given), self.eval_every, *more], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _as_recorded(settings: Settings) -> Settings:
    """Return settings, or tables of them, without those that older records do not name but had."""
    named = {key: value for key, value in settings.items() if key not in EARLIER or value != EARLIER[key]}
    return {key: _as_recorded(value) if isinstance(value, dict) else value for key, value in named.items()}


WORKS = (
    Work(
        "cartpole", "CartPole-v1", "ppo-cartpole-fast", (475,), 2048, 100_000,
        {
            "envs": 8, "unroll_length": 32, "minibatch_size": 256, "epochs": 20, "gamma": 0.98, "gae_lambda": 0.8,
            "learning_rate": 1e-3, "learning_rate_schedule": "linear", "clip": 0.2, "clip_schedule": "linear",
        },
        chosen_on=range(1, 9),
    ),
    Work(
        "lunarlander", "LunarLander-v3", "ppo-lunarlander-fast", (200,), 50_000, 1_000_000,
        {
            "envs": 16, "unroll_length": 1024, "minibatch_size": 64, "epochs": 4, "gamma": 0.999, "gae_lambda": 0.98,
            "learning_rate": 3e-4, "entropy_coef": 0.01,
        },
        chosen_on=range(101, 102),
    ),
    Work(
        "halfcheetah", "HalfCheetah-v5", "ppo-halfcheetah-fast", (3000, 5000), 50_000, 1_000_000,
        {
            "envs": 1, "unroll_length": 512, "minibatch_size": 64, "epochs": 20, "gamma": 0.98, "gae_lambda": 0.92,
            "learning_rate": 2.0633e-5, "entropy_coef": 0.000401762, "clip": 0.1, "value_coef": 1.16192,
            "max_grad_norm": 0.8, "hidden_sizes": [256, 256], "activation": "relu", "log_std_init": -2.0,
            "ortho_init": False, "normalize_observations": True, "normalize_returns": True,
        },
        chosen_on=range(101, 104), sample_factory_steps=10_000_000,
    ),
    Work(
        "hopper", "Hopper-v5", "ppo-hopper-fast", (2500,), 50_000, 1_000_000,
        {
            "envs": 1, "unroll_length": 512, "minibatch_size": 32, "epochs": 5, "gamma": 0.999, "gae_lambda": 0.99,
            "learning_rate": 9.80828e-5, "entropy_coef": 0.00229519, "value_coef": 1.671342, "max_grad_norm": 0.7,
            "hidden_sizes": [256, 256], "activation": "relu", "log_std_init": -2.0, "ortho_init": False,
            "normalize_observations": True, "normalize_returns": True,
        },
        chosen_on=range(101, 104),
    ),
    Work(
        "walker2d", "Walker2d-v5", "ppo-walker2d-fast", (3000,), 50_000, 1_000_000,
        {
            "envs": 1, "unroll_length": 512, "minibatch_size": 32, "epochs": 20, "gamma": 0.99, "gae_lambda": 0.95,
            "learning_rate": 5.05041e-5, "entropy_coef": 0.000585045, "clip": 0.1, "value_coef": 1.743846,
            "max_grad_norm": 1.0, "normalize_observations": True, "normalize_returns": True,
        },
        chosen_on=range(101, 103),
    ),
    Work(
        "pong", "PongNoFrameskip-v4", "ppo-pongnoframeskip-v4", (18,), 100_000, 2_000_000,
        arguments=("--steps", "2000000", "--runtime", "processes", "--actors", "1", "--set", "encoder=simple_cnn"),
    ),
)  # fmt: skip
