r"""Env steps and seconds to a score on CartPole-v1: serial beside processes, several seeds.

    python -m benchmarks.steps_to_score
    python -m benchmarks.steps_to_score --sides serial processes --seeds 1 2 3 --out /tmp/trial
    python -m benchmarks.steps_to_score --sides processes-exact --set c_clip=1.0 --name steps-to-score-c-clip-1 \
        --out benchmarks/results

A seed has the score at the first evaluation of 20 episodes whose mean return is 475 or more; there is one every 2048
env steps. Seconds count from the start of the process, imports and evaluations included, to the moment at which
metrics.jsonl has the line. One run at a time, seed by seed, the sides by turns.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import OFFBEAT, by_turns, describe, machine, markdown_table, spread_reached
from benchmarks.lines import follow
from benchmarks.options import new_parser, read_options
from benchmarks.records import Unfinished
from benchmarks.works import CARTPOLE, LAYOUTS, Settings, command

SCORE = 475.0
EVAL_EVERY, EVAL_EPISODES = 2048, 20
STEPS = 500_000
"""After which a seed has failed."""


def run(side: str, seed: int, more: list[str]) -> Settings:
    """Train until the score is reached; return when that was, None where it was not."""
    work = {**CARTPOLE, "steps": STEPS, "seed": seed}
    return until_score([*command(work, side), *more])


def until_score(arguments: list[str]) -> Settings:
    """Train with the arguments of a command that ends with settings, until the score is reached; return when it was."""
    settings = ("checkpoint_every=0", f"eval_episodes={EVAL_EPISODES}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        given = [*arguments, *settings, "--eval-every", str(EVAL_EVERY), "--run-dir", str(path)]
        started_s = time.perf_counter()
        with subprocess.Popen([OFFBEAT, *given], stdout=subprocess.DEVNULL) as child:
            line = wait_for_score(child, path / "metrics.jsonl")
            seconds = time.perf_counter() - started_s
            child.terminate()
    if line is None and child.returncode:
        raise SystemExit(f"offbeat {' '.join(given)}\nended with {child.returncode}")
    return {
        "env_steps": line and line["eval_env_steps"],
        "seconds": line and round(seconds, 3),
        "training_s": line and round(line["wall_time_s"], 3),
        "evaluations": line and line["evaluations"],
    }


def wait_for_score(child: subprocess.Popen[bytes], metrics: Path) -> dict[str, Any] | None:
    """Return the first line with the score, or None if the run ends without one."""
    return next((line for line in follow(metrics, child) if (line["eval_return_mean"] or 0.0) >= SCORE), None)


def page(record: Settings) -> list[str]:
    """Return the paragraphs of the page."""
    runs, more = record["runs"], record["more"]
    header = ["side", "seeds", "env steps", "seconds from process start", "of these in training"]
    sides = dict.fromkeys(run["side"] for run in runs)
    rows = [row_of(side, [run for run in runs if run["side"] == side]) for side in sides]
    given = f" With {' '.join(more)}." if more else ""
    method = (
        f"CartPole-v1, the work `cartpole` of speed.md: the first evaluation of {EVAL_EPISODES} episodes at "
        f"{SCORE:.0f} or more, one every {EVAL_EVERY} env steps. Median (least to most) of the seeds.{given}"
    )
    place = f"{describe(record['machine'])}."
    return ["# Env steps and seconds to a score", method, place, markdown_table(header, rows)]


def row_of(side: str, runs: list[Settings]) -> list[str]:
    """Return a row of a table: the seeds that reached the score, and medians of when they did."""
    reached = sum(run["env_steps"] is not None for run in runs)
    keys = {"env_steps": ",.0f", "seconds": ".2f", "training_s": ".2f"}
    figures = [spread_reached([run[key] for run in runs], form) for key, form in keys.items()]
    return [side, f"{reached} of {len(runs)}", *figures]


def main() -> None:
    """Run all seeds on all sides and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--sides", nargs="+", choices=LAYOUTS, default=["serial", "processes", "processes-exact"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(1, 16)))
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="other settings than the work's")
    parser.add_argument("--name", default="steps-to-score", help="of the results")
    options = read_options(parser, "name")
    unfinished = Unfinished(options.out, options.name, sides=options.sides, seeds=options.seeds, more=options.set)
    runs = []
    for number, side in by_turns(options.sides, len(options.seeds)):
        seed = options.seeds[number - 1]
        runs.append(unfinished.run({"side": side, "seed": seed}, partial(run, side, seed, options.set)))
        print(f"{side}, seed {seed}: {runs[-1]['env_steps']} env steps, {runs[-1]['seconds']} s", flush=True)
    record = {"machine": machine(), "work": CARTPOLE, "layouts": LAYOUTS, "more": options.set, "runs": runs}
    unfinished.publish(record, *page(record))


if __name__ == "__main__":
    main()
