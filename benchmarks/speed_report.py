"""Tables and figures of the speeds, and beside them what was learned at these speeds."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common import describe, in_words, markdown_table, spread, write_page
from benchmarks.works import PEERS

Record = dict[str, Any]
PARTS = (0.1, 0.25, 0.5, 1.0)
GRID_POINTS = 100
REFERENCES = ("serial", "processes", "processes-2", "hogwild-1", *PEERS)
"""Sides that the others are divided by."""


def write_tables(records: dict[str, Record], path: Path) -> str:
    """Write what was measured as Markdown, and return it."""
    about = [
        "SPS and ratios: median (least to most). A ratio is that of two runs of the same round.",
        "Start: seconds of the process that the curve does not have, such as imports; median.",
        "CPU: seconds of the whole process and its children per 100,000 env steps, start-up included; median.",
        "Policy lag: mean / most. offbeat counts learning steps, Sample Factory optimizer steps.",
    ]
    parts = [part for name, record in records.items() for part in _section(name, record)]
    return write_page(path, "# Speed beside other libraries", "\n".join(about), *parts)


def _section(name: str, record: Record) -> list[str]:
    work = record["work"]
    rounds = max(run["round"] for run in record["runs"])
    batch = (
        f"{work['env']}, {work['envs']} envs, {_learning(work)}; {work['steps']:,} env steps a run, {rounds} rounds."
    )
    versions = [f"{side}: {in_words(found)}." for side, found in record["versions"].items()]
    threads = [f"{side}: torch threads: {count}; {_trials(record, side)}." for side, count in record["threads"].items()]
    layouts = [f"{side}: `{layout}`." for side, layout in record["layouts"].items()]
    about = "\n".join([batch, f"{describe(record['machine'])}.", *versions, *threads])
    learned = ["No episode ended in so few env steps: there is no curve."]
    if has_curves(record):
        learned = [_curves(record).rstrip(), f"![Returns over env steps and over time](speed-{name}.png)"]
    return [f"## {name}", about, "  \n".join(layouts), _speeds(record).rstrip(), *learned]


def _trials(record: Record, side: str) -> str:
    """Return the speeds of a peer in trials, by its torch threads."""
    tried = record["sps_by_threads"].get(side, {})
    speeds = [f"with {count}: {', '.join(f'{sps:,.0f}' for sps in trials)}" for count, trials in tried.items()]
    return f"SPS in trials {'; '.join(speeds)}" if speeds else "no other number was tried"


def has_curves(record: Record) -> bool:
    """Whether an episode ended in any run, so that there are returns to show."""
    return any(point[2] is not None for run in record["runs"] for point in run["curve"])


def _learning(work: dict[str, Any]) -> str:
    if work.get("algorithm") == "sac":
        return (
            f"batches of {work['batch_size']}, {work['utd_ratio']} update per env step, {work['warmup']:,} env steps "
            f"of warm-up, measured after {work['measured_after']:,}"
        )
    if work.get("algorithm") == "a2c":
        return f"unrolls of {work['unroll_length']}, one update a batch"
    return f"unrolls of {work['unroll_length']}, minibatches of {work['minibatch_size']}, epochs: {work['epochs']}"


# --- tables -------------------------------------------------------------------------------------------------


def _speeds(record: Record) -> str:
    sides = by_side(record)
    references = [name for name in REFERENCES if name in sides]
    header = ["side", "SPS", *(f"x {reference}" for reference in references), "start s", "CPU s", "policy lag"]
    rows = [
        [
            side,
            spread([run["sps"] for run in runs], ",.0f"),
            *(_ratios(runs, sides[reference]) for reference in references),
            f"{median(run['process_s'] - run['curve'][-1][1] for run in runs):.1f}",
            f"{median(run['process_cpu_s'] for run in runs) / record['work']['steps'] * 100_000:.2f}",
            _lag(runs),
        ]
        for side, runs in sides.items()
    ]
    return markdown_table(header, rows)


def _ratios(runs: list[Record], references: list[Record]) -> str:
    """Return a side's speed over a reference's, of runs of the same round."""
    of_round = {run["round"]: run["sps"] for run in references}
    return "1" if runs is references else spread([run["sps"] / of_round[run["round"]] for run in runs], ".2f")


def _lag(runs: list[Record]) -> str:
    lags = [run["policy_lag"] for run in runs if run.get("policy_lag")]
    return f"{median(mean for mean, _ in lags):.2f} / {max(most for _, most in lags):.0f}" if lags else "0"


def _curves(record: Record) -> str:
    header = ["mean return of the last 100 training episodes", *(f"after {part:.0%} of the steps" for part in PARTS)]
    steps = record["work"]["steps"]
    rows = [
        [side, *(_return_at(runs, part * steps) for part in PARTS)] for side, runs in by_side(record).items()
    ]  # fmt: skip
    return markdown_table(header, rows)


def _return_at(runs: list[Record], steps: float) -> str:
    scores = [min(run["curve"], key=lambda point: abs(point[0] - steps))[2] for run in runs]
    known = [score for score in scores if score is not None]
    return spread(known, ",.0f") if known else "-"


def by_side(record: Record) -> dict[str, list[Record]]:
    """Return the runs of each side, in the order of the first round."""
    sides = dict.fromkeys(run["side"] for run in record["runs"])
    return {side: [run for run in record["runs"] if run["side"] == side] for side in sides}


# --- figure -------------------------------------------------------------------------------------------------


def draw(name: str, record: Record, path: Path) -> None:
    """Draw each side's return over env steps and over seconds: the median of its runs, from the least to the most."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for axis, column, label in ((axes[0], 0, "env steps"), (axes[1], 1, "seconds of training, start-up left out")):
        for side, runs in by_side(record).items():
            x, returns = _on_a_grid(runs, column)
            axis.plot(x, np.median(returns, axis=0), label=side)
            axis.fill_between(x, returns.min(axis=0), returns.max(axis=0), alpha=0.15, linewidth=0)
        axis.set_xlabel(label)
        axis.grid(visible=True, alpha=0.3)
    axes[0].set_ylabel("return of the last 100 training episodes")
    axes[0].legend(fontsize="small")
    figure.suptitle(f"{name}: {record['work']['env']}")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _on_a_grid(runs: list[Record], column: int) -> tuple[Any, Any]:
    """Return points that all runs reach, and the returns there [runs, points]."""
    curves = [np.array([point for point in run["curve"] if point[2] is not None], float) for run in runs]
    curves = [curve if len(curve) else np.full((1, 3), np.nan) for curve in curves]
    x = np.linspace(max(curve[0, column] for curve in curves), min(curve[-1, column] for curve in curves), GRID_POINTS)
    return x, np.stack([np.interp(x, curve[:, column], curve[:, 2]) for curve in curves])
