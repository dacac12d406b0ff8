"""What it gains to compute the columns of MuJoCo's locomotion envs together: CPU time beside Gymnasium's own `step`.

    python -m benchmarks.locomotion
    python -m benchmarks.locomotion --pairs 4 --out /tmp/trial

Both sides make the same env steps with the same bits (`tests/envs/adapters/test_mujoco_columns.py`). The side `own` is
given an argument of the env with its default value, so that it is stepped by its own `step`. A pair measures both sides
in turn, in one process and one thread: A B, then B A, and so on. First only env steps with random actions, with 2, 8
and 32 envs; then whole learning steps of PPO on HalfCheetah-v5 in serial. A ratio is `own` divided by `together`, so
above 1 `together` is faster. Shown are medians (least to most) of the pairs. Writes `results/locomotion.{json,md}`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from statistics import median
from time import thread_time
from typing import Any

from benchmarks.common import by_turns, describe, machine, markdown_table, publish, spread
from benchmarks.options import new_parser, read_options
from benchmarks.works import HALF_CHEETAH
from offbeat.config.env import EnvConfig
from offbeat.config.resolve import resolve
from offbeat.core.frozen_table import EMPTY, PlainTable
from offbeat.core.process.allocator import keep_freed_memory
from offbeat.core.process.threads import set_thread_count
from offbeat.core.seeding import stream
from offbeat.envs.actions import random_actions
from offbeat.envs.make import make_envs
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.reporting import Reporting
from offbeat.runtime.runtimes import acting_of, build

WEIGHTS = {
    "HalfCheetah-v5": 0.1, "Hopper-v5": 1e-3, "Walker2d-v5": 1e-3, "Ant-v5": 0.5, "Swimmer-v5": 1e-4,
    "Humanoid-v5": 0.1,
}  # fmt: skip
"""The default of `ctrl_cost_weight` of each env."""
SIDES = ("own", "together")
ROWS = 20
"""Env steps of each env in one side of a pair."""
ENVS = 32
PPO: dict[str, Any] = {
    **{key: value for key, value in HALF_CHEETAH.items() if key not in {"env", "envs"}},
    "runtime": "serial", "split": "given", "actors": 1, "envs_per_actor": ENVS, "eval_every": 0,
}  # fmt: skip


def stepping(env_id: str, columns: int, side: str) -> Callable[[], float]:
    """Make envs; return a function that steps them and returns the CPU microseconds per env step."""
    kwargs = PlainTable({"ctrl_cost_weight": WEIGHTS[env_id]}) if side == "own" else EMPTY
    envs = make_envs(env_id, columns, seed=1, settings=EnvConfig(kwargs=kwargs))
    random = stream(1, "actions of a benchmark")
    envs.reset()

    def measure() -> float:
        actions = [random_actions(envs.spec.action, columns, random) for _ in range(ROWS)]
        started = thread_time()
        for of_row in actions:
            envs.send(of_row)
            envs.recv()
        return 1e6 * (thread_time() - started) / (ROWS * columns)

    return measure


def training(env_id: str, side: str) -> Callable[[], float]:
    """Make a run; return a function that makes a learning step and returns the CPU microseconds per env step."""
    flags = {**PPO, "kwargs": {"ctrl_cost_weight": WEIGHTS[env_id]}} if side == "own" else PPO
    parts: PacedParts = build(resolve("ppo", env_id, flags=flags))
    acting = acting_of(parts, 0, Reporting(print, lambda _role, _processes: None))
    for policy in parts.policies:
        policy.learner.publish(0)
    acting.start([None])
    steps = iter(range(1_000_000))

    def measure() -> float:
        step, started = next(steps), thread_time()
        acting.wait(parts.pace.acted_before_learn(step))
        for policy in parts.policies:
            policy.learner.learn(step, 0.0)
        acting.finish(step + 1)
        return 1e6 * (thread_time() - started) / (ENVS * int(PPO["unroll_length"]))

    return measure


def measured(name: str, make: Callable[[str], Callable[[], float]], pairs: int) -> dict[str, Any]:
    """Return the CPU microseconds per env step of both sides in each pair."""
    sides = {side: make(side) for side in SIDES}
    for measure in sides.values():
        measure()
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    for _, side in by_turns(SIDES, pairs):
        found[side].append(sides[side]())
    ratios = [own / together for own, together in zip(found["own"], found["together"], strict=True)]
    record = {"work": name, **found, "ratio": ratios}
    print(_row(record), flush=True)
    return record


def page(record: dict[str, Any]) -> list[str]:
    """Return the paragraphs of the page."""
    rows = [_row(work) for work in record["works"]]
    return [
        "# MuJoCo's locomotion envs, with columns that are computed together",
        "CPU time of an env step, by Gymnasium's own `step` and by `MujocoColumns`, which gives the same bits.",
        f"{describe(record['machine'])}.",
        markdown_table(["work", "own, us", "together, us", "own / together"], rows),
    ]


def _row(record: dict[str, Any]) -> list[str]:
    return [record["work"], *(f"{median(record[side]):.1f}" for side in SIDES), spread(record["ratio"], ".2f")]


def main() -> None:
    """Measure all works and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    options = read_options(parser)
    warnings.simplefilter("ignore")
    set_thread_count(1)
    keep_freed_memory()
    records = [
        measured(f"{env_id}, {columns} envs", partial(stepping, env_id, columns), options.pairs)
        for env_id in WEIGHTS
        for columns in ((2, 8, 32) if env_id == "HalfCheetah-v5" else (8,))
    ]
    records.append(measured("HalfCheetah-v5, PPO, 32 envs", partial(training, "HalfCheetah-v5"), options.pairs))
    record = {"machine": machine(), "unit": "CPU us per env step", "works": records}
    publish(options.out, "locomotion", record, *page(record))


if __name__ == "__main__":
    main()
