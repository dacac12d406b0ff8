"""The pipeline of acting, loading and learning: what the pace allows, and what a run with artificial costs reaches.

    python -m benchmarks.pipeline
    python -m benchmarks.pipeline --runtime threads --rounds 1 --out /tmp/trial

Nothing computes: an env step, loading a batch onto a stand-in of a device, and a learning step only sleep. So the
parts of a run overlap on any number of cores, as they do where each has a processor of its own. The rest of the run is
real. Each setting is simulated with the pace of the run, and trained for some seconds; the settings take turns in each
round.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from benchmarks.common import by_turns, describe, machine, markdown_table
from benchmarks.options import new_parser, read_options
from benchmarks.pipeline_simulation import Pipeline
from benchmarks.records import Unfinished
from benchmarks.sleeping_env import ENV
from offbeat.algorithms.a2c import A2C
from offbeat.algorithms.base import Batch
from offbeat.api.train import train
from offbeat.config.registry import register_algorithm
from offbeat.core.pace import OnPolicyPace
from offbeat.core.types import Tree
from offbeat.metrics.sinks import read_metrics
from offbeat.workers import staging

ACTORS, LENGTH = 2, 4
"""Actors, each with one env; env steps of a ticket. A batch has a ticket of each actor."""
ACT_S, LOAD_S, LEARN_S = 0.24, 0.18, 0.24
"""Seconds of a ticket, of loading a batch, and of a learning step."""
WARM_UP, BATCHES = 6, 20
"""Batches before, and in, the measurement."""
GOAL = 0.9
"""Part of the simulated speed that a run should reach."""


class Setting(NamedTuple):
    """One setting of the pipeline."""

    max_lag: int
    load_ahead: int
    resident_batches: int = 1
    passes: int = 1

    def pipeline(self) -> Pipeline:
        """Return the simulation of a run with this setting."""
        pace = OnPolicyPace(ACTORS, self.max_lag, self.resident_batches, self.passes)
        return Pipeline(pace, ACTORS, self.load_ahead, ACT_S, LOAD_S, LEARN_S / self.passes)


SETTINGS = [
    Setting(0, 0),
    Setting(1, 0),
    Setting(1, 1),
    Setting(2, 0),
    Setting(2, 1),
    Setting(1, 1, 1, 2),
    Setting(4, 1, 1, 2),
    Setting(1, 1, 2, 2),
    Setting(6, 1, 2, 2),
]
"""With several passes a learning step is shorter, so that a batch takes as long."""


class SleepingBuffers(staging.DeviceBuffers):
    """A device with its own memory, onto which loading takes `LOAD_S` seconds."""

    copies = True

    def load(self, arrays: Tree) -> Batch:
        """Copy arrays, and sleep."""
        time.sleep(LOAD_S)
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


class SleepingA2C(A2C):
    """A2C with learning steps that sleep."""

    learn_s = LEARN_S

    def prepare(self, batch: Batch) -> Batch:
        """Sleep, then prepare."""
        time.sleep(self.learn_s)
        return super().prepare(batch)


def measured(setting: Setting, runtime: str) -> dict[str, float]:
    """Return the seconds per batch of a run."""
    with tempfile.TemporaryDirectory() as folder:
        return {"seconds": _measured(setting, runtime, Path(folder) / "run")}


def _measured(setting: Setting, runtime: str, folder: Path) -> float:
    SleepingA2C.learn_s = LEARN_S / setting.passes
    rows = ACTORS * LENGTH
    run = train(
        "sleeping_a2c",
        ENV,
        imports=("benchmarks.sleeping_env",),
        env_kwargs={"seconds": ACT_S / LENGTH},
        run_dir=folder,
        runtime=runtime,
        actors=ACTORS,
        envs_per_actor=1,
        unroll_length=LENGTH,
        actor_nice=0,  # nothing computes, so actors take no core from the learner
        steps=(WARM_UP + BATCHES) * rows,
        log_every=WARM_UP * rows,
        hidden_sizes=(8,),
        eval_every=0,
        checkpoint_every=0,
        checkpoint_every_s=0,
        **setting._asdict(),
    )
    lines = read_metrics(run.path)
    first, last = lines[0], lines[-2]
    return float((last["wall_time_s"] - first["wall_time_s"]) * rows / (last["env_steps"] - first["env_steps"]))


def page(record: dict[str, Any]) -> list[str]:
    """Return the paragraphs of the page."""
    method = (
        f"`python -m benchmarks.pipeline`: a ticket takes {ACT_S} s ({ACTORS} actors), loading a batch {LOAD_S} s, the "
        f"learning steps of a batch together {LEARN_S} s. All of them only sleep. Runtime {record['runtime']}, "
        f"{BATCHES} batches after {WARM_UP}, median of {record['rounds']} rounds. *simulated*: what the pace allows, "
        "if nothing else takes time. *overlap*: the time without any overlap divided by this time."
    )
    header = [
        *("max_lag", "load_ahead", "resident_batches x passes", "s per batch, simulated"),
        *("overlap, simulated", "s per batch, run", "overlap, run", "run / simulated"),
    ]
    rows = [
        [
            *(str(row["max_lag"]), str(row["load_ahead"]), f"{row['resident_batches']} x {row['passes']}"),
            *(f"{row['simulated_s']:.3f}", f"{row['in_turns_s'] / row['simulated_s']:.2f}x"),
            *(f"{median(row['run_s']):.3f}", f"{row['in_turns_s'] / median(row['run_s']):.2f}x"),
            f"{row['simulated_s'] / median(row['run_s']):.2f}",
        ]
        for row in record["settings"]
    ]
    reached = sum(row["simulated_s"] >= GOAL * median(row["run_s"]) for row in record["settings"])
    result = f"{reached} of {len(rows)} settings reach {GOAL} of the simulated speed."
    return ["# The pipeline", method, f"{describe(record['machine'])}.", markdown_table(header, rows), result]


def main() -> None:
    """Simulate and train all settings, and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--runtime", default="processes", choices=("threads", "processes"))
    parser.add_argument("--rounds", type=int, default=3)
    options = read_options(parser)
    staging.BUFFERS["cpu"] = SleepingBuffers
    register_algorithm("sleeping_a2c", SleepingA2C)
    times: dict[Setting, list[float]] = {setting: [] for setting in SETTINGS}
    unfinished = Unfinished(options.out, "pipeline", runtime=options.runtime, rounds=options.rounds)
    for number, setting in by_turns(SETTINGS, options.rounds):
        what = {"round": number, **setting._asdict()}
        times[setting].append(unfinished.run(what, partial(measured, setting, options.runtime))["seconds"])
        simulated = setting.pipeline().seconds_per_batch()
        print(f"{setting}: simulated {simulated:.3f} s, run {times[setting][-1]:.3f} s", flush=True)
    settings = [
        {
            **setting._asdict(),
            "simulated_s": setting.pipeline().seconds_per_batch(),
            "in_turns_s": setting.pipeline().in_turns(),
            "run_s": seconds,
        }
        for setting, seconds in times.items()
    ]
    record = {"machine": machine(), "runtime": options.runtime, "rounds": options.rounds, "settings": settings}
    unfinished.publish(record, *page(record))


if __name__ == "__main__":
    main()
