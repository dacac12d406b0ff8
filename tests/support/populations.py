"""Small populations: their specs, and a pool that runs their jobs one after the other in this process."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w
from tests.support.runs import SMALL, offbeat, weights_of

from offbeat.experiments.jobs import Job
from offbeat.experiments.progress import JobsView
from offbeat.experiments.running import JobOutcome
from offbeat.population.members import member_name
from offbeat.population.population import Population, Schedule
from offbeat.run_directory.names import LEDGER

TABLE: dict[str, Any] = {
    "members": 3, "generation": 256, "episodes": 2, "gap_std": 0.0, "gap_relative": 0.0, "mutation_rate": 1.0,
    "mutate": {"learning_rate": {"low": 1e-5, "high": 1e-1}, "gamma": {"low": 0.9, "high": 0.999}},
}  # fmt: skip
"""Copies happen as soon as scores differ."""
CARTS = "offbeat.envs.testing.worlds:CartPoles"
CARTS_POLICIES: dict[str, Any] = {
    "cat": {"agents": "cart_1"},
    "dog": {"agents": "*", "settings": {"learning_rate": 1e-4}},
}
"""Policies of a world with three carts."""
SETTINGS: dict[str, Any] = {
    **{key: value for key, value in SMALL.items() if key not in ("learning_rate_schedule", "hidden_sizes")},
    "steps": 768, "hidden_sizes": [8], "evaluator": "inline", "checkpoint_every": 100,
}  # fmt: skip


def population_text(table: dict[str, Any] | None = None, **changes: Any) -> str:
    """Return a spec of a population; `table` and `changes` replace keys, None takes one away."""
    merged = {**TABLE, **(table or {})}
    merged = {key: value for key, value in merged.items() if value is not None}
    tables = {"algorithm": "ppo", "env": "CartPole-v1", "seeds": [1], "settings": SETTINGS, "population": merged}
    return tomli_w.dumps({key: value for key, value in {**tables, **changes}.items() if value is not None})


def population(folder: Path, table: dict[str, Any] | None = None, **changes: Any) -> Population:
    """Return a population in a folder, which is created."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.toml").write_text(population_text(table, **changes))
    return Population(folder / "spec.toml", folder / "population")


def small_population(
    folder: Path, table: dict[str, Any] | None = None, settings: dict[str, Any] | None = None, **changes: Any
) -> Population:
    """Return a population of two members and two generations in a folder; it has a copy as soon as scores differ."""
    settings = {**SETTINGS, "steps": 512, **(settings or {})}
    return population(folder, {"members": 2, **(table or {})}, settings=settings, **changes)


def begun(population: Population) -> Schedule:
    """Write the files of a population and return the schedule of its jobs."""
    with population.directory.locked():
        population.write_files()
    return Schedule(population.plan, population.path, population.family(), JobsView())


def finish(schedule: Schedule, fails: Callable[[Job], bool] = lambda _: False) -> list[str]:
    """Run the jobs of a schedule, each as soon as it can start, without those that fail; return all their names."""
    names: list[str] = []
    while (job := schedule.prepare_next()) is not None:
        names.append(job.name)
        schedule.ended(JobOutcome(job, "failed", "broken") if fails(job) else run_job(job))
    return names


def run_here(population: Population, seed: int = 0, stop: Callable[[Job], bool] = lambda _: False) -> Schedule:
    """Run a population without processes; which of the jobs that can start is next depends on the seed.

    Args:
        population: the population.
        seed: of the order, which stands for the timing of jobs in parallel.
        stop: is called before each job; if it returns True, nothing more is done, as after a kill.
    """
    schedule = begun(population)
    waiting: list[Job] = []
    order = random.Random(seed)
    while True:
        while (job := schedule.prepare_next()) is not None:
            waiting.append(job)
        if not waiting:
            return schedule
        job = waiting.pop(order.randrange(len(waiting)))
        if stop(job):
            return schedule
        schedule.ended(run_job(job))


def run_job(job: Job) -> JobOutcome:
    """Run the command of a job in this process."""
    said = offbeat(*job.arguments())
    if job.output is not None:
        job.output.write_text(said.out)
    finished = said.code == 0 and job.status() == "finished"
    return JobOutcome(job, "finished" if finished else "failed", said.err)


def tree_of(population: Population) -> list[str]:
    """Return the lines of the ledger, without the order in which they were written."""
    return sorted((population.path / LEDGER).read_text().splitlines())


def weights(population: Population) -> list[bytes]:
    """Return the weights of each member."""
    return [weights_of(population.path / member_name(member)) for member in range(population.plan.members)]
