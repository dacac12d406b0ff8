"""Does it pay on a CPU to sample the minibatches of a replay ahead, in a thread?

    python -m benchmarks.load_ahead
    python -m benchmarks.load_ahead --rounds 1 --steps 3000 --out /tmp/trial

SAC on HalfCheetah-v5 with its preset in the processes runtime, with 1 and 2 learner threads, with and without a thread
that samples the next minibatch. The settings take turns in each round.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.common import (
    children_cpu_s,
    describe,
    machine,
    markdown_table,
    offbeat,
    read_metrics,
    spread,
    write_json,
)
from benchmarks.options import new_parser, read_options

WARM_UP = 1000
"""Env steps without an update, and the same number with updates that are not measured."""
SETTINGS = [(threads, ahead) for threads in (1, 2) for ahead in (0, 1)]
"""Learner threads, and minibatches that are sampled ahead."""


def measured(threads: int, ahead: int, steps: int, folder: Path) -> dict[str, float]:
    """Return the updates per second of a run, and what its updates take, in microseconds."""
    cpu = children_cpu_s()
    offbeat(
        *("train", "sac", "HalfCheetah-v5", "--runtime", "processes", "--progress", "none"),
        *("--steps", str(steps), "--run-dir", str(folder), "--eval-every", "0"),
        *("--set", f"warmup={WARM_UP}", f"learner_threads={threads}", f"load_ahead={ahead}", "checkpoint_every=0"),
        *("checkpoint_every_s=0", "save_replay=false", f"log_every={WARM_UP}"),
    )
    cpu = children_cpu_s() - cpu
    lines = [line for line in read_metrics(folder) if line["env_steps"] >= 2 * WARM_UP]
    first, last = lines[0], lines[-1]
    updates = last["updates"] - first["updates"]
    steps_per_update = (last["learning_step"] - first["learning_step"]) / updates
    return {
        "ups": updates / (last["wall_time_s"] - first["wall_time_s"]),
        "cpu_s": cpu,
        **{
            name: 1000 * steps_per_update * fmean(line[f"learner_{name}_time_ms"] for line in lines[1:])
            for name in ("load", "load_wait", "prepare", "grad")
        },
    }


def as_markdown(runs: list[dict[str, Any]], about: dict[str, Any], steps: int) -> str:
    """Return a table with one row for each setting."""
    method = (
        f"`python -m benchmarks.load_ahead`: SAC on HalfCheetah-v5 with its preset, `processes`, {steps:,} env steps, "
        f"of which the first {2 * WARM_UP:,} are not measured. Median (least to most) of the rounds; CPU seconds of "
        "the whole command. *sampling* is in the learner, or in its thread, with making the minibatch."
    )
    header = [
        *("learner threads", "load_ahead", "updates per second", "CPU s", "sampling, us per update"),
        *("wait for it", "updates, us"),
    ]
    rows = []
    for threads, ahead in SETTINGS:
        own = [run for run in runs if (run["threads"], run["load_ahead"]) == (threads, ahead)]
        times = {name: median(run[name] for run in own) for name in ("load", "load_wait", "prepare", "grad")}
        rows.append(
            [
                *(str(threads), str(ahead), spread([run["ups"] for run in own], ".0f")),
                spread([run["cpu_s"] for run in own], ".1f"),
                *(f"{times['load'] + times['prepare']:.0f}", f"{times['load_wait']:.0f}", f"{times['grad']:.0f}"),
            ]
        )
    return "\n\n".join(["# Sampling ahead on a CPU", method, f"{describe(about)}.", markdown_table(header, rows)])


def main() -> None:
    """Run all settings by turns, and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2800)
    options = read_options(parser)
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for threads, ahead in SETTINGS if number % 2 == 0 else SETTINGS[::-1]:
                path = Path(folder) / f"{number}-{threads}-{ahead}"
                result = measured(threads, ahead, options.steps, path)
                runs.append({"round": number, "threads": threads, "load_ahead": ahead, **result})
                print(runs[-1], flush=True)
    about = machine()
    write_json(options.out / "load-ahead.json", {"machine": about, "steps": options.steps, "runs": runs})
    (options.out / "load-ahead.md").write_text(as_markdown(runs, about, options.steps) + "\n")


if __name__ == "__main__":
    main()
