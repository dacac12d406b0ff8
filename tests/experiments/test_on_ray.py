"""Experiments and populations on the nodes of a Ray cluster: stopped, killed, with nodes that are lost and join."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.support.populations import run_here, small_population, tree_of, weights
from tests.support.runs import (
    CommandResult,
    Started,
    contents,
    has_saved,
    is_alive,
    offbeat,
    process_of,
    small_run,
    wait_until,
    weights_of,
)
from tests.support.specs import TINY, write_spec
from tests.support.thorough import thorough
from tests.support.warm import REPOSITORY

from offbeat.experiments import ray_nodes

LONG: dict[str, Any] = {**TINY, "steps": 2000, "checkpoint_every": 250}
OWN = "tests.sample_envs.run_envs"
HELD: dict[str, Any] = {"env": "runs/Held-v0", "imports": [OWN]}
"""Keys of a spec whose sessions go slowly until they are told to `go_on`."""
HERE = ["run", "spec.toml", "--import", OWN]
"""Arguments of a command on this machine."""
SESSIONS = [Path(f"experiments/spec/trial-000/seed-{seed}") for seed in (1, 2)]

pytestmark = pytest.mark.usefixtures("connected")


@pytest.fixture(autouse=True)
def tests_are_importable(monkeypatch) -> None:
    """Sessions import the modules of their spec."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY), prepend=os.pathsep)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> list[bytes]:
    """The weights of both sessions, trained on one machine, from start to end."""
    folder = tmp_path_factory.mktemp("undisturbed")
    settings = {**LONG, **HELD, "hidden_sizes": (16,)}
    go_on(folder)
    with chdir(folder):
        return [weights_of(small_run(folder / f"{seed}", **{**settings, "seed": seed}).path) for seed in (1, 2)]


@pytest.fixture
def folder(tmp_path) -> Path:
    write_spec(tmp_path / "spec.toml", seeds=[1, 2], settings=LONG, **HELD)
    return tmp_path


@pytest.fixture
def one_session(tmp_path) -> Path:
    """The folder of an experiment with the first of the sessions alone."""
    write_spec(tmp_path / "spec.toml", seeds=[1], settings=LONG, **HELD)
    return tmp_path


def on_ray(nodes: Any, *arguments: str) -> list[str]:
    """Return the arguments of a command on the nodes."""
    return [*HERE, "--on", "ray", "--ray-address", nodes.address, *arguments]


def go_on(folder: Path) -> None:
    """Let the sessions of an experiment in a folder go on at full speed."""
    (folder / "GO").touch()


def run_in(folder: Path, arguments: list[str]) -> CommandResult:
    with chdir(folder):
        return offbeat(*arguments)


def run_to_end(folder: Path, arguments: list[str]) -> CommandResult:
    go_on(folder)
    return run_in(folder, arguments)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def worker_of(session: int) -> int:
    """Return the worker of Ray that has started a session: the parent of the session's keeper."""
    return parent_of(parent_of(session))


def is_under_way(run: Path) -> bool:
    return has_saved(run) and is_alive(process_of(run))


def continued(pid: int) -> None:
    with suppress(ProcessLookupError):  # its keeper kills a session that does not save in time
        os.kill(pid, signal.SIGCONT)


@contextmanager
def third_node(nodes: Any, **resources: float) -> Iterator[Any]:
    """A node that joins, and that is lost at the end."""
    node = nodes.add_node(resources=resources)
    try:
        yield node
    finally:
        nodes.remove_node(node, allow_graceful=False)


# --- bits ---------------------------------------------------------------------------------------------------


def test_a_population_on_two_nodes_has_the_tree_and_the_bits_of_one_machine(nodes, tmp_path):
    here = small_population(tmp_path / "here")
    run_here(here)
    assert any(decision.donor is not None for decision in here.family().ledger.decisions.values())
    there = small_population(tmp_path / "there")
    said = run_to_end(tmp_path / "there", on_ray(nodes, "--dir", "population"))
    assert said.code == 0, said
    assert tree_of(there) == tree_of(here)
    assert weights(there) == weights(here)


# --- stopping and losses ------------------------------------------------------------------------------------


def test_a_stop_saves_running_sessions_and_the_experiment_continues_without_ray(nodes, folder, undisturbed):
    started = Started(on_ray(nodes, "--resources", "other=1"), folder)  # only one node has it
    started.wait_until(lambda: is_under_way(folder / SESSIONS[0]))
    pid = process_of(folder / SESSIONS[0])
    stopped = started.end(signal.SIGINT)
    assert stopped.code == 130
    assert "trial-000/seed-1 interrupted: " in stopped.err
    assert "trial-000/seed-2 starts" not in stopped.err
    assert f"--on ray --ray-address {nodes.address} --resources other=1" in stopped.out
    assert not is_alive(pid)
    said = run_to_end(folder, HERE)
    assert said.code == 0, said
    assert "trial-000/seed-1 resumes from its checkpoint" in said.err
    assert [weights_of(folder / run) for run in SESSIONS] == undisturbed


@pytest.mark.thorough  # on one machine: test_experiment.py
def test_a_second_signal_kills_the_sessions(nodes, folder):
    write_spec(folder / "spec.toml", seeds=[1, 2], settings={**LONG, "steps": 10**8}, **HELD)
    started = Started(on_ray(nodes), folder)
    started.wait_until(lambda: all(is_under_way(folder / run) for run in SESSIONS))
    pids = [process_of(folder / run) for run in SESSIONS]
    said = started.end(signal.SIGTERM, signal.SIGTERM)
    assert said.code == 130
    assert not any(is_alive(pid) for pid in pids)


def test_a_session_saves_and_ends_if_the_experiment_is_killed(nodes, one_session, undisturbed):
    started, session = Started(on_ray(nodes), one_session), one_session / SESSIONS[0]
    started.wait_until(lambda: is_under_way(session))
    pid = process_of(session)
    started.end(signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    said = run_to_end(one_session, on_ray(nodes))
    assert said.code == 0, said
    assert weights_of(session) == undisturbed[0]
    assert "interrupted" in Path(f"{session}.log").read_text()


@pytest.mark.parametrize("killed", [worker_of, *thorough(parent_of)])
def test_a_session_that_is_killed_fails_and_one_whose_worker_of_ray_or_keeper_is_killed_saves_and_starts_again(
    nodes, folder, undisturbed, killed
):
    started = Started(on_ray(nodes), folder)
    started.wait_until(lambda: all(is_under_way(folder / run) for run in SESSIONS))
    os.kill(process_of(folder / SESSIONS[0]), signal.SIGKILL)
    os.kill(killed(process_of(folder / SESSIONS[1])), signal.SIGKILL)
    go_on(folder)
    said = started.end()
    assert said.code == 1
    assert "failed: trial-000/seed-1: its process was killed by SIGKILL" in said.out
    assert "1 of 2 sessions finished, 1 failed" in said.out
    assert re.search(r"trial-000/seed-2: the node \S+, or Ray's worker there, was lost .*; it starts again", said.err)
    assert "trial-000/seed-2 resumes from its checkpoint" in said.err
    assert weights_of(folder / SESSIONS[1]) == undisturbed[1]
    for run in SESSIONS:
        assert re.search(r"^\$ offbeat train .*  # on \S+$", (folder / f"{run}.log").read_text(), re.MULTILINE)


# --- what is refused ----------------------------------------------------------------------------------------


@contextmanager
def another_disk(folder: Path) -> Iterator[tuple[Path, str]]:
    yield folder / "missing/token", ""


@contextmanager
def disk_without_locks(folder: Path) -> Iterator[tuple[Path, str]]:
    token = folder.parent / "token"
    token.write_text("")
    yield token, ""


@pytest.mark.parametrize(
    ("disk", "says"),
    [
        (another_disk, "cannot use the folder"),
        *thorough((disk_without_locks, "does not see the locks of other machines")),
    ],
)
def test_nodes_without_the_disk_of_the_experiment_are_refused(nodes, folder, disk, says):
    before = contents(folder)
    with patch.object(ray_nodes, "_token_in", disk):
        said = run_in(folder, on_ray(nodes))
    assert said.code == 2
    assert "2 of 2 nodes with 1 CPU cannot run sessions in" in said.err
    assert says in said.err
    assert "--dir" in said.err
    assert contents(folder) == before


def test_resources_that_no_node_has_are_refused_and_a_dry_run_counts_those_that_fit(nodes, folder):
    before = contents(folder)
    said = run_in(folder, on_ray(nodes, "--cpus", "2"))
    assert said.code == 2
    assert "a session needs 2 CPU, but no node has that" in said.err
    write_spec(folder / "gpu.toml", settings={**LONG, "device": "cuda"})
    assert "a session needs 1 CPU, 1 GPU, but" in run_in(folder, ["run", "gpu.toml", *on_ray(nodes)[2:]]).err
    (folder / "gpu.toml").unlink()
    said = run_in(folder, on_ray(nodes, "--cpus", "0.5", "--dry-run"))
    assert "2 sessions, 4 at a time" in said.out
    assert contents(folder) == before


# --- nodes that come and go: last, because Ray lists a lost node for some seconds -----------------------------


def test_a_session_of_a_lost_node_continues_on_a_node_that_joins_later(nodes, one_session, undisturbed):
    session = one_session / SESSIONS[0]
    with third_node(nodes, special=1):
        started = Started(on_ray(nodes, "--resources", "special=1"), one_session)
        started.wait_until(lambda: is_under_way(session))
        pid = process_of(session)
        os.kill(pid, signal.SIGSTOP)  # so that it cannot finish before its node is lost
    started.wait_for_text("no node is left: the sessions wait until a node with 1 CPU, 1 special joins")
    continued(pid)
    go_on(one_session)
    with third_node(nodes, special=1):
        said = started.end()
    assert said.code == 0, said
    assert "with 1 CPU, 1 special joined" in said.err
    assert re.search(r"trial-000/seed-1 (has crashed and )?resumes from its checkpoint", said.err)
    assert weights_of(session) == undisturbed[0]
