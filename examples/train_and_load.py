"""Train from Python until it is good enough, then use the policy.

python examples/train_and_load.py --steps 50000
"""

from __future__ import annotations

import argparse
from typing import Any, Literal

import gymnasium as gym

import offbeat

GOOD_ENOUGH = 475.0
"""Mean return of an evaluation at which to stop: CartPole-v1 counts as solved from there."""


def stop_when_solved(line: dict[str, Any]) -> Literal["stop"] | None:
    """A callback: sees every metrics line, and may stop the run."""
    evaluation = line["eval_return_mean"]
    return "stop" if evaluation is not None and evaluation >= GOOD_ENOUGH else None


def play(policy: offbeat.LoadedPolicy, seed: int) -> float:
    """Play one episode; return its return."""
    env = gym.make("CartPole-v1")
    observation, _ = env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        total += float(reward)
        ended = terminated or truncated
    return total


def main() -> None:
    """Train, load and play."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50_000, help="env steps to learn from")
    steps = parser.parse_args().steps

    run = offbeat.train("ppo", "CartPole-v1", steps=steps, seed=1, callbacks=[stop_when_solved])
    print(f"{run.state}: {run.reason}, after {run.metrics['env_steps']} env steps, in {run.path}")
    print(f"one episode: return {play(offbeat.load(run.path), seed=7):.0f}")


if __name__ == "__main__":
    main()
