"""The report of a population: a table of all generations, a link to the winner, and pictures."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import count
from pathlib import Path
from typing import Any

from offbeat.experiments.directory import ExperimentDirectory
from offbeat.experiments.report import write_table
from offbeat.population.members import member_name
from offbeat.population.pictures import draw_all
from offbeat.population.plan import PopulationPlan
from offbeat.population.tree import Family

WINNER = "winner"
"""Name of the link to the run directory of the winner."""


def write_report(
    plan: PopulationPlan,
    directory: ExperimentDirectory,
    family: Family,
    notify: Callable[[str], None],
    failed: Collection[int] = (),
) -> int | None:
    """Write the table and the pictures, and return the winner; if there is one, also write the link to it.

    The winner has the best score of the last generation. There is none while another member may still get a score.

    Args:
        plan: the plan of the population.
        directory: its directory.
        family: its members, with all that is in the ledger.
        notify: called with messages: the characters that the font of the pictures lacks, and what was renamed.
        failed: members that have failed and have not finished, which are not waited for.
    """
    if rows := rows_of(family):
        write_table(rows, directory.csv, directory.markdown)
    if family.ledger.scores:
        draw_all(family, directory.path, notify, failed)
    winner = family.winner(plan.generations - 1, failed)
    if winner is not None:
        link_winner(directory.path, winner, notify)
    return winner


def link_winner(path: Path, winner: int, notify: Callable[[str], None]) -> None:
    """Write the link to the winner. A directory in its place is renamed.

    Args:
        path: the directory of the population.
        winner: the member.
        notify: called with a message about the renamed directory.
    """
    link, temporary = path / WINNER, path / f".{WINNER}.new"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(member_name(winner))
    if link.is_dir() and not link.is_symlink():  # a program has copied the population with what its link points to
        renamed = next(free for n in count(1) if not (free := path / f"{WINNER}.copy-{n}").exists())
        link.rename(renamed)
        notify(f"{link} was a copy of a run in place of a link: it was renamed to {renamed}")
    temporary.replace(link)


def rows_of(family: Family) -> list[dict[str, Any]]:
    """Return the rows of the table: one for each generation of a member that has ended, in the order of generations.

    They have reasons of failures only if there are any.
    """
    ended = (*family.ledger.scores, *family.ledger.failures)
    nodes = sorted((generation, member) for member, generation in ended)
    return [_row(family, member, generation) for generation, member in nodes]


def _row(family: Family, member: int, generation: int) -> dict[str, Any]:
    node = member, generation
    score, failure, parent = family.ledger.scores.get(node), family.ledger.failures.get(node), family.parent(node)
    return {
        "generation": generation,
        "member": member,
        "env_steps": family.ledger.env_steps(node),
        "score": None if score is None else score.score,
        **({"failed": None if failure is None else failure.reason} if family.ledger.failures else {}),
        "copied_member": None if parent is None or parent[0] == member else parent[0],
        "copied_generation": None if parent is None or parent[0] == member else parent[1],
        **{key: f"{value:g}" for key, value in family.values(member, generation).items()},
    }
