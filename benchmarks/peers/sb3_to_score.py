"""PPO of Stable-Baselines3, or of SBX, until a score; started by `seconds_to_score` in the peer's own environment.

    python benchmarks/peers/sb3_to_score.py '{"peer": "sb3", "env": "CartPole-v1", ..., "out": "evaluations.jsonl"}'

It appends one JSON object to the file for each evaluation, and ends when the last score is reached.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from measuring import given
from sb3_ppo import make_envs, make_model
from stable_baselines3.common.callbacks import EvalCallback


class Evaluations(EvalCallback):
    """Evaluates greedily, in as many envs as episodes, which is faster than one after the other."""

    def __init__(self, work: dict[str, Any]) -> None:
        """Evaluate every `eval_every` env steps."""
        episodes = work["eval_episodes"]
        envs = make_envs({**work, "envs": episodes, "seed": work["eval_seed"]})
        if hasattr(envs, "norm_reward"):
            envs.training = envs.norm_reward = False
        every = max(1, work["eval_every"] // work["envs"])
        super().__init__(envs, n_eval_episodes=episodes, eval_freq=every, verbose=0, warn=False)
        self._out = Path(work["out"])
        self._score = max(work["scores"])

    def _on_step(self) -> bool:
        goes_on = bool(super()._on_step())
        if self.n_calls % self.eval_freq:
            return goes_on
        line = {"eval_env_steps": self.num_timesteps, "eval_return_mean": float(self.last_mean_reward)}
        with self._out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return goes_on and bool(self.last_mean_reward < self._score)


def main() -> None:
    """Train until the score is reached."""
    work = given()
    torch.set_num_threads(work["threads"])
    make_model(work).learn(work["steps"], callback=Evaluations(work))


if __name__ == "__main__":
    main()
