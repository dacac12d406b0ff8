"""PPO's learning step with analytic gradients (NumPy) and with autograd (torch), on the same batches.

    python -m benchmarks.gradients

Learning steps in pairs, A B B A ..., the first tenth dropped; the figure is the median of the pairs' ratios of CPU
time. One thread.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from statistics import median
from time import process_time
from typing import Any

from benchmarks.common import RESULTS, describe, machine, markdown_table, write_json
from offbeat.config.resolve import resolve
from offbeat.core.threads import limit
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.runtimes import acting_of, build
from offbeat.runtime.supervisor import Reporting

Settings = dict[str, Any]
SMALL_NETWORK: Settings = {"hidden_sizes": (64, 64), "activation": "tanh", "recompute_advantages": False}
WORKS: dict[str, Settings] = {
    "CartPole-v1, 64-64, minibatch 256": {
        "env": "CartPole-v1", "envs_per_actor": 32, "unroll_length": 32, "minibatch_size": 256, "epochs": 4,
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
}  # fmt: skip
PAIRS = 40


def make(work: Settings, *, analytic: bool) -> PacedParts:
    """Return parts with one batch acted, whose learner takes the wanted path."""
    settings = {key: value for key, value in work.items() if key != "env"}
    parts: PacedParts = build(resolve("ppo", work["env"], flags=settings))
    algorithm: Any = parts.policy.algorithm
    if not analytic:
        algorithm._fast = None  # noqa: SLF001  (users have no switch: the fast path is used where there is one)
        algorithm.stages = (replace(algorithm.stages[0], gradients=None),)
    parts.policy.learner.publish(0)
    with closing(acting_of(parts, 0, Reporting(print, lambda _role, _processes: None))) as acting:
        acting.start([None])
        acting.wait(parts.pace.acted_before_learn(0))
    return parts


def update_us(parts: PacedParts) -> float:
    """Return the CPU microseconds per update of one learning step, its preparation included."""
    begun = process_time()
    learned = parts.policy.learner.learn(0, 0.0)
    return 1e6 * (process_time() - begun) / learned.updates


def compare(work: Settings) -> Settings:
    """Measure both paths in pairs."""
    sides = {"analytic": make(work, analytic=True), "autograd": make(work, analytic=False)}
    pairs = []
    for pair in range(PAIRS):
        order = sorted(sides, reverse=pair % 2 == 0)
        pairs.append({side: round(update_us(sides[side]), 1) for side in order})
    counted = pairs[PAIRS // 10 :]
    return {"work": work, "pairs": counted, "ratio": round(median(p["autograd"] / p["analytic"] for p in counted), 2)}


def main() -> None:
    """Measure all works; write the raw results and the table."""
    limit(1)
    record = {"machine": machine(), "records": {name: compare(work) for name, work in WORKS.items()}}
    write_json(RESULTS / "gradients.json", record)
    title = f"# PPO's analytic gradients and autograd\n\n{describe(record['machine'])}."
    text = f"{title}\n\n{table(record['records'])}"
    (RESULTS / "gradients.md").write_text(text)
    print(text)


def table(records: dict[str, Settings]) -> str:
    """Return the medians and the ratios as Markdown."""
    rows = []
    for name, record in records.items():
        medians = [median(pair[side] for pair in record["pairs"]) for side in ("autograd", "analytic")]
        rows.append([name, *(f"{value:,.0f}" for value in medians), f"{record['ratio']:.2f}"])
    return markdown_table(["learning step", "autograd, us an update", "analytic, us an update", "ratio"], rows)


if __name__ == "__main__":
    main()
