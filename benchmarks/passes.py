"""Env steps and seconds to a score on CartPole-v1, with IMPALA that uses each batch 1, 2 or 4 times.

    python -m benchmarks.passes
    python -m benchmarks.passes --seeds 1 2 3 --passes 1 4 --out /tmp/trial

The score is that of `benchmarks.steps_to_score`, one run at a time, seed by seed, the numbers of passes by turns. The
settings are those of the preset in the serial runtime, with four resident batches where there are several passes.
"""

from __future__ import annotations

from functools import partial

from benchmarks.common import by_turns, describe, machine, markdown_table
from benchmarks.options import new_parser, read_options
from benchmarks.records import Record, Unfinished
from benchmarks.steps_to_score import EVAL_EVERY, SCORE, STEPS, row_of, until_score

RESIDENT = 4


def arguments_of(passes: int, seed: int) -> list[str]:
    """Return the arguments of one run."""
    resident = [f"resident_batches={RESIDENT}"] if passes > 1 else []
    layout = ["--runtime", "serial", "--steps", str(STEPS), "--seed", str(seed), "--progress", "none"]
    return ["train", "impala", "CartPole-v1", *layout, "--set", f"passes={passes}", *resident]


def page(record: Record) -> list[str]:
    """Return the paragraphs of the page."""
    runs = record["runs"]
    method = (
        f"`python -m benchmarks.passes`: IMPALA with its preset, in serial. The first evaluation of 20 episodes at "
        f"{SCORE:.0f} or more within {STEPS:,} env steps, one every {EVAL_EVERY}. Median (least to most) of the seeds. "
        f"With several passes {RESIDENT} batches are resident."
    )
    header = ["passes", "seeds", "env steps", "seconds from process start", "of these in training"]
    numbers = dict.fromkeys(run["passes"] for run in runs)
    rows = [row_of(str(number), [run for run in runs if run["passes"] == number]) for number in numbers]
    place = f"{describe(record['machine'])}."
    return ["# Batches that are used several times", method, place, markdown_table(header, rows)]


def main() -> None:
    """Run all seeds with each number of passes, and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--passes", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(1, 16)))
    options = read_options(parser)
    unfinished = Unfinished(options.out, "passes", passes=options.passes, seeds=options.seeds)
    runs = []
    for number, passes in by_turns(options.passes, len(options.seeds)):
        seed = options.seeds[number - 1]
        arguments = arguments_of(passes, seed)
        runs.append(unfinished.run({"passes": passes, "seed": seed}, partial(until_score, arguments)))
        print(f"{passes} passes, seed {seed}: {runs[-1]['env_steps']} env steps, {runs[-1]['seconds']} s", flush=True)
    runs.sort(key=lambda run: (run["passes"], run["seed"]))
    record = {"machine": machine(), "runs": runs}
    unfinished.publish(record, *page(record))


if __name__ == "__main__":
    main()
