"""Names the env whose call has exceeded its time limit, in the process of a worker."""

from __future__ import annotations

from threading import Thread, get_ident
from time import monotonic, sleep

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.envs.current import env_called_by
from offbeat.runtime.deadline import Deadline, reset_timeout, step_timeout

CHECK_S = 0.05
"""Seconds between two checks of a deadline that has passed. After `CONFIRM_S` the process is killed."""
LONGEST_SLEEP_S = 3600.0
"""Seconds of a sleep at most: the system refuses a time that is too far away."""


def name_hanging_env(deadline: Deadline, runtime: RuntimeConfig) -> None:
    """Start a thread that names the env, on the board, when an env call of this thread has passed its deadline.

    It sleeps until then. It can name no env that keeps Python's interpreter lock.

    Args:
        deadline: the deadline of this worker.
        runtime: has the time limits.
    """
    shortest = min(step_timeout(runtime), reset_timeout(runtime))
    Thread(target=_name_when_passed, args=(get_ident(), deadline, shortest), daemon=True).start()


def _name_when_passed(worker: int, deadline: Deadline, shortest: float) -> None:
    """Name the env of each deadline that passes. No deadline that is set from now on can pass within `shortest` s."""
    while True:
        time = deadline.time
        if deadline.has_passed:
            deadline.name_env(env_called_by(worker), time)
        sleep(min(max(CHECK_S, time - monotonic()), shortest, LONGEST_SLEEP_S))
