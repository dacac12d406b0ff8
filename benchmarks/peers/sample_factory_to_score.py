"""Asynchronous PPO of Sample Factory until a score; started by `seconds_to_score` in the peer's own environment.

    python benchmarks/peers/sample_factory_to_score.py '{"env": "HalfCheetah-v5", ..., "out": "evaluations.jsonl"}'

The settings are those of its own example for MuJoCo, which its published scores are from. It saves its weights each
second. A second process evaluates the first weights that were saved after each `eval_every` env steps, appends one
JSON object to the file for each evaluation, and ends all when the last score is reached. After the training it
evaluates what is left.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium
import numpy as np
import torch
from measuring import given
from numpy.typing import NDArray
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.model.actor_critic import ActorCritic, create_actor_critic
from sample_factory.model.model_utils import get_rnn_size
from sample_factory.train import make_runner
from sample_factory_run import run_to_end
from sf_examples.mujoco.mujoco_params import mujoco_override_defaults
from sf_examples.mujoco.train_mujoco import register_mujoco_components

EXAMPLES = {"HalfCheetah-v5": ("mujoco_halfcheetah", "HalfCheetah-v4")}
"""For an env the name in Sample Factory's example, and the id before Gymnasium 1, whose rewards are the same."""
DONE, FAILED = signal.SIGTERM, signal.SIGUSR1
"""Signals that end the process of the training; `seconds_to_score` too sends the first."""
KEPT = 1_000_000
"""Checkpoints: more than are written, so that none is removed before it is read."""
POLL_EVERY_S = 0.05


def config_of(work: dict[str, Any]) -> Any:
    """Return Sample Factory's configuration: that of its example, for the work's env, steps and seed."""
    name, _ = EXAMPLES[work["env"]]
    options = {
        "algo": "APPO",
        "env": name,
        "experiment": "run",
        "train_dir": str(Path(work["out"]).parent),
        "device": "cpu",
        "seed": work["seed"],
        "train_for_env_steps": work["steps"],
        "save_every_sec": 1,
        "keep_checkpoints": KEPT,
    }
    arguments = [f"--{option}={value}" for option, value in options.items()]
    parser, _ = parse_sf_args(arguments)
    mujoco_override_defaults(name, parser)
    return parse_full_cfg(parser, arguments)


def train(config: Any) -> None:
    """Train to the end.

    Raises:
        SystemExit: the run failed.
    """
    _, runner = make_runner(config)
    run_to_end(runner)


def saved_weights(folder: Path, every: int, ended: Event) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield env steps and weights of the first checkpoint after each `every` env steps, as they are written.

    After the training has ended, those that are left are yielded too.
    """
    following = every
    while True:
        was_ended = ended.is_set()  # before the files are listed: what is listed then is all there is
        for path in sorted(folder.glob("checkpoint_p0/checkpoint_*.pth")):
            env_steps = int(path.stem.rpartition("_")[2])
            if env_steps >= following:
                yield env_steps, torch.load(path, weights_only=False)["model"]
                following = (env_steps // every + 1) * every
        if was_ended:
            return
        time.sleep(POLL_EVERY_S)


def greedy_return(model: ActorCritic, config: Any, envs: list[gymnasium.Env[Any, Any]], seed: int) -> float:
    """Return the mean return of an episode in each env, with the mean of the policy as the action."""
    observations = [env.reset(seed=seed + index)[0] for index, env in enumerate(envs)]
    returns, running = np.zeros(len(envs)), np.ones(len(envs), bool)
    rnn_states = torch.zeros(len(envs), get_rnn_size(config))
    while running.any():
        for index, action in enumerate(_greedy_actions(model, np.stack(observations), rnn_states)):
            if running[index]:
                observations[index], reward, terminated, truncated, _ = envs[index].step(action)
                returns[index] += float(reward)
                running[index] = not (terminated or truncated)
    return float(returns.mean())


def _greedy_actions(model: ActorCritic, observations: NDArray[Any], rnn_states: torch.Tensor) -> NDArray[Any]:
    with torch.no_grad():  # its compiled encoder does not support inference mode
        normalized = model.normalize_obs({"obs": torch.from_numpy(observations).float()})
        model(normalized, rnn_states)
        means: NDArray[Any] = model.action_distribution().means.numpy()
    return means


def evaluate(work: dict[str, Any], trainer: int, ended: Event) -> None:
    """Evaluate until the last score is reached or nothing is left; tell the trainer's process how this ended."""
    try:
        evaluate_until_reached(work, ended)
    except BaseException:
        os.kill(trainer, FAILED)
        raise
    os.kill(trainer, DONE)


def evaluate_until_reached(work: dict[str, Any], ended: Event) -> None:
    """Evaluate as the weights are written, until the last score is reached or the training has ended."""
    torch.set_num_threads(1)
    config = config_of(work)
    _, env_id = EXAMPLES[work["env"]]
    envs = [gymnasium.make(env_id, disable_env_checker=True) for _ in range(work["eval_episodes"])]
    space = gymnasium.spaces.Dict({"obs": envs[0].observation_space})
    model = create_actor_critic(config, space, envs[0].action_space)
    model.eval()
    for env_steps, weights in saved_weights(Path(config.train_dir) / "run", work["eval_every"], ended):
        model.load_state_dict(weights)
        mean = greedy_return(model, config, envs, work["eval_seed"])
        with Path(work["out"]).open("a") as file:
            file.write(json.dumps({"eval_env_steps": env_steps, "eval_return_mean": mean}) + "\n")
        if mean >= max(work["scores"]):
            return


def _end_all(number: int, _frame: FrameType | None) -> None:
    """End all processes at once: stopped by Ctrl-C, Sample Factory may wait for its own forever."""
    for child in multiprocessing.active_children():
        child.kill()
        child.join()
    os._exit(number != DONE)


def main() -> None:
    """Train until the score is reached, or to the end; then wait for the evaluations."""
    work = given()
    for number in (DONE, FAILED):
        signal.signal(number, _end_all)
    register_mujoco_components()
    context = multiprocessing.get_context("spawn")
    ended = context.Event()
    evaluator = context.Process(target=evaluate, args=(work, os.getpid(), ended), daemon=True)
    evaluator.start()
    train(config_of(work))
    ended.set()
    evaluator.join()


if __name__ == "__main__":
    main()
