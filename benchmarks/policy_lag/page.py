"""The tables and the picture of docs/concepts/policy-lag.md, from the results that are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.common import describe, markdown_table, spread_reached, write_section
from benchmarks.policy_lag.statistics import mean_probability_of_improvement
from benchmarks.policy_lag.works import WORKS, Work
from benchmarks.records import Record
from offbeat.config.registry import algorithm_title
from offbeat.plots.statistics import FEWEST_FOR_INTERVAL, band_of, iqm

DOCS = Path(__file__).parents[2] / "docs"
PAGE, PICTURE = DOCS / "concepts/policy-lag.md", DOCS / "images/policy-lag.png"
START, END = "<!-- lags: written by benchmarks/policy_lag -->\n", "<!-- end of lags -->\n"

PROBABILITY = (
    "Probability that a run with lag is better than one without; 0.5 is no difference. Its 95 % interval is given from "
    f"{FEWEST_FOR_INTERVAL} seeds on."
)
STEPS = (
    "Env steps until an evaluation has at least the score: median of the seeds, where one that does not get there is "
    "later than all others (least to most of those that do), and how many get there. A dash: the median does not."
)

FEWEST_SEEDS = 3
"""A work with fewer seeds is in no table: one seed would look like a result."""

LAGS = ("no lag", "small lag", "large lag")
"""Names of the lags of a work, in their order."""

Runs = dict[int, list[Record]]
"""Lag -> the records of the seeds that all lags of a work have, in order of the seeds."""


def write_page(records: list[Record]) -> None:
    """Replace the tables of the page, and draw the picture."""
    write_section(PAGE, START, END, content(records))
    draw(shown(records))


def content(records: list[Record]) -> str:
    """Return the tables, and the machines behind them."""
    found = shown(records)
    parts = [
        "Mean return of 20 greedy episodes with the last weights: IQM of the seeds (95 % interval).",
        scores_table(found),
        PROBABILITY,
        improvement_table(found),
        STEPS,
        reached_table(found),
        _left_out(records),
        *sorted({f"Machine: {describe(record['machine'])}." for record in records}),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def shown(records: list[Record]) -> dict[Work, Runs]:
    """Return the runs of the works that have enough seeds."""
    found = {work: runs_of(work, records) for work in WORKS}
    return {work: runs for work, runs in found.items() if len(runs[work.lags[0]]) >= FEWEST_SEEDS}


def runs_of(work: Work, records: list[Record]) -> Runs:
    """Return the runs of a work."""
    found: dict[int, dict[int, Record]] = {lag: {} for lag in work.lags}
    for record in records:
        is_of_work = record["lag"] in found and record["name"] == work.name_of(record["lag"])
        if is_of_work and record["steps"] == work.steps:
            found[record["lag"]][record["seed"]] = record
    seeds = sorted(set.intersection(*(set(runs) for runs in found.values())))
    return {lag: [runs[seed] for seed in seeds] for lag, runs in found.items()}


# --- tables -------------------------------------------------------------------------------------------------


def scores_table(found: dict[Work, Runs]) -> str:
    """Return the scores of the last weights: a row for each work."""
    rows = [
        [*_head(work, runs), *(_iqm([run["score"] for run in runs[lag]]) for lag in work.lags)]
        for work, runs in found.items()
    ]
    return markdown_table(["work", "bound", "seeds", *LAGS], rows)


def improvement_table(found: dict[Work, Runs]) -> str:
    """Return the probabilities of improvement over no lag: a row for each work, and the mean over the presets."""
    pairs = {
        work: [(_scores(runs[lag]), _scores(runs[work.lags[0]])) for lag in work.lags[1:]]
        for work, runs in found.items()
    }
    rows = [[*_head(work, found[work]), *(_probability([pair]) for pair in of_lags)] for work, of_lags in pairs.items()]
    of_presets = [of_lags for work, of_lags in pairs.items() if not work.changes]  # each env counts once
    means = [_probability(list(same)) for same in zip(*of_presets, strict=True)]
    rows.append(["**mean of the presets**", "", "", *means])
    return markdown_table(["work", "bound", "seeds", *LAGS[1:]], rows)


def reached_table(found: dict[Work, Runs]) -> str:
    """Return after how many env steps the works reach their scores: a row for each work."""
    rows = [
        [
            work.name,
            f"{work.score:g}",
            f"`{work.key}` {', '.join(map(str, work.lags))}",
            *(_reached(work, runs[lag]) for lag in work.lags),
        ]
        for work, runs in found.items()
    ]
    return markdown_table(["work", "score", "bound", *LAGS], rows)


def _left_out(records: list[Record]) -> str:
    """Return the works that have runs and are in no table, with the seeds that they have so far."""
    seeds = {work: len(runs_of(work, records)[work.lags[0]]) for work in WORKS}
    listed = ", ".join(f"{work.name} ({count})" for work, count in seeds.items() if 0 < count < FEWEST_SEEDS)
    return f"Fewer than {FEWEST_SEEDS} seeds with all lags so far, and so in no table: {listed}." if listed else ""


def _head(work: Work, runs: Runs) -> list[str]:
    bounds = ", ".join(map(str, work.lags))
    return [f"{work.name}, {work.steps:,} env steps", f"`{work.key}` {bounds}", str(len(runs[work.lags[0]]))]


def _scores(runs: list[Record]) -> list[float]:
    return [run["score"] for run in runs]


def _iqm(scores: Sequence[float]) -> str:
    if not scores:
        return "-"
    low, high = (float(edge[0]) for edge in band_of([[score] for score in scores]))
    return f"{float(iqm(scores)):,.0f} ({low:,.0f} to {high:,.0f})"


def _probability(pairs: list[tuple[list[float], list[float]]]) -> str:
    probability, low, high = mean_probability_of_improvement(pairs)
    if max(len(scores) for scores, _ in pairs) < FEWEST_FOR_INTERVAL:
        return f"{probability:.2f}"
    return f"{probability:.2f} ({low:.2f} to {high:.2f})"


def _reached(work: Work, runs: list[Record]) -> str:
    first = [next((point[0] for point in run["curve"] if point[2] >= work.score), None) for run in runs]
    return f"{spread_reached(first, ',.0f')}, {len(runs) - first.count(None)} of {len(runs)}"


# --- the picture --------------------------------------------------------------------------------------------


def draw(found: dict[Work, Runs]) -> None:
    """Draw the evaluations during training, a panel for each work."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(4.2 * columns, 3.2 * rows), squeeze=False, layout="constrained")
    for panel in grid.flat[len(found) :]:
        panel.axis("off")
    for panel, (work, runs) in zip(grid.flat, found.items(), strict=False):
        for name, lag in zip(LAGS, work.lags, strict=True):
            curves = np.asarray([[point[2] for point in run["curve"]] for run in runs[lag]])
            steps = np.mean([[point[0] for point in run["curve"]] for run in runs[lag]], axis=0)
            (line,) = panel.plot(steps, iqm(curves, axis=0), label=f"{name} ({work.key} {lag})")
            panel.fill_between(steps, *band_of(curves), alpha=0.2, color=line.get_color(), linewidth=0)
        changes = "".join(f"\n{key} {value}" for key, value in work.changes.items())
        panel.set(
            title=f"{algorithm_title(work.algorithm)}, {work.env}{changes}",
            xlabel="env steps",
            ylabel="return of evaluations",
        )
        panel.legend(fontsize=8)
    figure.savefig(PICTURE, dpi=120)
    plt.close(figure)
