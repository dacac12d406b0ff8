"""What exchange does in a population: PPO on CartPole-v1 with learning rates spread from 1e-6 to 1e-3.

    python -m benchmarks.populations

Runs examples/specs/pbt-cartpole.toml twice: as it is, and with a gap that no member exceeds, so that nobody copies.
Writes benchmarks/results/populations.{json,md}. About ten minutes on two cores.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from offbeat.run_directory.versions import made_with

ROOT = Path(__file__).parents[1]
SPEC = ROOT / "examples/specs/pbt-cartpole.toml"
RESULTS = ROOT / "benchmarks/results"
Rows = list[dict[str, str]]


def run(folder: Path, name: str, **changes: Any) -> Rows:
    """Run the population with changed keys of [population]; return the rows of its table."""
    spec = tomllib.loads(SPEC.read_text())
    spec["population"].update(changes)
    (folder / f"{name}.toml").write_text(tomli_w.dumps(spec))
    code = "from offbeat.cli.entry import main; main()"
    command = [sys.executable, "-P", "-c", code, "run", f"{name}.toml", "--progress", "lines"]
    subprocess.run(command, cwd=folder, check=True)
    with (folder / "experiments" / name / "table.csv").open() as file:
        return list(csv.DictReader(file))


def as_markdown(results: dict[str, Rows]) -> str:
    """Return one row for each member: its first learning rate, and its scores with and without exchange."""
    lines = [
        "# A population on CartPole-v1, with and without exchange",
        "",
        "`python -m benchmarks.populations`. Scores are mean returns over 20 episodes after the last of 8 generations.",
        "The seeds of the episodes are the same for all. The highest possible score is 500.",
        "",
        "| member | first learning rate | without exchange | with exchange | last learning rate | copies |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    together, alone = results["together"], results["alone"]
    for member in sorted(
        {row["member"] for row in together}, key=lambda m: float(_of(together, m)[0]["learning_rate"])
    ):
        own = _of(together, member)
        copies = sum(bool(row["copied_member"]) for row in own)
        scores = [float(rows[-1]["score"]) for rows in (_of(alone, member), own)]
        cells = [member, own[0]["learning_rate"], *(f"{score:.1f}" for score in scores), own[-1]["learning_rate"]]
        lines.append(f"| {' | '.join([*cells, str(copies)])} |")
    return "\n".join(lines) + "\n"


def _of(rows: Rows, member: str) -> Rows:
    return [row for row in rows if row["member"] == member]


def main() -> None:
    """Run both populations and write the results."""
    with tempfile.TemporaryDirectory() as folder:
        results = {
            "together": run(Path(folder), "together"),
            "alone": run(Path(folder), "alone", gap_absolute=1e9),
        }
    raw = {"made_with": made_with(), **results}
    (RESULTS / "populations.json").write_text(json.dumps(raw, indent=1) + "\n")
    (RESULTS / "populations.md").write_text(as_markdown(results))


if __name__ == "__main__":
    main()
