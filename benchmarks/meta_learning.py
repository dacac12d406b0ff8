"""PEARL on the dense point robot: the return in new tasks over updates, and the seconds to a score, by runtime.

    python -m benchmarks.meta_learning
    python -m benchmarks.meta_learning --env offbeat/AntGoal-v0 --seeds 1 --time 3600 --out /tmp/trial

Trains with the preset and the settings of `--set`, and reads the evaluations in the test tasks: the return of the
first episode, with the task variable from the prior, and of the sixth, with the task variable from the posterior. The
score is reached at the first evaluation whose sixth episode has `SCORE`. Evaluations do not count as time of training
in serial; CPU seconds are those of all processes. For another env the table has all evaluations, and there is no score.
The picture is the adaptation curve of the last evaluations. Run directories are in runs/meta-learning.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from benchmarks.common import (
    by_turns,
    children_cpu_s,
    describe,
    machine,
    markdown_table,
    offbeat,
    spread,
    spread_reached,
)
from benchmarks.options import new_parser, read_options
from benchmarks.records import Record, Unfinished
from offbeat.metrics.sinks import read_metrics

ENV = "offbeat/PointRobot-v0"
SCORE = -12.0
"""Mean return of the sixth episode; -5.1 is the best with a known goal, -15.3 without knowing it."""
GAIN = 5.0
"""Difference of the sixth and the first episode."""
EVAL_EVERY = 4000
"""Env steps between evaluations: 800 updates."""
RUNS = Path("runs/meta-learning")


def train(env: str, runtime: str, seed: int, settings: list[str]) -> Record:
    """Train one seed with the preset and these settings; return its evaluations and what it cost."""
    path, before = run_directory(env, runtime, seed), children_cpu_s()
    shutil.rmtree(path, ignore_errors=True)
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
    return {"cpu_s": round(children_cpu_s() - before, 1), "wall_s": curve[-1]["seconds"], "curve": curve}


def run_directory(env: str, runtime: str, seed: int) -> Path:
    """Return the run directory of a seed."""
    return RUNS / env.rpartition("/")[2] / f"{runtime}-{seed}"


def reached(run: Record) -> Record | None:
    """Return the first evaluation of a run with the score; None if there is none."""
    found: Record | None = next((point for point in run["curve"] if point["sixth"] >= SCORE), None)
    return found


def passed(run: Record) -> bool:
    """Whether a run ends with the score, and so much above its first episode."""
    last = run["curve"][-1]
    return bool(last["sixth"] >= SCORE and last["sixth"] - last["first"] >= GAIN)


def results_name(env: str) -> str:
    """Return the name of the files of an env's results."""
    return "meta-learning" if env == ENV else f"meta-learning-{env.rpartition('/')[2].lower()}"


def page(record: Record) -> list[str]:
    """Return the paragraphs of the page."""
    env, runs = record["env"], record["runs"]
    heading, *tables = _scores(runs) if env == ENV else _curves(env, record["settings"], runs)
    return [heading, f"{describe(record['machine'])}.", *tables]


def _scores(runs: list[Record]) -> list[str]:
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


def _curves(env: str, settings: list[str], runs: list[Record]) -> list[str]:
    return [
        f"# PEARL on {env}\n\nMean returns in the test tasks. The preset, and these settings: `{' '.join(settings)}`.",
        markdown_table(
            ["runtime", "seed", "env steps", "updates", "first episode", "sixth episode", "CPU seconds in all"],
            [_point(run, point) for run in runs for point in run["curve"]],
        ),
    ]


def _point(run: Record, point: Record) -> list[str]:
    cpu = f"{run['cpu_s']:,.0f}" if point is run["curve"][-1] else ""
    steps = [f"{point[key]:,}" for key in ("env_steps", "updates")]
    return [run["runtime"], str(run["seed"]), *steps, f"{point['first']:.2f}", f"{point['sixth']:.2f}", cpu]


def _runtimes(runs: list[Record]) -> list[str]:
    return list(dict.fromkeys(run["runtime"] for run in runs))


def _row(run: Record) -> list[str]:
    last, first = run["curve"][-1], reached(run)
    updates = f"{first['updates']:,}" if first else "-"
    figures = [f"{last['updates']:,}", f"{last['first']:.2f}", f"{last['sixth']:.2f}", updates]
    return [run["runtime"], str(run["seed"]), *figures, "yes" if passed(run) else "no"]


def _costs(name: str, runs: list[Record]) -> list[str]:
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
    options = read_options(parser)
    settings = [f"eval_every={options.eval_every}", *options.set, *([f"time={options.time}"] if options.time else [])]
    env, name = options.env, results_name(options.env)
    given = {"runtimes": options.runtimes, "seeds": options.seeds, "settings": settings}
    unfinished = Unfinished(options.out, name, **given)
    runs: list[Record] = []
    for number, runtime in by_turns(options.runtimes, len(options.seeds)):
        seed = options.seeds[number - 1]
        what = {"runtime": runtime, "seed": seed}
        runs.append(unfinished.run(what, partial(train, env, runtime, seed, settings)))
        print(f"{runtime}, seed {seed}: {runs[-1]['curve'][-1]}, {runs[-1]['cpu_s']} CPU s", flush=True)
    trained = [str(run_directory(env, run["runtime"], run["seed"])) for run in runs]
    offbeat("plot", *sorted(trained), "--x", "episodes", "--out", str(options.out / f"{name}.png"))
    record = {"machine": machine(), "env": env, "settings": settings, "runs": runs}
    unfinished.publish(record, *page(record))


if __name__ == "__main__":
    main()
