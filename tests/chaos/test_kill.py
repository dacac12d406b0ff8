"""What is killed at any moment leaves nothing half written, and goes on as if nothing had happened."""

from __future__ import annotations

import resource
import signal
import time
from random import Random
from typing import Any

import pytest
from benchmarks.soak.checks import shared_memory
from tests.support.endless_saves import FOR_EVER, numbered
from tests.support.runs import (
    Started,
    actors_of,
    files_up_to,
    has_saved,
    is_alive,
    lines_of,
    offbeat,
    pids_of,
    small_arguments,
    small_run,
    status_of,
    untimed,
    wait_until,
    weights_of,
)
from tests.support.thorough import thorough

from offbeat.run_directory.checkpoint import load
from offbeat.run_directory.store import CheckpointStore

ENVS = ("tests.sample_envs.run_envs",)

# --- runs ---------------------------------------------------------------------------------------------------

LONG: dict[str, Any] = {"max_lag": 1, "checkpoint_every": 500, "eval_every": 1000, "eval_episodes": 2}


@pytest.mark.thorough
@pytest.mark.parametrize("kills", [1, 3])
def test_a_run_killed_at_random_moments_and_resumed_has_the_bits_of_an_uninterrupted_run(tmp_path, kills):
    settings = LONG | {"steps": 1000 + 3000 * kills}
    uninterrupted = small_run(tmp_path / "uninterrupted", **settings).path
    random, path = Random(1), tmp_path / "run"
    arguments = small_arguments(path, **settings)
    for _ in range(kills):
        started = Started(arguments, tmp_path)
        before = len(lines_of(path))
        latest = path / "checkpoints" / "latest"
        wanted = before + random.randint(5, 20)
        started.wait_until(lambda: has_saved(path) and len(lines_of(path)) >= wanted)  # noqa: B023
        assert started.end(signal.SIGKILL).code == -signal.SIGKILL
        load(latest)
        arguments = ["resume", str(path), "--progress", "none"]
    assert status_of(path)["state"] == "running"  # nobody was left to say otherwise
    assert offbeat(*arguments).code == 0

    assert weights_of(path) == weights_of(uninterrupted)
    assert weights_of(path, "best") == weights_of(uninterrupted, "best")
    lines, expected = lines_of(path), lines_of(uninterrupted)
    assert [untimed(line) for line in lines] == [untimed(line) for line in expected]
    assert not list((path / "checkpoints").glob(".writing*"))


def test_a_resume_of_a_run_that_another_process_trains_changes_nothing(tmp_path):
    path = tmp_path / "run"
    started = Started(small_arguments(path, steps=10**8, checkpoint_every=500), tmp_path)
    started.wait_until(lambda: has_saved(path))
    said = offbeat("resume", path)
    assert said.code == 2
    assert "another process is training" in said.err
    assert offbeat("eval", path, "--episodes", 2).code == 0  # reading disturbs nobody
    assert started.end(signal.SIGTERM).code == 130


# --- actor processes ----------------------------------------------------------------------------------------

ORPHANED_S = 5.0
"""Within this time no actor outlives the process that started it."""


@pytest.mark.parametrize("env", ["HangsHoldingTheInterpreter", *thorough("Unhurried", "HangsOnce")])
def test_a_killed_main_process_leaves_no_actor_and_no_shared_memory(tmp_path, monkeypatch, env):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    path, shared = tmp_path / "run", shared_memory()
    settings = {"runtime": "processes", "actors": 2, "max_lag": 1, "steps": 10**8, "checkpoint_every": 256}
    started = Started(small_arguments(path, f"runs/{env}-v0", imports=ENVS, **settings), tmp_path)
    if env == "Unhurried":
        started.wait_until(lambda: has_saved(path))
    else:
        started.wait_until(lambda: (tmp_path / "SLEEPING").exists() and len(pids_of(path, "actor")) == 2)
    actors = actors_of(path)
    assert len(actors) == 2
    assert started.end(signal.SIGKILL).code == -signal.SIGKILL

    wait_until(lambda: not any(map(is_alive, actors)), ORPHANED_S)
    assert not [name for name in temporary.iterdir() if not name.name.startswith("torchinductor")]  # torch's cache
    assert not shared_memory() - shared
    monkeypatch.chdir(tmp_path)
    learned = load(path / "checkpoints" / "latest").policy["env_steps"]
    assert offbeat("resume", path, "--steps", learned + 1000, "--progress", "none", "--trust-code").code == 0


# --- checkpoints --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kills", [3, *thorough(12)])
def test_checkpoints_are_complete_whenever_their_writer_is_killed(tmp_path, kills):
    random, latest, number = Random(0), tmp_path / "checkpoints" / "latest", 0
    for _ in range(kills):
        writer = Started([str(latest.parent), str(number + 1)], tmp_path, code=FOR_EVER)
        writer.wait_until(lambda: latest.resolve().name > f"step-{number + 5:012d}")  # noqa: B023
        time.sleep(random.uniform(0, 0.1))
        writer.end(signal.SIGKILL)
        for name in ("latest", "best"):
            saved = load(latest.parent / name)
            assert saved.state is not None
            numbers = {saved.policy["number"], saved.state["number"], *saved.weights["w"], *saved.state["adam"]}
            assert len(numbers) == 1
        number = load(latest).policy["number"]
    CheckpointStore(latest.parent, max_full=2).save(number + 1, numbered(number + 1), ["latest"])
    assert len(list(latest.parent.iterdir())) <= 2 + 1 + 2  # the newest two, the best, and the two links


def test_on_a_full_disk_a_run_continues_and_reports_what_was_not_saved(tmp_path):
    settings: dict[str, Any] = {"hidden_sizes": (256, 256), "steps": 1500, "checkpoint_every": 200}
    path = small_run(tmp_path / "run", stop_at=500, **settings).path
    weights = weights_of(path)
    with files_up_to(300_000):
        said = offbeat("resume", path, "--progress", "lines")

    assert said.err.count("could not be written") == 1  # a minute
    assert "the end of the run could not be saved" in said.err
    assert "Traceback" not in said.err
    assert said.code == 1
    assert status_of(path)["state"] == "failed"
    assert lines_of(path)[-1]["env_steps"] >= 1500
    assert weights_of(path) == weights
    load(path / "checkpoints" / "latest")
    assert not list((path / "checkpoints").glob(".writing*"))
    assert offbeat("resume", path).code == 0  # with room again
    assert weights_of(path) == weights_of(small_run(tmp_path / "whole", **settings).path)


@pytest.mark.parametrize("runtime", ["processes", *thorough("threads")])
def test_a_run_on_a_full_disk_continues_and_saves_again_once_there_is_room(tmp_path, runtime):
    path, everything = tmp_path / "run", resource.RLIM_INFINITY
    settings: dict[str, Any] = {"hidden_sizes": (128, 128), "steps": 10**5, "checkpoint_every": 500, "runtime": runtime}
    started = Started(small_arguments(path, "runs/Unhurried-v0", imports=ENVS, max_lag=1, **settings), tmp_path)
    latest = path / "checkpoints" / "latest"
    started.wait_until(lambda: has_saved(path))
    resource.prlimit(started.process.pid, resource.RLIMIT_FSIZE, (100_000, everything))
    started.wait_for_text("a checkpoint could not be written")
    saved = load(latest)
    learned = lines_of(path)[-1]["learning_step"]
    started.wait_until(lambda: lines_of(path)[-1]["learning_step"] > learned + 10)
    assert load(latest).policy == saved.policy
    resource.prlimit(started.process.pid, resource.RLIMIT_FSIZE, (everything, everything))
    started.wait_until(lambda: latest.resolve().name > f"step-{saved.policy['env_steps']:012d}")
    said = started.end(signal.SIGTERM)
    assert said.code == 130, said.err
    assert "Traceback" not in said.err
    assert load(latest).policy["env_steps"] == lines_of(path)[-1]["env_steps"]
