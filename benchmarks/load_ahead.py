"""Does it pay on a CPU to sample the minibatches of a replay ahead, in a thread?

    python -m benchmarks.load_ahead
    python -m benchmarks.load_ahead --rounds 1 --steps 3000 --out /tmp/trial

SAC on HalfCheetah-v5 with its preset in the processes runtime, with 1 and 2 learner threads, with and without a thread
that samples the next minibatch. The settings take turns in each round.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from statistics import fmean, median

from benchmarks.common import by_turns, children_cpu_s, describe, machine, markdown_table, offbeat, spread
from benchmarks.options import new_parser, read_options
from benchmarks.records import Record, Unfinished
from offbeat.metrics.sinks import read_metrics

WARM_UP = 1000
"""Env steps without an update, and the same number with updates that are not measured."""
SETTINGS = [(threads, ahead) for threads in (1, 2) for ahead in (0, 1)]
"""Learner threads, and minibatches that are sampled ahead."""


def measured(threads: int, ahead: int, steps: int) -> dict[str, float]:
    """Return the updates per second of a run, and what its updates take, in microseconds."""
    cpu = children_cpu_s()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        offbeat(
            *("train", "sac", "HalfCheetah-v5", "--runtime", "processes", "--progress", "none"),
            *("--steps", str(steps), "--run-dir", str(run), "--eval-every", "0"),
            *("--set", f"warmup={WARM_UP}", f"learner_threads={threads}", f"load_ahead={ahead}", "checkpoint_every=0"),
            *("checkpoint_every_s=0", "save_replay=false", f"log_every={WARM_UP}"),
        )
        lines = [line for line in read_metrics(run) if line["env_steps"] >= 2 * WARM_UP]
    cpu = children_cpu_s() - cpu
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


def page(record: Record) -> list[str]:
    """Return the paragraphs of the page."""
    method = (
        "`python -m benchmarks.load_ahead`: SAC on HalfCheetah-v5 with its preset, `processes`, "
        f"{record['steps']:,} env steps, of which the first {2 * WARM_UP:,} are not measured. Median (least to most) "
        "of the rounds; CPU seconds of the whole command. *sampling* is in the learner, or in its thread, with making "
        "the minibatch."
    )
    header = [
        *("learner threads", "load_ahead", "updates per second", "CPU s", "sampling, us per update"),
        *("wait for it", "updates, us"),
    ]
    rows = []
    for threads, ahead in SETTINGS:
        own = [run for run in record["runs"] if (run["threads"], run["load_ahead"]) == (threads, ahead)]
        times = {name: median(run[name] for run in own) for name in ("load", "load_wait", "prepare", "grad")}
        rows.append(
            [
                *(str(threads), str(ahead), spread([run["ups"] for run in own], ".0f")),
                spread([run["cpu_s"] for run in own], ".1f"),
                *(f"{times['load'] + times['prepare']:.0f}", f"{times['load_wait']:.0f}", f"{times['grad']:.0f}"),
            ]
        )
    return ["# Sampling ahead on a CPU", method, f"{describe(record['machine'])}.", markdown_table(header, rows)]


def main() -> None:
    """Run all settings by turns, and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2800)
    options = read_options(parser)
    unfinished = Unfinished(options.out, "load-ahead", rounds=options.rounds, steps=options.steps)
    runs = []
    for number, (threads, ahead) in by_turns(SETTINGS, options.rounds):
        what = {"round": number, "threads": threads, "load_ahead": ahead}
        runs.append(unfinished.run(what, partial(measured, threads, ahead, options.steps)))
        print(runs[-1], flush=True)
    record = {"machine": machine(), "steps": options.steps, "runs": runs}
    unfinished.publish(record, *page(record))


if __name__ == "__main__":
    main()
