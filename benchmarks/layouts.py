"""What each layout costs, what it could do at most, and what it does: `offbeat bench` on the works of `speed.py`.

python -m benchmarks.layouts
python -m benchmarks.layouts --works halfcheetah --seconds 10 --out /tmp/trial

The layouts of a work take turns in each round; shown are medians of the rounds.
"""

from __future__ import annotations

import json
from functools import partial
from statistics import median, mode

from benchmarks.common import by_turns, describe, machine, markdown_table, offbeat, spread
from benchmarks.options import new_parser, read_options
from benchmarks.records import Unfinished
from benchmarks.works import LAYOUTS, WORKS, Settings, command

SIDES = {
    "cartpole": ("serial", "threads", "processes", "processes-exact"),
    "cartpole-one-epoch": ("serial", "threads", "processes", "processes-exact"),
    "halfcheetah": ("serial", "threads-2", "processes-2", "processes-2-equals", "processes-2-exact"),
    "pong": ("serial", "processes-2", "processes-2-equals"),
    "pong-bf16": ("serial", "processes-2", "processes-2-equals"),
}
"""In "equals" actors are not nicer than the learner, as they are by default where they can fill all cores."""


def bench(name: str, side: str, seconds: float) -> Settings:
    """Return what `offbeat bench` says of a work in a layout."""
    words = command({**WORKS[name], "seed": 1}, side)
    words[words.index("train")] = "bench"
    progress = words.index("--progress")
    del words[progress : progress + 2]
    answer: Settings = json.loads(offbeat(*words, "--seconds", str(seconds), "--json"))
    return answer


def summary(runs: list[Settings]) -> Settings:
    """Return what several runs of a work in a layout say: medians of numbers, and the most common words."""
    values = {key: [run[key] for run in runs] for key in runs[0]}
    return {key: mode(each) if isinstance(each[0], str) else median(each) for key, each in values.items()}


def runs_of(runs: list[Settings], name: str, side: str) -> list[Settings]:
    """Return the runs of a work in a layout."""
    return [run for run in runs if (run["work"], run["side"]) == (name, side)]


def page(record: Settings) -> list[str]:
    """Return the paragraphs of the page."""
    runs = record["runs"]
    header = [
        "work", "layout", "env us", "act us", "learn us", "limit SPS", "layout limit", "achieved", "fraction",
        "layout fraction", "gain at most", "bound by", "policy lag",
    ]  # fmt: skip
    sides = [runs_of(runs, *side) for side in dict.fromkeys((run["work"], run["side"]) for run in runs)]
    method = f"`offbeat bench`, rounds: {len(sides[0])}. Medians; for the achieved SPS with the least and the most."
    table = markdown_table(header, [_row(side) for side in sides])
    return ["# Layouts", method, f"{describe(record['machine'])}.", table]


def _row(runs: list[Settings]) -> list[str]:
    run = summary(runs)
    costs = [f"{run[f'c_{part}_us']:.2f}" for part in ("env", "act", "learn")]
    limits = [f"{run[key]:,.0f}" for key in ("limit_sps", "layout_limit_sps")]
    achieved = spread([each["achieved_sps"] for each in runs], ",.0f")
    shares = [f"{run[key]:.2f}" for key in ("fraction", "layout_fraction", "overlap_gain_max")]
    lag = f"{run['policy_lag_mean']:.2f} / {run['policy_lag_max']:.0f}"
    return [run["work"], run["side"], *costs, *limits, achieved, *shares, run["bound_by"], lag]


def main() -> None:
    """Bench all works in their layouts and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = read_options(parser)
    given = {"works": options.works, "seconds": options.seconds, "rounds": options.rounds}
    unfinished = Unfinished(options.out, "layouts", **given)
    runs = []
    for name in options.works:
        for number, side in by_turns(SIDES[name], options.rounds):
            what = {"work": name, "side": side, "round": number}
            runs.append(unfinished.run(what, partial(bench, name, side, options.seconds)))
            print(f"{name}, {side}: {runs[-1]['achieved_sps']:,.0f} SPS", flush=True)
    record = {"machine": machine(), "layouts": LAYOUTS, "runs": runs}
    unfinished.publish(record, *page(record))


if __name__ == "__main__":
    main()
