"""PPO's learning step with autograd (torch), with analytic gradients (NumPy), and with these compiled (Numba).

    python -m benchmarks.gradients [--works WORK ...] [--out DIR]

All on the same batches. Learning steps by turns, A B C C B A ..., the first tenth dropped; before each one another of
the same side, which does not count, because the caches are the other side's. A figure is the median of the CPU time of
a learning step, divided by its updates; a ratio is the median of the turns' ratios. One thread. The second table has
the parts of a learning step with gradients in NumPy: medians of the CPU time of all calls of a part. To measure them
takes time too. Needs the extra `compiled`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise
from statistics import median
from time import process_time, thread_time
from typing import Any

from benchmarks.common import describe, installed, machine, markdown_table, publish
from benchmarks.options import new_parser, read_options
from offbeat.config.resolve import resolve
from offbeat.core.process.threads import blas_kernels, set_thread_count
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.reporting import Reporting
from offbeat.runtime.runtimes import acting_of, build

Settings = dict[str, Any]
SMALL_NETWORK: Settings = {"hidden_sizes": (64, 64), "activation": "tanh", "recompute_advantages": False}
WORKS: dict[str, Settings] = {
    "CartPole-v1, 64-64, minibatch 256": {
        "env": "CartPole-v1", "envs_per_actor": 32, "unroll_length": 32, "minibatch_size": 256, "epochs": 4,
        **SMALL_NETWORK,
    },
    "CartPole-v1, 64-64, minibatch 2048": {
        "env": "CartPole-v1", "envs_per_actor": 64, "unroll_length": 32, "minibatch_size": 2048, "epochs": 1,
        **SMALL_NETWORK,
    },
    "HalfCheetah-v5, 64-64, minibatch 1024": {
        "env": "HalfCheetah-v5", "envs_per_actor": 32, "unroll_length": 64, "minibatch_size": 1024, "epochs": 2,
        **SMALL_NETWORK,
    },
    "HalfCheetah-v5, 64-64, minibatch 64": {
        "env": "HalfCheetah-v5", "envs_per_actor": 8, "unroll_length": 256, "minibatch_size": 64, "epochs": 1,
        **SMALL_NETWORK,
    },
    "HalfCheetah-v5, 256-256 ReLU, minibatch 64": {
        "env": "HalfCheetah-v5", "envs_per_actor": 4, "unroll_length": 128, "minibatch_size": 64, "epochs": 4,
    },
    "HalfCheetah-v5, 256-256 ReLU, minibatch 512": {
        "env": "HalfCheetah-v5", "envs_per_actor": 8, "unroll_length": 256, "minibatch_size": 512, "epochs": 1,
    },
}  # fmt: skip
TURNS = 40
SIDES = (AUTOGRAD, ANALYTIC, COMPILED) = ("autograd", "analytic", "compiled")
Times = dict[str, float]


def make(work: Settings, side: str) -> PacedParts:
    """Return parts with one batch acted, whose learner takes the wanted path."""
    settings = {key: value for key, value in work.items() if key != "env"}
    kernels = "numba" if side == COMPILED else "numpy"
    parts: PacedParts = build(resolve("ppo", work["env"], flags={**settings, "kernels": kernels}))
    algorithm: Any = parts.policy.algorithm
    if side == AUTOGRAD:
        algorithm._fast = algorithm.batch_network._fast = None  # noqa: SLF001  (users have no switch)
        algorithm.stages = (replace(algorithm.stages[0], gradients=None),)
    parts.policy.learner.publish(0)
    with closing(acting_of(parts, 0, Reporting(print, lambda _role, _processes: None))) as acting:
        acting.start([None])
        acting.wait(parts.pace.acted_before_learn(0))
    return parts


def update_us(parts: PacedParts) -> float:
    """Return the CPU microseconds per update of one learning step, its preparation included."""
    parts.policy.learner.learn(0, 0.0)  # caches are another side's
    begun = process_time()
    learned = parts.policy.learner.learn(0, 0.0)
    return 1e6 * (process_time() - begun) / learned.updates


def compare(work: Settings) -> Settings:
    """Measure all sides by turns, then the parts of a learning step."""
    sides = {side: make(work, side) for side in SIDES}
    turns = []
    for turn in range(TURNS):
        order = sorted(sides, key=SIDES.index, reverse=turn % 2 == 1)
        turns.append({side: round(update_us(sides[side]), 1) for side in order})
    return {"work": work, "us_an_update": turns[TURNS // 10 :], "parts_us": parts_us(sides[ANALYTIC])}


# --- the parts of a learning step ---------------------------------------------------------------------------


class Stopwatch:
    """Adds up the CPU time of functions, one total for each learning step. A part does not count in its caller."""

    def __init__(self) -> None:
        self.totals: Times = defaultdict(float)
        self._inner = [0.0]

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its time added to the total of a name."""

        def timed(*arguments: Any, **keywords: Any) -> Any:
            begun = thread_time()
            self._inner.append(0.0)
            try:
                return function(*arguments, **keywords)
            finally:
                spent = thread_time() - begun
                self.totals[name] += spent - self._inner.pop()
                self._inner[-1] += spent

        return timed


def parts_us(parts: PacedParts) -> Times:
    """Return the CPU microseconds of each part of a learning step with gradients in NumPy."""
    learner: Any = parts.policy.learner
    algorithm: Any = parts.policy.algorithm
    fast, watch = algorithm._fast, Stopwatch()  # noqa: SLF001
    networks, updates = fast._networks, learner._updates  # noqa: SLF001
    for owner, method, name in (
        (algorithm, "prepare", "targets: values, log-probabilities, V-trace or GAE"),
        (networks, "forward", "forward pass"),
        (networks, "backward", "backward pass"),
        (fast, "_loss", "distribution and loss"),
        (updates, "apply", "norm, clipping, Adam, metrics"),
    ):
        setattr(owner, method, watch.around(name, getattr(owner, method)))
    minibatches = algorithm.minibatches

    def timed_minibatches(*arguments: Any) -> Iterator[Any]:
        following = watch.around("minibatches", minibatches(*arguments).__next__)
        with suppress(StopIteration):
            while True:
                yield following()

    algorithm.minibatches = timed_minibatches
    steps: list[Times] = []
    for _ in range(TURNS):
        watch.totals.clear()
        watch.around("all else", learner.learn)(0, 0.0)
        steps.append({name: 1e6 * total for name, total in watch.totals.items()})
    counted = steps[TURNS // 10 :]
    return {name: round(median(step[name] for step in counted), 1) for name in counted[0]}


# --- tables -------------------------------------------------------------------------------------------------


def table(records: dict[str, Settings]) -> str:
    """Return the medians and the ratios as Markdown."""
    rows = []
    for name, record in records.items():
        turns = record["us_an_update"]
        medians = [f"{median(turn[side] for turn in turns):,.0f}" for side in SIDES]
        ratios = [f"{median(turn[one] / turn[other] for turn in turns):.2f}" for one, other in pairwise(SIDES)]
        rows.append([name, *medians, *ratios])
    names = [f"{side}, us per update" for side in SIDES]
    return markdown_table(["learning step", *names, *(f"{one} / {other}" for one, other in pairwise(SIDES))], rows)


def parts_table(records: dict[str, Settings]) -> str:
    """Return the parts of a learning step of each work as Markdown."""
    works: list[Times] = [record["parts_us"] for record in records.values()]
    rows = [[part, *(f"{times[part]:,.0f}" for times in works)] for part in works[0]]
    rows.append(["whole", *(f"{sum(times.values()):,.0f}" for times in works)])
    return markdown_table(["us per learning step", *records], rows)


def main() -> None:
    """Measure all works; write the raw results and the tables."""
    parser = new_parser(__doc__)
    parser.add_argument("--works", nargs="+", default=list(WORKS), choices=WORKS, metavar="WORK")
    options = read_options(parser)
    set_thread_count(1)
    about = {**machine(), "numba": installed("numba"), "blas_kernels": blas_kernels()}
    record = {"machine": about, "records": {name: compare(WORKS[name]) for name in options.works}}
    described = f"{describe(about)}, numba {about['numba']}; OpenBLAS's kernels: {about['blas_kernels']}"
    tables = [make(record["records"]) for make in (table, parts_table)]
    publish(options.out, "gradients", record, "# PPO's analytic gradients and autograd", f"{described}.", *tables)


if __name__ == "__main__":
    main()
