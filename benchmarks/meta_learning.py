"""PEARL on the dense point robot: the return in new tasks over updates, and the seconds to a score, by runtime.

    python -m benchmarks.meta_learning --seeds 1 2 3 4 5 --runtimes serial
    python -m benchmarks.meta_learning --seeds 1 2 --runtimes serial processes --append

Trains with the preset, and reads the evaluations in the test tasks: the return of the first episode, with the task
variable from the prior, and of the sixth, with the task variable from the posterior. The score is reached at the first
evaluation whose sixth episode has `SCORE`. Evaluations do not count as time of training in serial; CPU seconds are
those of all processes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common import (
    RESULTS,
    children_cpu_s,
    describe,
    machine,
    markdown_table,
    offbeat,
    read_metrics,
    spread,
    write_json,
)

ENV = "offbeat/PointRobot-v0"
SCORE = -12.0
"""Mean return of the sixth episode; -5.1 is the best with a known goal, -15.3 without knowing it."""
GAIN = 5.0
"""Difference of the sixth and the first episode."""
EVAL_EVERY = 4000
"""Env steps between evaluations: 800 updates."""
RUN = dict[str, Any]


def train(runtime: str, seed: int, folder: Path) -> RUN:
    """Train one seed with the preset; return its evaluations and what it cost."""
    path, before = folder / f"{runtime}-{seed}", children_cpu_s()
    settings = [f"eval_every={EVAL_EVERY}", "eval_time_share=1", "evaluator=inline", "checkpoint_every=0"]
    arguments = ["--runtime", runtime, "--seed", str(seed), "--run-dir", str(path), "--progress", "none", "--set"]
    offbeat("train", "pearl", ENV, *arguments, *settings)
    lines = read_metrics(path)
    curve = [
        {
            "env_steps": line["env_steps"],
            "updates": line["updates"],
            "seconds": round(line["wall_time_s"] - line["evaluation_s"], 1),
            "first": round(line["eval_first_return_mean"], 2),
            "sixth": round(line["eval_return_mean"], 2),
        }
        for line in lines
        if line["eval_env_steps"] == line["env_steps"] and line["updates"]
    ]
    cpu = round(children_cpu_s() - before, 1)
    return {"runtime": runtime, "seed": seed, "cpu_s": cpu, "wall_s": curve[-1]["seconds"], "curve": curve}


def reached(run: RUN) -> RUN | None:
    """Return the first evaluation of a run with the score; None if there is none."""
    found: RUN | None = next((point for point in run["curve"] if point["sixth"] >= SCORE), None)
    return found


def passed(run: RUN) -> bool:
    """Whether a run ends with the score, and so much above its first episode."""
    last = run["curve"][-1]
    return bool(last["sixth"] >= SCORE and last["sixth"] - last["first"] >= GAIN)


def write_results(runs: list[RUN], out: Path) -> str:
    """Write the raw runs and the tables, and return the text."""
    about = machine()
    write_json(out / "meta-learning.json", {"machine": about, "env": ENV, "runs": runs})
    text = "\n\n".join(
        [
            "# PEARL on the dense point robot",
            f"{ENV} with its preset; mean returns in 20 test tasks. The score is a sixth episode of {SCORE:.0f}.",
            f"{describe(about)}, shared with other jobs: compare ratios and CPU seconds only.",
            markdown_table(
                ["runtime", "seed", "updates", "first episode", "sixth episode", "updates to the score", "passed"],
                [_row(run) for run in runs],
            ),
            markdown_table(
                ["runtime", "seeds", "seconds to the score", "seconds in all", "CPU seconds in all"],
                [_costs(name, [run for run in runs if run["runtime"] == name]) for name in _runtimes(runs)],
            ),
        ]
    )
    (out / "meta-learning.md").write_text(text + "\n")
    return text


def _runtimes(runs: list[RUN]) -> list[str]:
    return list(dict.fromkeys(run["runtime"] for run in runs))


def _row(run: RUN) -> list[str]:
    last, first = run["curve"][-1], reached(run)
    updates = str(first["updates"]) if first else "-"
    figures = [str(last["updates"]), f"{last['first']:.2f}", f"{last['sixth']:.2f}", updates]
    return [run["runtime"], str(run["seed"]), *figures, "yes" if passed(run) else "no"]


def _costs(name: str, runs: list[RUN]) -> list[str]:
    seconds = [found["seconds"] for run in runs if (found := reached(run))]
    figures = [seconds, [run["wall_s"] for run in runs], [run["cpu_s"] for run in runs]]
    return [name, str(len(runs)), *(spread(values, ",.0f") if values else "-" for values in figures)]


def main() -> None:
    """Train all seeds in all runtimes and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--runtimes", nargs="+", default=["serial", "processes"])
    parser.add_argument("--append", action="store_true", help="keep the runs that are in the results")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    options = parser.parse_args()
    file = options.out / "meta-learning.json"
    runs: list[RUN] = json.loads(file.read_text())["runs"] if options.append and file.exists() else []
    with TemporaryDirectory() as folder:
        for seed in options.seeds:
            for runtime in options.runtimes if seed % 2 else reversed(options.runtimes):
                runs.append(train(runtime, seed, Path(folder)))
                print(f"{runtime}, seed {seed}: {runs[-1]['curve'][-1]}, {runs[-1]['cpu_s']} CPU s", flush=True)
    print(write_results(runs, options.out))


if __name__ == "__main__":
    main()
