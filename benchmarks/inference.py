"""Inference in actors and in inference workers: from which network on do workers pay, while envs wait?

    python -m benchmarks.inference [--seconds 4] [--rounds 3] [--out DIR]

Two measurements. First the CPU time of a forward pass for each row, on one thread, by the number of rows that are
computed together. Then whole runs without a learner: actors whose envs wait in each step, as for a slow simulator,
with the network in the actors, in an inference worker, and in an inference worker while the actor steps another group
of its envs. The sides take turns. CPU time does not count the waits for a core that another program has.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

import benchmarks.slow_images  # noqa: F401 - registers the env
from benchmarks.common import by_turns, cpu_s_of, describe, machine, markdown_table
from benchmarks.options import new_parser, read_options
from benchmarks.records import Record, Unfinished
from offbeat.config.config import Config
from offbeat.config.resolve import resolve
from offbeat.core.process.threads import set_thread_count
from offbeat.models.acting import make_policy
from offbeat.models.group_network import GroupNetwork
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec
from offbeat.runtime.children.supervised import Supervised
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.reporting import Reporting
from offbeat.runtime.runtimes import acting_of, build

WARM = 3
"""Steps before the measurement."""
ROWS = (1, 2, 4, 8, 16, 32, 64)
IMAGES: dict[str, Any] = {"frame_stack": 4, "normalize_observations": False}
NETWORKS: dict[str, dict[str, Any]] = {
    "MLP 64 x 64": {"env.kwargs.images": False, "hidden_sizes": (64, 64)},
    "MLP 1024 x 1024": {"env.kwargs.images": False, "hidden_sizes": (1024, 1024)},
    "Nature CNN": {**IMAGES, "encoder": "nature_cnn"},
    "IMPALA ResNet": {**IMAGES, "encoder": "impala_resnet"},
}
SIDES: dict[str, dict[str, Any]] = {
    "actor": {},
    "worker": {"inference": "worker"},
    "worker, 2 groups": {"inference": "worker", "env_groups": 2},
    "worker, arrival": {"inference": "worker", "inference_batching": "arrival", "inference_timeout_ms": 10},
}

RUNS = """\
Runs without a learner: 4 actors with 8 envs each, one group unless it says 2; each env waits 2 ms in each step. CPU us:
CPU time of all actors and inference workers for each env step; above 1, workers let one core make more env steps.
Requests in a batch: at most 4. SPS: env steps per second."""


class Layout(NamedTuple):
    """Actors, and the envs of each."""

    actors: int
    envs: int
    wait_ms: float
    """What a step of one env waits."""


LAYOUT = Layout(4, 8, 2.0)


def config_of(network: str, layout: Layout, **settings: Any) -> Config:
    """Return the config of a run with a network."""
    flags = {
        "imports": ("benchmarks.slow_images",), "runtime": "processes", "unroll_length": 16, "eval_every": 0,
        "checkpoint_every": 0, "actors": layout.actors, "envs_per_actor": layout.envs,
        "env.kwargs.wait_s": layout.wait_ms / 1000, **NETWORKS[network], **settings,
    }  # fmt: skip
    return resolve("impala", "slow/Images-v0", flags=flags)


# --- a forward pass -----------------------------------------------------------------------------------------


def row_costs(network: str, seconds: float) -> dict[str, dict[int, float]]:
    """Return the CPU time for each row in microseconds, by the number of rows, in an actor and in a worker."""
    parts: PacedParts = build(config_of(network, Layout(1, 1, 0.0)))
    spec = parts.policy.spec
    parts.close()
    set_thread_count(1)
    return {side: {rows: _row_cost(spec, side, rows, seconds) for rows in ROWS} for side in ("actor", "worker")}


def _row_cost(spec: PolicySpec, side: str, rows: int, seconds: float) -> float:
    random = np.random.default_rng(0)
    weights = (random.standard_normal(published_layout(spec).size) / 10).astype(np.float32)
    served = GroupNetwork(spec, rows)
    served.load(weights)
    acting = make_policy(spec)
    acting.load(weights)
    assert acting.network is not None
    inputs = random.random((rows, spec.inputs), np.float32)
    observation = {
        leaf.name: random.integers(0, 256, (rows, *leaf.stacked_shape)).astype(leaf.dtype) for leaf in spec.encoded
    }
    for name, array in served.inputs.items():
        array[:rows] = observation[name.partition("/")[2]] if "/" in name else inputs

    def forward() -> None:
        if side == "worker":
            served.forward()
        else:
            assert acting.network is not None
            acting.network.forward(inputs, observation, None)

    for _ in range(3):
        forward()
    passes, until, started = 0, perf_counter() + seconds, process_time()
    while passes < 3 or perf_counter() < until:
        forward()
        passes += 1
    return 1e6 * (process_time() - started) / passes / rows


# --- whole runs ---------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """What actors and inference workers of a run did."""

    sps: float
    """Env steps per second."""
    cpu_us: float
    """Their CPU time for each env step, in microseconds: 1e6 / this is the env steps per second of one core."""
    requests: float
    """Requests in a batch of the inference worker, of at most one for each actor; 0 without a worker."""


def run_once(network: str, layout: Layout, side: str, seconds: float) -> Measured:
    """Run without a learner: each batch is released as soon as it is complete."""
    parts: PacedParts = build(config_of(network, layout, **SIDES[side]))
    pids: dict[str, list[int]] = {}

    def show(role: str, children: Sequence[Supervised]) -> None:
        pids[role] = [child.pid for child in children if child.pid is not None]

    def cpu_s() -> float:
        return cpu_s_of(*(pid for each in pids.values() for pid in each))

    acting, policy = acting_of(parts, 0, Reporting(print, show)), parts.policy
    try:
        policy.learner.publish(0)
        acting.start([None] * layout.actors)
        env_steps, measured, before = 0.0, 0.0, (0.0, 0.0)
        for step in count():
            acting.wait(parts.pace.acted_before_learn(step))
            if step == WARM:
                before, env_steps = (perf_counter(), cpu_s()), 0.0
                acting.metrics()
            if step > WARM and (measured := perf_counter() - before[0]) > seconds:
                break
            env_steps += policy.learner.feed.env_steps_per_use(step)
            policy.learner.publish(step + 1)
            acting.finish(step + 1)
        requests = acting.metrics().get("inference_batch_requests", 0.0)
        return Measured(env_steps / measured, 1e6 * (cpu_s() - before[1]) / env_steps, requests)
    finally:
        acting.close()
        parts.close()


def run_as_record(network: str, layout: Layout, side: str, seconds: float) -> Record:
    """Run without a learner, and return what was measured by name."""
    return run_once(network, layout, side, seconds)._asdict()


# --- results ------------------------------------------------------------------------------------------------


def page(record: Record) -> list[str]:
    """Return the paragraphs of the page."""
    passes, runs = record["rows"], record["runs"]
    rows_header = ["network", "computed in", *(f"{rows} rows" for rows in ROWS)]
    rows_table = [
        [network, side, *(f"{costs[side][str(rows)]:,.0f}" for rows in ROWS)]
        for network, costs in passes.items()
        for side in costs
    ]
    header = ["network", "computed in", "CPU us", "CPU, actor / this", "requests in a batch", "SPS"]
    return [
        "# Inference in actors and in inference workers",
        "`python -m benchmarks.inference`.",
        f"{describe(record['machine'])}.",
        "CPU time of a forward pass for each row, in microseconds, on one thread; a worker computes 4 rows at least:",
        markdown_table(rows_header, rows_table),
        f"{RUNS} Rounds: {len(runs[0]['sides']['actor'])}; shown are medians:",
        markdown_table(header, [row for run in runs for row in _rows(run)]),
    ]


def _rows(run: Record) -> list[list[str]]:
    """Return a row of the table for each side."""
    sides = {
        side: Measured(*(median(each[key] for each in rounds) for key in Measured._fields))
        for side, rounds in run["sides"].items()
    }
    return [
        [
            run["network"],
            side,
            f"{each.cpu_us:,.0f}",
            f"{sides['actor'].cpu_us / each.cpu_us:.2f}",
            f"{each.requests:.1f}" if each.requests else "-",
            f"{each.sps:,.0f}",
        ]
        for side, each in sides.items()
    ]


def main() -> None:
    """Measure and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = read_options(parser)
    unfinished = Unfinished(arguments.out, "inference", seconds=arguments.seconds, rounds=arguments.rounds)
    costs = [
        unfinished.run({"rows of": network}, partial(row_costs, network, arguments.seconds / 8)) for network in NETWORKS
    ]
    passes = {each.pop("rows of"): each for each in costs}
    runs: list[Record] = []
    for network in NETWORKS:
        sides: dict[str, list[Record]] = {side: [] for side in SIDES}
        for number, side in by_turns(SIDES, arguments.rounds):
            what = {"round": number, "network": network, "side": side}
            one = unfinished.run(what, partial(run_as_record, network, LAYOUT, side, arguments.seconds))
            sides[side].append({key: one[key] for key in Measured._fields})
        runs.append({"network": network, **LAYOUT._asdict(), "sides": sides})
        for row in _rows(runs[-1]):
            print(*row, sep=" | ", flush=True)
    record = {"machine": machine(), "rows": passes, "runs": runs}
    unfinished.publish(record, *page(record))


if __name__ == "__main__":
    main()
