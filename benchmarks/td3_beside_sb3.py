"""TD3 on Pendulum-v1 beside Stable-Baselines3's with equal settings: returns, and CPU seconds per update.

    python -m benchmarks.td3_beside_sb3               all runs that are missing, and the table
    python -m benchmarks.td3_beside_sb3 --seeds 1     one seed of each side

It runs in an environment with both libraries. One run at a time, each in a process of its own, on one thread. Each run
is appended to a file at its end, so an interrupted command continues.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.common import describe, installed, machine, markdown_table, record_of, write_page
from benchmarks.missing_runs import Job, make_missing
from benchmarks.options import new_parser, read_options
from benchmarks.peers.untuned_run import Act, cpu_s, evaluate
from benchmarks.records import Record, read_records

ENV, STEPS, WARMUP = "Pendulum-v1", 8_000, 1_000
LEARNING_RATE, GAMMA, BATCH_SIZE, CAPACITY, HIDDEN_SIZES = 1e-3, 0.98, 256, 200_000, (256, 256)
NOISE = 0.1
SIDES = {"offbeat": "offbeat", "sb3": "stable-baselines3"}


def train_offbeat(seed: int) -> Act:
    """Train with offbeat. Its defaults have the remaining settings of Stable-Baselines3's TD3."""
    import offbeat

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        offbeat.train(
            "td3", ENV, preset="none", run_dir=run, progress="none", steps=STEPS, seed=seed, eval_every=0,
            learning_rate=LEARNING_RATE, gamma=GAMMA, batch_size=BATCH_SIZE, capacity=CAPACITY, warmup=WARMUP,
            hidden_sizes=HIDDEN_SIZES, exploration_noise=NOISE, envs_per_actor=1, learner_threads=1,
        )  # fmt: skip
        return offbeat.load(run)


def train_sb3(seed: int) -> Act:
    """Train with Stable-Baselines3: one update after each env step, with its default noise of targets and delay."""
    import numpy as np
    import torch
    from stable_baselines3 import TD3
    from stable_baselines3.common.noise import NormalActionNoise

    torch.set_num_threads(1)
    model = TD3(
        "MlpPolicy", ENV, learning_rate=LEARNING_RATE, gamma=GAMMA, batch_size=BATCH_SIZE, buffer_size=CAPACITY,
        learning_starts=WARMUP, train_freq=1, gradient_steps=1, seed=seed, device="cpu",
        policy_kwargs={"net_arch": list(HIDDEN_SIZES)}, action_noise=NormalActionNoise(np.zeros(1), np.full(1, NOISE)),
    )  # fmt: skip
    model.learn(STEPS)

    def act(observation: Any) -> Any:
        return model.predict(observation, deterministic=True)[0]

    return act


TRAIN: dict[str, Callable[[int], Act]] = {"offbeat": train_offbeat, "sb3": train_sb3}
LOADED_BEFORE = {"offbeat": "offbeat.algorithms.td3", "sb3": "stable_baselines3"}
"""Imports are in no figure."""


def measure(side: str, seed: int) -> Record:
    """Train and evaluate in this process."""
    __import__(LOADED_BEFORE[side])
    started, started_cpu = time.perf_counter(), cpu_s()
    act = TRAIN[side](seed)
    seconds, cpu = time.perf_counter() - started, cpu_s() - started_cpu
    returns = [round(each, 2) for each in evaluate(act, ENV)]
    return {"seconds": round(seconds, 2), "cpu_s": round(cpu, 2), "returns": returns}


def make(side: str, seed: int) -> Record:
    """Make a run in a process of its own, and return what was measured."""
    command = [sys.executable, "-m", "benchmarks.td3_beside_sb3", "--one", side, str(seed)]
    return {**record_of(command), "machine": machine()}


def jobs(seeds: int) -> Iterator[Job]:
    """Yield the runs: both sides of a seed, then the next one."""
    for seed in range(1, seeds + 1):
        for side, package in SIDES.items():
            yield {"side": side, "seed": seed, "version": installed(package)}, partial(make, side, seed)


def said(record: Record) -> str:
    """Return a run in one line."""
    return f"{record['side']}, seed {record['seed']}: {mean(record['returns']):.0f}, {record['cpu_s']:.0f} CPU s"


def report(records: list[Record]) -> str:
    """Return the page."""
    updates = STEPS - WARMUP
    rows = [
        [
            SIDES[record["side"]],
            record["version"] or "the source tree",
            str(record["seed"]),
            f"{mean(record['returns']):.1f}",
            f"{min(record['returns']):.1f}",
            f"{1000 * record['cpu_s'] / updates:.2f}",
        ]
        for record in sorted(records, key=lambda record: (record["side"], record["seed"]))
    ]
    header = ["library", "version", "seed", "mean return", "lowest return", "CPU ms per update"]
    machines = sorted({describe(record["machine"]) for record in records})
    text = f"""\
TD3 on {ENV} for {STEPS:,} env steps with {updates:,} updates: learning rate {LEARNING_RATE:g}, gamma {GAMMA:g},
minibatches of {BATCH_SIZE}, layers {HIDDEN_SIZES}, exploration noise {NOISE:g}. Greedy evaluation of the last weights
over 20 episodes with equal seeds. CPU seconds of the whole run, env steps and saving included, divided by the updates;
one thread."""
    return "\n\n".join(["# TD3 beside Stable-Baselines3", text, *machines, markdown_table(header, rows)]) + "\n"


def main() -> None:
    """Make the runs, one of them with --one, and write the table."""
    parser = new_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--one", nargs=2, metavar=("SIDE", "SEED"), help="one run in this process, as JSON")
    options = read_options(parser, "seeds", unless="one")
    if options.one:
        side, seed = options.one
        print(json.dumps(measure(side, int(seed))))
        return
    path = options.out / "td3-beside-sb3.jsonl"
    make_missing(path, jobs(options.seeds), said)
    write_page(options.out / "td3-beside-sb3.md", report(read_records(path)))


if __name__ == "__main__":
    main()
