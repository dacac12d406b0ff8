"""PEARL on the dense point robot: the return in new tasks over updates, and the seconds to a score, by runtime.

    python -m benchmarks.meta_learning
    python -m benchmarks.meta_learning --seeds 6 7 --append --out benchmarks/results
    python -m benchmarks.meta_learning --env offbeat/AntGoal-v0 --seeds 1 --time 3600 --out /tmp/trial
    python -m benchmarks.meta_learning --tables benchmarks/results/meta-learning.json

Trains with the preset and the settings of `--set`, and reads the evaluations in the test tasks: the return of the
first episode, with the task variable from the prior, and of the sixth, with the task variable from the posterior. The
score is reached at the first evaluation whose sixth episode has `SCORE`. Evaluations do not count as time of training
in serial; CPU seconds are those of all processes. For another env the table has all evaluations, and there is no score.
The picture is the adaptation curve of the last evaluations.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common import (
    children_cpu_s,
    describe,
    machine,
    markdown_table,
    offbeat,
    read_metrics,
    spread,
    spread_reached,
    write_json,
)
from benchmarks.options import new_parser, read_options

ENV = "offbeat/PointRobot-v0"
SCORE = -12.0
"""Mean return of the sixth episode; -5.1 is the best with a known goal, -15.3 without knowing it."""
GAIN = 5.0
"""Difference of the sixth and the first episode."""
EVAL_EVERY = 4000
"""Env steps between evaluations: 800 updates."""
RUN = dict[str, Any]


def train(env: str, runtime: str, seed: int, settings: list[str], folder: Path) -> RUN:
    """Train one seed with the preset and these settings; return its evaluations and what it cost."""
    path, before = folder / f"{runtime}-{seed}", children_cpu_s()
    settings = ["eval_time_share=1", "evaluator=inline", "checkpoint_every=0", *settings]
    arguments = ["--runtime", runtime, "--seed", str(seed), "--run-dir", str(path), "--progress", "none", "--set"]
    offbeat("train", "pearl", env, *arguments, *settings)
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
    if not curve:
        raise SystemExit(f"{env}, {runtime}, seed {seed}: no evaluation after the first update; pass a longer --time")
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


def results_file(env: str, out: Path) -> Path:
    """Return the file of the raw results of an env; its tables and its picture have the same name."""
    name = "" if env == ENV else f"-{env.rpartition('/')[2].lower()}"
    return out / f"meta-learning{name}.json"


def write_tables(file: Path) -> str:
    """Write the tables of the raw results in a file, and return the text."""
    results = json.loads(file.read_text())
    env, runs = results["env"], results["runs"]
    processor = f"{describe(results['machine'])}."
    heading, *tables = _scores(runs) if env == ENV else _curves(env, results["settings"], runs)
    text = "\n\n".join(part.rstrip() for part in [heading, processor, *tables])
    file.with_suffix(".md").write_text(text + "\n")
    return text


def _scores(runs: list[RUN]) -> list[str]:
    about = f"{ENV} with its preset; mean returns in 20 test tasks. The score is a sixth episode of {SCORE:.0f}."
    return [
        f"# PEARL on the dense point robot\n\n{about}",
        markdown_table(
            ["runtime", "seed", "updates", "first episode", "sixth episode", "updates to the score", "passed"],
            [_row(run) for run in runs],
        ),
        markdown_table(
            ["runtime", "seeds", "seconds to the score", "seconds in all", "CPU seconds in all"],
            [_costs(name, [run for run in runs if run["runtime"] == name]) for name in _runtimes(runs)],
        ),
    ]


def _curves(env: str, settings: list[str], runs: list[RUN]) -> list[str]:
    return [
        f"# PEARL on {env}\n\nMean returns in the test tasks. The preset, and these settings: `{' '.join(settings)}`.",
        markdown_table(
            ["runtime", "seed", "env steps", "updates", "first episode", "sixth episode", "CPU seconds in all"],
            [_point(run, point) for run in runs for point in run["curve"]],
        ),
    ]


def _point(run: RUN, point: RUN) -> list[str]:
    cpu = f"{run['cpu_s']:,.0f}" if point is run["curve"][-1] else ""
    steps = [f"{point[key]:,}" for key in ("env_steps", "updates")]
    return [run["runtime"], str(run["seed"]), *steps, f"{point['first']:.2f}", f"{point['sixth']:.2f}", cpu]


def _runtimes(runs: list[RUN]) -> list[str]:
    return list(dict.fromkeys(run["runtime"] for run in runs))


def _row(run: RUN) -> list[str]:
    last, first = run["curve"][-1], reached(run)
    updates = f"{first['updates']:,}" if first else "-"
    figures = [f"{last['updates']:,}", f"{last['first']:.2f}", f"{last['sixth']:.2f}", updates]
    return [run["runtime"], str(run["seed"]), *figures, "yes" if passed(run) else "no"]


def _costs(name: str, runs: list[RUN]) -> list[str]:
    seconds = spread_reached([found["seconds"] if found else None for found in map(reached, runs)], ",.0f")
    return [name, str(len(runs)), seconds, *(spread([run[key] for run in runs], ",.0f") for key in ("wall_s", "cpu_s"))]


def main() -> None:
    """Train all seeds in all runtimes and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--runtimes", nargs="+", default=["serial", "processes"])
    parser.add_argument("--env", default=ENV)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings other than the preset's")
    parser.add_argument("--time", type=int, help="seconds after which a run stops")
    parser.add_argument("--eval-every", type=int, default=EVAL_EVERY, help="env steps between evaluations")
    parser.add_argument("--append", action="store_true", help="keep the runs that are in the results")
    parser.add_argument("--tables", type=Path, metavar="FILE.json", help="only write the tables of these raw results")
    options = read_options(parser, "env", "append", unless="tables")
    if options.tables:
        print(write_tables(options.tables))
        return
    settings = [f"eval_every={options.eval_every}", *options.set, *([f"time={options.time}"] if options.time else [])]
    file = results_file(options.env, options.out)
    runs: list[RUN] = json.loads(file.read_text())["runs"] if options.append and file.exists() else []
    with TemporaryDirectory() as folder:
        for seed in options.seeds:
            for runtime in options.runtimes if seed % 2 else reversed(options.runtimes):
                runs.append(train(options.env, runtime, seed, settings, Path(folder)))
                print(f"{runtime}, seed {seed}: {runs[-1]['curve'][-1]}, {runs[-1]['cpu_s']} CPU s", flush=True)
        trained = sorted(str(path) for path in Path(folder).iterdir())
        offbeat("plot", *trained, "--x", "episodes", "--out", str(file.with_suffix(".png")))
    write_json(file, {"machine": machine(), "env": options.env, "settings": settings, "runs": runs})
    print(write_tables(file))


if __name__ == "__main__":
    main()
