"""Workers that die at any moment leave the shared parameters finite, and the run ends whole with all its counts."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self
from unittest.mock import patch

import pytest
from benchmarks.soak.checks import shared_memory
from tests.sample_envs.run_envs import Doors
from tests.support.hogwild_runs import assert_ratio_of_each, assert_whole, pools, workers_of
from tests.support.replay_runs import LINKS, SMALL_SAC, linked_rows, small_sac
from tests.support.runs import (
    HURRIED_GROUP,
    CommandResult,
    Started,
    contents,
    has_saved,
    is_alive,
    lines_of,
    offbeat,
    pids_of,
    record_pids,
    small_arguments,
    small_run,
    status_of,
    wait_until,
)
from tests.support.thorough import thorough

from offbeat.api.resume import resume
from offbeat.api.train import Run
from offbeat.run_directory.checkpoint import load
from offbeat.runtime.hogwild.loop import HogwildLoop
from offbeat.runtime.hogwild.shared_state import SharedStorage
from offbeat.runtime.hogwild.worker_pool import WorkerPool

ENVS = ("tests.sample_envs.run_envs",)
WORKERS: dict[str, Any] = {"runtime": "hogwild", "workers": 2, "imports": ENVS}
ALONE: dict[str, Any] = {"workers": 1}
"""Where what the others do makes no difference: each worker is a process that loads torch."""
IN_TIME_S = 10.0
"""The grace of five seconds, and leaving."""
ORPHANED_S = 5.0
"""Within this time no worker outlives the process that started it."""


pytestmark = pytest.mark.usefixtures("in_temporary_folder")


def log() -> str:
    return Path("run/log.txt").read_text()


# --- kill -9, at any moment ---------------------------------------------------------------------------------


class Killer:
    """Kills workers of a worker pool of this process, each at a moment that its run comes to."""

    def __init__(self, begun: list[WorkerPool], moments: list[Callable[[WorkerPool], bool]], random: Random) -> None:
        self.killed: list[int] = []
        self.seen: set[int] = set()
        self._begun, self._moments, self._random = begun, moments, random
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._kill_all)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()
        self._thread.join()

    def _kill_all(self) -> None:
        for has_come in self._moments:
            while not (self._begun and has_come(self._begun[-1])):
                if self._done.wait(0.001):
                    return
            self._done.wait(self._random.uniform(0, 0.2))  # they act and learn meanwhile, or start
            if not self._kill(self._begun[-1]):
                return

    def _kill(self, pool: WorkerPool) -> bool:
        """Kill a worker that lives; return False if there never is one."""
        while not self._done.is_set():
            pids = [child.process.pid for child in list(pool._supervisor.processes)]
            self.seen |= set(pids)
            living = [pid for pid in pids if pid not in self.killed and is_alive(pid)]
            if living:
                self.killed.append(self._random.choice(living))
                os.kill(self.killed[-1], signal.SIGKILL)
                return True
            time.sleep(0.001)
        return False


def at(env_steps: float) -> Callable[[WorkerPool], bool]:
    return lambda pool: pool._board.env_steps >= env_steps


class Case(NamedTuple):
    train: Callable[..., Run]
    env: str
    steps: int
    settings: dict[str, Any]


KILLS = 10
"""In each case, of those that `make test-all` takes."""
ON_A_REPLAY: dict[str, Any] = {"capacity": 6000, "chunk_length": 4, "warmup": 96, "utd_ratio": "1/2"}
CASES = {
    "a2c-shared": Case(small_run, "CartPole-v1", 60_000, {"algorithm": "a2c", "workers": 3}),
    "a2c-synced": Case(
        small_run,
        "CartPole-v1",
        60_000,
        {"algorithm": "a2c", "workers": 2, "hogwild": "synced", "hogwild_moments": "per_worker"},
    ),
    "sac-shared": Case(
        small_sac,
        "Pendulum-v1",
        3000,
        {**ON_A_REPLAY, "workers": 3, "normalize_observations": True, "prioritized": True},
    ),
    "sac-synced": Case(
        small_sac,
        "Pendulum-v1",
        3000,
        {**ON_A_REPLAY, "workers": 2, "hogwild": "synced", "hogwild_moments": "per_worker"},
    ),
    "sac-links": Case(small_sac, "links/Linked-v0", 2000, {**ON_A_REPLAY, **LINKS, "utd_ratio": "3", "workers": 2}),
}


@pytest.mark.parametrize(("name", "kills"), [("sac-links", 1), *thorough(*((name, KILLS) for name in CASES))])
def test_workers_killed_at_random_moments_are_restarted_and_the_run_ends_complete(tmp_path, name, kills):
    case, random, path, shared = CASES[name], Random(name), tmp_path / "run", shared_memory()
    if kills < KILLS:
        case = case._replace(steps=case.steps // 3)
    moments = [at(random.uniform(0, 0.7) * case.steps) for _ in range(kills)]
    often: dict[str, Any] = {"eval_every": case.steps // 5, "eval_episodes": 2, "checkpoint_every": case.steps // 6}
    settings = {**case.settings, **often, "runtime": "hogwild", "restart_budget": 100, "steps": case.steps}
    keep, workers = record_pids(path, "worker")
    with pools() as begun, Killer(begun, moments, random) as killer:
        run = case.train(path, case.env, **settings, callbacks=[keep])

    assert (run.state, run.exit_code, status_of(path)["state"]) == ("finished", 0, "finished")
    assert len(killer.killed) == kills
    assert run.metrics["actor_restarts"] == kills
    assert log().count("was killed by SIGKILL") == kills
    for pid in killer.killed:
        assert f"worker {_index(pid)} (process {pid}) was killed by SIGKILL" in log()
    workers |= killer.seen
    assert len(workers) == settings["workers"] + kills
    assert not any(map(is_alive, workers))
    assert not shared_memory() - shared

    last = case.steps + settings["workers"] * 64
    assert case.steps <= run.metrics["env_steps"] == load(path / "checkpoints" / "latest").policy["env_steps"] < last
    assert_whole(path)
    for line in lines_of(path):
        assert all(math.isfinite(value) for value in line.values() if value is not None)
    if case.train is small_sac:
        ratio = Fraction(settings["utd_ratio"])
        assert_ratio_of_each(path, ratio, math.ceil(ratio * 4 * SMALL_SAC["envs_per_actor"]))
        assert [worker["done"]["updates_before"] for worker in workers_of(path)] == [0] * settings["workers"]
        assert run.metrics["replay_size"] == run.metrics["env_steps"], "no row was lost"
    if "links" in case.env:
        assert linked_rows(path) == run.metrics["env_steps"], "no transition leads into another episode"
    if kills == KILLS:  # of one kill: test_a_failed_resume_changes_no_checkpoint_and_the_next_one_finishes
        assert resume(path, steps=run.metrics["env_steps"] + 200).state == "finished"


LEARNS: dict[str, tuple[Case, float]] = {
    "dqn": (
        Case(
            small_sac,
            "runs/Doors-v0",
            1500,
            {"algorithm": "dqn", "imports": ENVS, "capacity": 3000, "chunk_length": 4, "batch_size": 64}
            | {"warmup": 200, "learning_rate": 3e-3, "utd_ratio": "1"},
        ),
        Doors.BEST,
    ),
    "a3c-image": (
        Case(
            small_run,
            "offbeat/Pixels-v0",
            6000,
            {"algorithm": "a2c", "envs_per_actor": 8, "unroll_length": 8, "learning_rate": 1e-3, "gamma": 0.5}
            | {"learning_rate_schedule": "constant", "normalize_returns": False},
        ),
        8.0,
    ),
}
"""Runs of two workers, and the best mean return there is; blindly half of it is earned."""


@pytest.mark.parametrize("name", ["dqn", *thorough("a3c-image")])
def test_several_workers_learn_the_optimum_although_one_is_killed(tmp_path, name):
    (case, best), path = LEARNS[name], tmp_path / "run"
    with pools() as begun, Killer(begun, [at(case.steps / 3)], Random(name)) as killer:
        run = case.train(path, case.env, **case.settings, runtime="hogwild", workers=2, steps=case.steps)
    assert (run.state, len(killer.killed), run.metrics["actor_restarts"]) == ("finished", 1, 1)
    assert_whole(path)
    assert {worker["done"]["env_steps"] > 0 for worker in workers_of(path)} == {True}
    if name == "dqn":
        assert_ratio_of_each(path, Fraction(1), 4 * SMALL_SAC["envs_per_actor"])
    scored = json.loads(offbeat("eval", path, "--episodes", 200, "--json").out)
    assert scored["return_mean"] > 0.9 * best


def _index(pid: int) -> str:
    """Return which worker a process was, as the log says."""
    return log().partition(f" (process {pid})")[0].rpartition("worker ")[2]


@pytest.mark.parametrize("prioritized", [True, *thorough(False)])
def test_a_worker_killed_soon_after_a_resume_repeats_no_update(tmp_path, prioritized):
    path = tmp_path / "run"
    settings: dict[str, Any] = {"chunk_length": 60, "capacity": 2000, "prioritized": prioritized, "warmup": 120}
    settings["utd_ratio"] = "1"
    layout: dict[str, Any] = {"runtime": "hogwild", "workers": 1, "steps": 2000}
    stopped = small_sac(path, **settings, **layout, stop_at=240)
    made = stopped.metrics["updates"]
    assert made == stopped.metrics["env_steps"] - 120 > 0
    with pools() as begun, Killer(begun, [lambda pool: pool._board.updates[0, 0] > made + 5], NoDelay()) as killer:
        resumed = resume(path, steps=stopped.metrics["env_steps"] + 240)
    assert len(killer.killed) == resumed.metrics["actor_restarts"] == 1
    (worker,) = workers_of(path)
    assert worker["done"]["updates_before"] == 0, "the ratio is held on all updates"
    assert worker["updates"] == worker["done"]["valid"] - 120 == resumed.metrics["env_steps"] - 120
    assert_whole(path)


class NoDelay(Random):
    """Lets no time pass between a moment and what happens at it."""

    def uniform(self, a: float, b: float) -> float:  # noqa: ARG002
        return 0.0


# --- envs ---------------------------------------------------------------------------------------------------


def train(env: str, **settings: Any) -> CommandResult:
    """Train with `offbeat` in the current folder, in the run directory `run`."""
    return offbeat(*small_arguments(Path("run"), env, **{**WORKERS, "steps": 2048, **settings}))


def test_a_worker_whose_env_raises_is_restarted_within_its_budget_and_then_fails_the_run():
    said = train("runs/RaisesUntilMended-v0", restart_budget=1, checkpoint_every=0, steps=20_000)
    assert said.code == 1, said.err
    assert "started again, at a marked cut; restart 1 of 1" in log()
    assert "ZeroDivisionError: the wave has no length" in said.err
    assert "restart_budget of 1 is used up" in said.err
    assert 'raise ZeroDivisionError("the wave has no length")' in log()  # the line, from the traceback
    assert status_of(Path("run"))["state"] == "failed"
    assert_whole(Path("run"))
    saved = load(Path("run/checkpoints/latest")).policy["env_steps"]
    assert 0 < saved < 20_000
    assert saved == lines_of(Path("run"))[-1]["env_steps"], "what all had learned by then"
    Path("MENDED").touch()
    assert offbeat("resume", "run", "--steps", saved + 500, "--progress", "none").code == 0
    assert_whole(Path("run"))


@pytest.mark.parametrize(
    ("env", "timeout"),
    [("HangsHoldingTheInterpreter", "step_timeout_s"), *thorough(("HangsInFirstReset", "reset_timeout_s"))],
)
def test_a_worker_whose_env_hangs_is_reported_killed_and_restarted(env, timeout):
    said = train(f"runs/{env}-v0", **{timeout: 3}, **ALONE)
    assert said.code == 0, said.err
    assert "did not return in time" in said.err
    last = lines_of(Path("run"))[-1]
    assert last["actor_restarts"] == 1
    assert last["env_steps"] >= 2048
    assert last["wall_time_s"] < 300  # the env hangs for ten minutes
    assert_whole(Path("run"))


@pytest.mark.thorough  # that of an actor: test_actors.py
def test_a_worker_whose_process_exits_is_restarted():
    said = train("runs/ExitsAtOnce-v0", steps=4096)
    assert said.code == 0, said.err
    assert lines_of(Path("run"))[-1]["actor_restarts"] == 1
    assert "ended with exit code 0" in said.err
    assert_whole(Path("run"))


def test_a_worker_that_cannot_start_fails_the_run_and_leaves_its_first_checkpoint():
    said = train("runs/CannotBeMadeInChildren-v0", **ALONE, restart_budget=0)
    assert said.code == 1
    assert "the wave tank is in use" in said.err
    assert "worker" in said.err
    assert "the wave tank is in use" in log()
    assert load(Path("run/checkpoints/latest")).policy["env_steps"] == 0


# --- the main process and signals ---------------------------------------------------------------------------


def start(path: Path, env: str, **settings: Any) -> tuple[Started, list[int]]:
    """Start a long run in a process group of its own; return it and its workers once it has saved a checkpoint."""
    long = {**WORKERS, "steps": 10**8, "checkpoint_every": 256, **settings}
    run = Started(small_arguments(path, env, **long), path.parent, HURRIED_GROUP)
    run.wait_until(lambda: has_saved(path))
    if "Hangs" in env:
        run.wait_until((path.parent / "SLEEPING").exists)
    return run, pids_of(path, "worker")


@pytest.mark.parametrize("env", ["HangsHoldingTheInterpreter", *thorough("Unhurried")])
def test_a_killed_main_process_leaves_no_worker_and_its_run_can_be_resumed(tmp_path, env):
    path, shared = tmp_path / "run", shared_memory()
    run, workers = start(path, f"runs/{env}-v0", **ALONE, eval_every=0)
    assert len(workers) == 1
    assert all(map(is_alive, workers))
    assert run.end(signal.SIGKILL).code == -signal.SIGKILL
    wait_until(lambda: not any(map(is_alive, workers)), ORPHANED_S)
    assert not shared_memory() - shared
    assert_whole(path)
    learned = load(path / "checkpoints" / "latest").policy["env_steps"]
    assert offbeat("resume", path, "--steps", learned + 500, "--progress", "none", "--trust-code").code == 0
    lines = [line["env_steps"] for line in lines_of(path)]
    assert lines == sorted(lines)
    assert lines[-1] >= learned + 500
    assert_whole(path)


@pytest.mark.parametrize("number", [signal.SIGINT, *thorough(signal.SIGTERM)], ids=lambda number: number.name)
def test_a_signal_to_the_process_group_stops_the_workers_with_a_checkpoint(tmp_path, number):
    path = tmp_path / "run"
    run, workers = start(path, "runs/Wave-v0")
    os.killpg(run.process.pid, number)
    said = run.end(seconds=IN_TIME_S)
    assert said.code == 130, said.err
    assert "Traceback" not in said.err
    assert not any(map(is_alive, workers))
    last = lines_of(path)[-1]
    assert last["actor_restarts"] == 0  # it was not for them
    assert (status_of(path)["state"], status_of(path)["reason"]) == ("interrupted", f"stopped by {number.name}")
    assert load(path / "checkpoints" / "latest").policy["env_steps"] == last["env_steps"]
    assert_whole(path)


@pytest.mark.parametrize("signals", [[signal.SIGINT], *thorough([signal.SIGINT, signal.SIGINT])], ids=len)
def test_an_interrupted_run_with_a_hanging_worker_ends_in_time_and_reports_what_is_lost(tmp_path, signals):
    path = tmp_path / "run"
    run, workers = start(path, "runs/HangsOnce-v0", **ALONE)
    said = run.end(*signals, seconds=IN_TIME_S)
    assert said.code == 130, said.err
    assert "Traceback" not in said.err
    assert not any(map(is_alive, workers))
    assert "last checkpoint" in status_of(path)["reason"]
    assert_whole(path)


# --- what is saved when something fails ---------------------------------------------------------------------


@pytest.fixture(scope="module", params=["on the way", *thorough("at the end")])
def killed_while_paused(request, tmp_path_factory) -> Run:
    """Return a run, one of whose two workers was killed while it was paused."""
    moment = request.param
    killed: list[int] = []
    evaluated: set[bool] = set()

    def kill_one(self: HogwildLoop) -> None:
        if (self.counters.env_steps >= 600) == (moment == "at the end") and not killed:
            killed.append(self._pool._supervisor.processes[0].process.pid)
            os.kill(killed[0], signal.SIGKILL)
            while not self._pool.restarts:
                self._pool.wait()
        during(self)

    def due_while_paused(self: HogwildLoop, _before: Any, *, finished: bool) -> bool:
        """Once on the way, and once at the end."""
        due = self._pool.paused and finished not in evaluated
        evaluated.update({finished} if due else ())
        return due

    during = HogwildLoop._during_evaluation
    often: dict[str, Any] = {
        "eval_every": 300, "checkpoint_every": 300, "eval_episodes": 2, "steps": 600, "evaluator": "inline",
        "eval_time_share": 1,
    }  # fmt: skip
    patches: dict[str, Any] = {"_during_evaluation": kill_one, "_evaluation_due": due_while_paused}
    with patch.multiple(HogwildLoop, **patches):
        path = tmp_path_factory.mktemp("paused") / "run"
        run = small_sac(path, **often, runtime="hogwild", workers=2, capacity=3000)
    assert killed
    return run


def test_a_worker_killed_while_paused_is_complete_in_the_checkpoint(killed_while_paused):
    run = killed_while_paused
    assert run.metrics["actor_restarts"] == 1
    assert_whole(run.path)
    assert all(worker["learner"] is not None for worker in workers_of(run.path))
    replay = load(run.path / "checkpoints" / "latest", with_replay=True).replay
    assert replay is not None
    assert {name.partition("/")[0] for name in replay} == {"0", "1"}
    assert run.metrics["evaluations"] == 2


def test_a_failed_resume_changes_no_checkpoint_and_the_next_one_finishes(tmp_path, killed_while_paused):
    path = Path(shutil.copytree(killed_while_paused.path, tmp_path / "run", symlinks=True))
    before = contents(path / "checkpoints")
    with patch.object(SharedStorage, "load_records", side_effect=MemoryError), pytest.raises(MemoryError):
        resume(path, steps=800)  # before its workers start
    assert contents(path / "checkpoints") == before
    assert resume(path, steps=800).state == "finished"


def test_repeatedly_refused_updates_end_the_run_with_the_reason():
    said = train("runs/Overflowing-v0", **ALONE, steps=100_000, normalize_returns=False)
    assert said.code == 1, said.err
    assert "updates of the policy were refused, because its loss or a gradient was NaN or infinity" in said.err
    assert "started again" not in log()
