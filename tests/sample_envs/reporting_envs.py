"""Envs that write down where, and how, they are run; `--import tests.sample_envs.reporting_envs` registers them."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.sample_envs.run_envs import Wave
from tests.support.registering import register_envs
from threadpoolctl import threadpool_info

FOLDER = Path("reported")
"""In the current folder; one file an env."""


class EnvReport(NamedTuple):
    """What an env has seen when it was first stepped or reset."""

    pid: int
    thread: str
    cores: list[int]
    nice: int
    threads: list[int]
    """Of each library that has a pool of them."""
    variable: str | None
    """OMP_NUM_THREADS."""
    begun: float
    ended: float
    """Of the first reset, on the clock that all processes share."""


class Reporting(Wave):
    """Takes a moment to reset."""

    reported = False

    def reset(self, **arguments: Any) -> Any:
        begun = time.monotonic()
        self.take_a_moment()
        if not self.reported:
            self.reported = True
            self.report(begun)
        return super().reset(**arguments)

    def take_a_moment(self) -> None:
        time.sleep(0.1)

    def report(self, begun: float) -> None:
        cores, nice = sorted(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0)
        threads = [pool["num_threads"] for pool in threadpool_info()]
        seen = (os.getpid(), threading.current_thread().name, cores, nice, threads, os.environ.get("OMP_NUM_THREADS"))
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{os.getpid()}-{id(self)}.json").write_text(json.dumps([*seen, begun, time.monotonic()]))


class Meeting(Reporting):
    """In an actor process, waits in its first reset until three processes do."""

    def take_a_moment(self) -> None:
        (FOLDER / "met").mkdir(parents=True, exist_ok=True)
        (FOLDER / "met" / str(os.getpid())).touch()
        deadline = time.monotonic() + 30
        while not self.reported and os.getpid() != int(os.environ["LEARNER"]) and time.monotonic() < deadline:
            if len(list((FOLDER / "met").iterdir())) >= 1 + 3:  # the learner has tried the env before
                return
            time.sleep(0.01)


def env_reports() -> list[EnvReport]:
    """Return what all envs have reported, in the order in which they began."""
    every = [EnvReport(*json.loads(file.read_text())) for file in FOLDER.glob("*.json")]
    return sorted(every, key=lambda one: one.begun)


register_envs("reporting", Reporting, Meeting)
