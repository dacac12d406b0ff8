"""What exchange does in a population: the best of four members, with exchange and without it, at equal env steps.

    python -m benchmarks.populations                          # all works and seeds
    python -m benchmarks.populations halfcheetah --seeds 1 2  # some of them

Each seed of a work runs its spec twice: as it is, and with a gap that no member exceeds, so that nobody copies. In the
first generation both are the same bit for bit. The members of a population take turns in one process: no time goes into
starting processes, and the tables are those of `offbeat run`, which do not depend on timing. A stopped benchmark
continues: results that are there are kept, and populations continue from their directories under runs/populations.
Writes benchmarks/results/populations.{json,md}.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w
from tests.support.populations import run_here
from tests.support.runs import offbeat

from benchmarks.common import RESULTS, markdown_table, write_json
from benchmarks.options import new_parser
from offbeat.population.members import member_name
from offbeat.population.population import Population
from offbeat.population.report import rows_of
from offbeat.run_directory.versions import current_versions

ROOT = Path(__file__).parents[1]
FOLDER = Path("runs/populations")
ARMS = ("alone", "together")
LABELS = ("without exchange", "with exchange")
Rows = list[dict[str, str]]
"""The rows of a population's table."""
Seeds = dict[str, dict[str, Any]]
"""Seed -> the rows of each arm, the scores of their winners on new episodes, and what they were made with."""


class Work(NamedTuple):
    """A population that is run with and without exchange."""

    spec: Path
    seeds: tuple[int, ...]

    def tables(self) -> dict[str, Any]:
        """Return the tables of the spec."""
        return tomllib.loads(self.spec.read_text())


WORKS = {
    "cartpole": Work(ROOT / "examples/specs/pbt-cartpole.toml", (1,)),
    "halfcheetah": Work(ROOT / "benchmarks/specs/pbt-halfcheetah.toml", (1, 2, 3)),
}


# --- runs ---------------------------------------------------------------------------------------------------


def run(name: str, seed: int, arm: str) -> tuple[Rows, float]:
    """Run a population, or continue it; return the rows of its table, and the winner's score on new episodes.

    Without exchange there are two generations: more would only stop and resume the members more often, which changes
    nothing in the serial runtime.
    """
    tables = WORKS[name].tables()
    tables["seeds"] = [seed]
    if arm == "alone":
        tables["population"].update(gap_absolute=1e9, generation=tables["settings"]["steps"] // 2)
    FOLDER.mkdir(parents=True, exist_ok=True)
    spec = FOLDER / f"{name}-{seed}-{arm}.toml"
    spec.write_text(tomli_w.dumps(tables))
    population = Population(spec, spec.with_suffix(""))
    if failed := run_here(population).failed:
        raise SystemExit(f"{spec}: {next(iter(failed.values())).reason}")
    rows = rows_of(population.family())
    texts = [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]
    return texts, retested(population, 1_000 + seed)


def retested(population: Population, seed: int) -> float:
    """Return the mean return of the winner on 100 episodes that have decided nothing."""
    winner = population.family().winner(population.plan.generations - 1)
    assert winner is not None
    said = offbeat("eval", population.path / member_name(winner), "--episodes", 100, "--seed", seed, "--json")
    return float(json.loads(said.out)["return_mean"])


# --- results ------------------------------------------------------------------------------------------------


def as_markdown(results: Mapping[str, Seeds]) -> str:
    """Return a section for each work, with the seeds of which both arms are there."""
    lines = [
        "# Populations, with and without exchange",
        "",
        "`python -m benchmarks.populations`. Scores are mean returns after the last generation, on the same episodes",
        "for all members of a seed. Both populations of a seed start with the same members. The best of several scores",
        "is a little too high by chance, so the best members have also played 100 other episodes.",
        "",
    ]
    for name, seeds in results.items():
        whole = {seed: each for seed, each in sorted(seeds.items()) if set(ARMS) <= each.get("retested", {}).keys()}
        lines += [f"## {name}", "", *_about(WORKS[name]), "", _by_seed(whole), _by_member(whole)]
    return "\n".join(lines).rstrip() + "\n"


def _about(work: Work) -> list[str]:
    tables = work.tables()
    population, steps = tables["population"], tables["settings"]["steps"]
    members, generation, episodes = population["members"], population["generation"], population.get("episodes", 20)
    return [
        f"`{work.spec.relative_to(ROOT)}`: {members} members of {steps:,} env steps each on {tables['env']}.",
        f"A generation has {generation:,} env steps, and a score is the mean of {episodes} episodes.",
    ]


def _by_seed(seeds: Seeds) -> str:
    """Return the best members of each seed, and how often the one with exchange is better."""
    rows, better = [], 0
    for seed, result in seeds.items():
        best = [max(_scores(result[arm]).values()) for arm in ARMS]
        again = [result["retested"][arm] for arm in ARMS]
        better += again[1] > again[0]
        rows.append([seed, *(f"{score:.1f}" for score in (*best, *again)), f"{again[1] - again[0]:+.1f}"])
    header = ["seed", *(f"best {arm}{where}" for where in ("", ", new episodes") for arm in LABELS), "difference"]
    return (
        f"{markdown_table(header, rows)}\nOn new episodes the best member with exchange is better in {better} of "
        f"{len(seeds)} seeds.\n"
    )


def _by_member(seeds: Seeds) -> str:
    """Return the first and last values of each member, and its scores."""
    header = ["first values", "seed", "member", *LABELS, "copies", "last values"]
    rows = []
    for seed, result in seeds.items():
        alone, together = _scores(result["alone"]), _scores(result["together"])
        for member in sorted(together):
            own = _of(result["together"], member)
            copies = sum(bool(row["copied_member"]) for row in own)
            scores = [f"{each[member]:.1f}" for each in (alone, together)]
            rows.append([_values(own[0]), seed, member, *scores, str(copies), _values(own[-1])])
    return markdown_table(header, rows)


def _of(rows: Rows, member: str) -> Rows:
    return [row for row in rows if row["member"] == member]


def _scores(rows: Rows) -> dict[str, float]:
    """Return the last score of each member; a generation in which it has failed has none."""
    return {row["member"]: float(row["score"]) for row in rows if row["score"]}


def _values(row: Mapping[str, str]) -> str:
    about = ("generation", "member", "env_steps", "score", "failed", "copied_member", "copied_generation")
    return ", ".join(f"{key} {value}" for key, value in row.items() if key not in about)


def main() -> None:
    """Run the populations whose results are missing, and write the results after each."""
    parser = new_parser(__doc__)
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"of {', '.join(WORKS)}; without any: all")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: those of the work")
    parser.add_argument("--jobs", type=int, default=2, help="populations that run at the same time; default: 2")
    given = parser.parse_args()
    if unknown := set(given.works) - set(WORKS):
        parser.error(f"unknown work {', '.join(unknown)}: pass some of {', '.join(WORKS)}")
    path = RESULTS / "populations.json"
    results: dict[str, Seeds] = json.loads(path.read_text()) if path.exists() else {}
    missing = [
        (name, seed, arm)
        for name in given.works or WORKS
        for seed in given.seeds or WORKS[name].seeds
        for arm in ARMS
        if arm not in results.get(name, {}).get(str(seed), {}).get("retested", {})
    ]
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        started = {pool.submit(run, *each): each for each in missing}
        for future in as_completed(started):
            name, seed, arm = started[future]
            result = results.setdefault(name, {}).setdefault(str(seed), {})
            rows, score = future.result()
            result.update({"made_with": current_versions(), arm: rows})
            result.setdefault("retested", {})[arm] = score
            write_json(path, results)
            (RESULTS / "populations.md").write_text(as_markdown(results))
            print(f"{name}, seed {seed}, {arm}: {max(_scores(result[arm]).values()):.1f}", flush=True)


if __name__ == "__main__":
    main()
