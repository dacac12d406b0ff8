"""A module as a user of Unity builds writes it: functions that make an env with a worker id of its own."""

from __future__ import annotations

from tests.reference.unity_double import EarlyUnityParallelEnv, UnityParallelEnv, WorkerInUseError

from offbeat.envs.adapters.unity import FixedAgents


def soccer(env: type[UnityParallelEnv] = UnityParallelEnv) -> FixedAgents:
    for worker_id in range(1000):
        try:
            return FixedAgents(env(worker_id))
        except WorkerInUseError:
            continue
    raise RuntimeError("all worker ids are in use")


def early_soccer() -> FixedAgents:
    return soccer(EarlyUnityParallelEnv)
