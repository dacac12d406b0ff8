"""Inference workers that die or hang: they are started again, the run stays exact, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs import (
    Started,
    is_alive,
    lines_of,
    pids_of,
    small_arguments,
    small_run,
    status_of,
    wait_until,
    weights_of,
)
from tests.support.thorough import thorough

from offbeat.api.resume import resume
from offbeat.api.train import Run

EXACT: dict[str, Any] = {"actors": 2, "max_lag": 1, "lag": "exact", "inference": "worker", "restart_budget": 50}
PROCESSES = EXACT | {"runtime": "processes"}
RUN = Path("run")


pytestmark = pytest.mark.usefixtures("in_temporary_folder")


@contextmanager
def signalled(role: str, number: signal.Signals, times: int) -> Iterator[list[int]]:
    """Send a signal to processes of the run in this process, each once, when actors have begun to act."""
    sent: list[int] = []
    done = threading.Event()

    def send_some() -> None:
        while len(sent) < times and not done.wait(0.2):
            fresh = [pid for pid in pids_of(RUN, role) if pid not in sent] if lines_of(RUN) else []
            if fresh:
                sent.append(fresh[0])
                with suppress(ProcessLookupError):
                    os.kill(fresh[0], number)

    sender = threading.Thread(target=send_some)
    sender.start()
    try:
        yield sent
    finally:
        done.set()
        sender.join()


def train(path: Path, **settings: Any) -> Run:
    return small_run(path, **{"steps": 4096, "log_every": 64, **settings})


@pytest.fixture(scope="module")
def serial(tmp_path_factory) -> Callable[[int], bytes]:
    """A function from a number of env groups to the weights of a run in the serial runtime."""

    @cache
    def weights(env_groups: int) -> bytes:
        return weights_of(train(tmp_path_factory.mktemp("serial") / "run", **EXACT, env_groups=env_groups).path)

    return weights


def log() -> str:
    return Path("run/log.txt").read_text()


@pytest.mark.parametrize("env_groups", [2, *thorough(1)])
def test_a_run_whose_inference_worker_is_killed_again_and_again_has_the_bits_of_serial(env_groups, serial):
    with signalled("inference worker", signal.SIGKILL, 3) as killed:
        run = train(RUN, **PROCESSES, env_groups=env_groups)
    assert (run.state, len(killed)) == ("finished", 3)
    assert run.metrics["actor_restarts"] >= 2  # the last one may have come when nothing was left to do
    assert "was killed by SIGKILL, in batch" in log()
    assert "no longer exact" not in log()
    assert weights_of(run.path) == serial(env_groups)


def test_a_hanging_inference_worker_is_killed_and_its_actors_are_not(serial):
    with signalled("inference worker", signal.SIGSTOP, 1):
        run = train(RUN, **PROCESSES, env_groups=2, stall_timeout_s=2)
    assert run.metrics["actor_restarts"] == 1
    assert "inference worker 0" in log()
    assert "made no progress in time outside of its envs (stall_timeout_s) and was killed" in log()
    assert weights_of(run.path) == serial(2)


def test_killed_actors_and_inference_workers_leave_a_run_that_finishes_and_resumes():
    with signalled("actor", signal.SIGKILL, 2) as actors, signalled("inference worker", signal.SIGKILL, 2) as workers:
        run = train(RUN, **PROCESSES, env_groups=2, checkpoint_every=512)
    assert run.state == "finished"
    assert actors
    assert workers
    assert run.metrics["actor_restarts"] > 0
    assert not any(map(is_alive, [*actors, *workers]))
    assert run.metrics["env_steps"] >= 4096
    assert resume(run.path, steps=4608).state == "finished"


def test_an_inference_worker_without_restarts_left_ends_the_run_with_the_reason():
    settings = {**PROCESSES, "restart_budget": 0, "steps": 10**8, "log_every": 64}
    started = Started(small_arguments(Path("run"), **settings), Path.cwd())
    started.wait_until(lambda: bool(lines_of(RUN)))
    children = [*pids_of(RUN, "inference worker"), *pids_of(RUN, "actor")]
    os.kill(children[0], signal.SIGKILL)
    said = started.end(seconds=60)
    assert said.code == 1
    assert "inference worker 0" in said.err
    assert "restart_budget of 0" in said.err
    assert status_of(Path("run"))["state"] == "failed"
    assert not any(map(is_alive, children))


def test_no_process_outlives_a_killed_run():
    settings = {**PROCESSES, "steps": 10**8, "log_every": 64, "inference_workers": 2}
    started = Started(small_arguments(Path("run"), **settings), Path.cwd())
    started.wait_until(lambda: bool(lines_of(RUN)))
    children = [*pids_of(RUN, "inference worker"), *pids_of(RUN, "actor")]
    assert len(children) == 4
    started.process.kill()
    wait_until(lambda: not any(map(is_alive, children)))
