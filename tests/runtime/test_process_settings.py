"""Settings about cores, niceness, threads, start-up and time do what they say, seen from inside envs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sample_envs.reporting_envs import EnvReport, env_reports
from tests.support.runs import lines_of, small_run, status_of, weights_of

from offbeat.api.resume import resume

ENVS = ("tests.sample_envs.reporting_envs",)
CORES = sorted(os.sched_getaffinity(0))
SETTINGS: dict[str, Any] = {"imports": ENVS, "steps": 64, "envs_per_actor": 1, "minibatch_size": 16, "max_lag": 1}
BOTH = ("threads", "processes")

pytestmark = [
    pytest.mark.skipif(len(CORES) < 2, reason="needs two cores to tell one from the other"),
    pytest.mark.usefixtures("in_temporary_folder"),
]


def actors_of(env: str = "reporting/Reporting-v0", **settings: Any) -> list[EnvReport]:
    """Train, and return what the actors' envs have told, one for each actor."""
    small_run(Path("run"), env, **{**SETTINGS, **settings})
    return [one for one in env_reports() if one.pid != os.getpid() or one.thread.startswith("offbeat actor")]


def in_its_own_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a thread whose niceness, if it changes, goes with it."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(function).result()


@pytest.mark.parametrize("runtime", BOTH)
def test_actors_have_their_niceness_and_their_cores_in_turn_but_the_caller_has_not(runtime):
    before = os.getpriority(os.PRIO_PROCESS, 0)
    nice = min(19, before + 3)
    seen = actors_of(runtime=runtime, actors=3, actor_cores=(CORES[1], CORES[0]), actor_nice=nice)
    assert sorted(one.cores for one in seen) == [[CORES[0]], [CORES[1]], [CORES[1]]]
    assert [one.nice for one in seen] == [nice] * 3
    assert (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)) == (before, set(CORES))


@pytest.mark.parametrize("runtime", BOTH)
def test_pinning_the_learner_does_not_pin_actors_the_evaluator_or_the_caller(runtime):
    within: list[set[int]] = []
    small_run(
        Path("run"),
        "reporting/Reporting-v0",
        **{**SETTINGS, "runtime": runtime, "actors": 2, "learner_cores": (CORES[1],)},
        eval_every=64,
        eval_episodes=1,
        callbacks=[lambda _line: within.append(os.sched_getaffinity(0))],
    )
    assert within
    assert all(cores == {CORES[1]} for cores in within)
    others = [one for one in env_reports() if one.pid != os.getpid() or one.thread.startswith("offbeat actor")]
    assert [one.cores for one in others] == [CORES, CORES, CORES]
    assert os.sched_getaffinity(0) == set(CORES)


def test_the_threads_of_several_learners_have_the_cores_and_niceness_of_the_learner():
    seen: list[tuple[set[int], int]] = []
    nice = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3)

    def look(_line: dict[str, Any]) -> None:
        ids = [each.native_id for each in threading.enumerate() if each.name.startswith("offbeat learner")]
        tasks = [task for task in ids if task is not None]
        seen.extend((os.sched_getaffinity(task), os.getpriority(os.PRIO_PROCESS, task)) for task in tasks)

    settings: dict[str, Any] = {"actors": 1, "policies": "separate", "learner_workers": 2}
    settings |= {"learner_cores": (CORES[1],), "learner_nice": nice}
    env = "offbeat.envs.testing.worlds:CartPoles"
    small_run(Path("run"), env, runtime="processes", steps=128, **settings, callbacks=[look])
    assert seen
    assert all(each == ({CORES[1]}, nice) for each in seen)


def test_a_failed_run_restores_the_cpu_affinity_of_the_caller():
    def fails(_line: dict[str, Any]) -> None:
        raise LookupError("no such table")

    with pytest.raises(LookupError):
        small_run(Path("run"), runtime="threads", actors=1, learner_cores=(CORES[0],), callbacks=[fails])
    assert os.sched_getaffinity(0) == set(CORES)


@pytest.mark.parametrize(
    ("settings", "nicer"),
    [
        ({"actors": len(CORES)}, 10),
        ({"actors": 1, "actor_threads": len(CORES)}, 10),
        ({"actors": len(CORES) - 1}, 0),
        ({"actors": len(CORES), "learner_nice": 19}, 19),
        ({"actors": len(CORES), "runtime": "threads"}, 0),
    ],
    ids=str,
)
def test_actors_that_can_use_all_cores_have_a_lower_priority_than_the_learner(settings, nicer):
    before = os.getpriority(os.PRIO_PROCESS, 0)
    seen = in_its_own_thread(lambda: actors_of(**{"runtime": "processes", **settings}))
    assert {one.nice for one in seen} == {min(19, before + nicer)}


def test_actor_nice_and_learner_nice_never_raise_a_priority():
    def run() -> list[EnvReport]:
        os.setpriority(os.PRIO_PROCESS, 0, 15)
        return actors_of(runtime="processes", actors=1, actor_nice=3, learner_nice=0)

    assert [one.nice for one in in_its_own_thread(run)] == [15]


def test_learner_nice_sets_the_niceness_of_the_learner():
    seen: list[int] = []
    wanted = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 2)

    def look(_line: dict[str, Any]) -> None:
        seen.append(os.getpriority(os.PRIO_PROCESS, 0))

    settings: dict[str, Any] = {"runtime": "threads", "actors": 1, "learner_nice": wanted, "steps": 128}
    in_its_own_thread(lambda: small_run(Path("run"), **settings, callbacks=[look]))
    assert set(seen) == {wanted}


def test_inference_workers_have_the_niceness_of_the_learner_from_the_start():
    """So a restart, which inherits it, does not change theirs."""
    seen: list[int] = []
    wanted = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 2)

    def look(_line: dict[str, Any]) -> None:
        processes = status_of(Path("run"))["processes"]
        workers = [each["pid"] for each in processes if each["role"] == "inference worker"]
        seen.extend(os.getpriority(os.PRIO_PROCESS, pid) for pid in workers)

    settings: dict[str, Any] = {"actors": 2, "max_lag": 1, "inference": "worker", "learner_nice": wanted, "steps": 128}
    in_its_own_thread(lambda: small_run(Path("run"), runtime="processes", **settings, callbacks=[look]))
    assert set(seen) == {wanted}


@pytest.mark.parametrize(("given", "threads"), [({}, 1), ({"actor_threads": 2}, 2)])
def test_actor_threads_sets_the_thread_count_of_libraries_in_actor_processes(monkeypatch, given, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    (seen,) = actors_of(runtime="processes", actors=1, **given)
    assert (seen.variable, set(seen.threads)) == (str(threads), {threads})


def test_at_most_start_together_actor_processes_start_at_the_same_time():
    seen = actors_of(runtime="processes", actors=3, start_together=2, unrolls_per_batch=3)
    assert len({one.pid for one in seen}) == 3
    most = max(sum(other.begun <= one.begun < other.ended for other in seen) for one in seen)
    assert most <= 2


def test_all_actor_processes_start_at_the_same_time_by_default(monkeypatch):
    monkeypatch.setenv("LEARNER", str(os.getpid()))
    seen = actors_of("reporting/Meeting-v0", runtime="processes", actors=3)
    assert max(one.begun for one in seen) < min(one.ended for one in seen)


def test_the_status_lists_actor_processes_while_they_run():
    alive: list[list[bool]] = []

    def look(_line: dict[str, Any]) -> None:
        alive.append([Path(f"/proc/{pid}").exists() for pid in actor_pids()])

    def actor_pids() -> list[int]:
        return [entry["pid"] for entry in status_of(Path("run"))["processes"] if entry["role"] == "actor"]

    run = small_run(Path("run"), runtime="processes", actors=2, steps=256, callbacks=[look])
    assert alive[0] == [True, True]
    assert run.metrics["actor_restarts"] == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in actor_pids())


def test_decorrelated_columns_end_their_episodes_in_different_rows(begun):
    ends = {decorrelate: _ends_of_wave(begun, decorrelate) for decorrelate in (False, True)}
    assert len(set(ends[False])) == 1
    assert len(set(ends[True])) >= 5


def _ends_of_wave(begun: Callable[..., Any], decorrelate: bool) -> list[int]:
    """Return the row in which each column of the first unroll ends its first episode, all of which last 20 steps."""
    layout: dict[str, Any] = {"envs_per_actor": 8, "unroll_length": 21, "decorrelate": decorrelate}
    parts, acting = begun("runs/Wave-v0", **layout)
    acting.wait(1)
    slot = parts.policy.slots.open(0)
    assert set(slot["episode_length"][slot["terminated"]].tolist()) == {20}
    return np.argmax(slot["terminated"], axis=0).tolist()


def test_the_time_limit_stops_a_run_with_a_checkpoint_that_can_be_resumed():
    run = small_run(Path("run"), runtime="processes", actors=2, steps=10**9, time=0.1)
    assert (run.state, run.reason, run.exit_code) == ("interrupted", "stopped after --time 0.1 seconds", 0)
    assert weights_of(run.path)
    more = resume(run.path, steps=run.metrics["env_steps"] + 200)
    assert more.state == "finished"
    assert lines_of(run.path)[-1]["env_steps"] >= run.metrics["env_steps"] + 200
