"""The table and the pictures of docs/concepts/scores.md, from the results that are there."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.common import describe, write_section
from benchmarks.scores.works import Work
from offbeat.config.registry import algorithm_title
from offbeat.plots.statistics import FEWEST_FOR_INTERVAL, band_of, iqm

PAGE = Path(__file__).parents[2] / "docs/concepts/scores.md"
START, END = "<!-- scores: written by benchmarks/scores -->\n", "<!-- end of scores -->\n"
HEAD = (
    "| algorithm, env | env steps | seeds | mean | IQM (95 % interval) | each seed | minutes | published | beside it |",
    "| --- | ---: | ---: | ---: | ---: | --- | ---: | --- | --- |",
)


def write_page(works: list[Work]) -> None:
    """Replace the table of the page."""
    write_section(PAGE, START, END, content(works))


def content(works: list[Work]) -> str:
    """Return the table, and the machines behind it."""
    results = [(work, work.results()) for work in works]
    machines = sorted({describe(result["machine"]) for _, found in results for result in found})
    about = "\n".join(f"- {machine}" for machine in machines)
    return "\n".join(
        [*HEAD, *(_row(work, found) for work, found in results), "", "Machines and versions:", "", about, ""]
    )


def _row(work: Work, results: list[dict[str, Any]]) -> str:
    runtime = "" if work.runtime == "serial" else f", `{work.runtime}`"
    preset = f", `{work.preset}`" if work.preset else ""
    settings = "".join(f", `{key}={value}`" for key, value in work.settings.items())
    name = f"{algorithm_title(work.algorithm)}, {_linked(work)}{preset}{runtime}{settings}"
    published = f"{work.published:,g}: {work.source}"
    head = f"| {name} | {work.steps:,} | {len(results)} of {work.seeds}"
    if not results:
        return f"{head} | - | - | - | - | {published} | not run yet |"
    scores = [float(result["evaluation"]["return_mean"]) for result in results]
    low, high = (float(edge[0]) for edge in band_of([[score] for score in scores]))
    minutes = median(result["curve"][-1][1] for result in results) / 60
    interval = f"{_figure(float(iqm(scores)))} ({_figure(low)} to {_figure(high)})"
    each = " ".join(map(_figure, scores))
    figures = f"{_figure(mean(scores))} | {interval} | {each} | {minutes:.1f}"
    return f"{head} | {figures} | {published} | {beside(work.published, scores)} |"


def _figure(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.3f}"


def _linked(work: Work) -> str:
    """Return the name of the env, linked to its curves if they are there."""
    picture = work.folder / "return.png"
    return f"[{work.env}](../../{picture.relative_to(PAGE.parents[2])})" if picture.exists() else work.env


def beside(published: float, scores: list[float]) -> str:
    """Say where scores are beside the published figure, after both have as many decimals."""
    if len(scores) == 1:
        return "one seed shows no difference"
    decimals = max(0, -int(Decimal(str(published)).as_tuple().exponent))
    low, high = (round(float(edge[0]), decimals) for edge in band_of([[score] for score in scores]))
    if low <= published <= high:
        return "no difference that the seeds can show"
    if len(scores) < FEWEST_FOR_INTERVAL:
        return f"all {len(scores)} seeds {'above' if low > published else 'below'}"
    return "better" if low > published else "worse"
