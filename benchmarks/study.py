"""Keep what an experiment found: its table, its graphs, and each evaluation of each session as a line of CSV.

python -m benchmarks.study experiments/hogwild-pendulum   # writes benchmarks/results/hogwild-pendulum
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.options import new_parser, read_options
from offbeat.metrics.sinks import read_metrics
from offbeat.plots.runs import evaluated

KEPT = ("spec.toml", "table.md", "table.csv", "return-steps.png", "return-time.png")
COLUMNS = ("env_steps", "wall_time_s", "eval_return_mean")


def main() -> None:
    """Copy the artefacts of the experiment directory that is named, and write evaluations.csv."""
    parser = new_parser(__doc__)
    parser.add_argument("experiment", type=Path)
    options = read_options(parser, "experiment")
    experiment: Path = options.experiment.resolve()
    target = options.out / experiment.name
    target.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        shutil.copy(experiment / name, target / name)
    with (target / "evaluations.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("trial", "session", *COLUMNS))
        writer.writerows(evaluations(experiment))
    print(target)


def evaluations(experiment: Path) -> Iterator[tuple[str | float, ...]]:
    """Yield trial, session and figures of each evaluation, in order."""
    for metrics in sorted(experiment.glob("trial-*/seed-*/metrics.jsonl")):
        session = metrics.parent
        for line in evaluated(read_metrics(metrics)):
            yield session.parent.name, session.name, *(line[name] for name in COLUMNS)


if __name__ == "__main__":
    main()
