"""A Unity build as a world: each copy takes the first worker id that is free."""

from __future__ import annotations

from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.envs.unity_parallel_env import UnityParallelEnv
from mlagents_envs.exception import UnityWorkerInUseException

from offbeat.envs.adapters.unity import FixedAgents


def soccer(build: str = "builds/Soccer.x86_64", *, window: bool = False) -> FixedAgents:
    """Start the build, and return it as an env with several agents; `window`: show Unity's own window."""
    for worker_id in range(1000):
        try:
            unity = UnityEnvironment(build, worker_id=worker_id, no_graphics=not window)
        except UnityWorkerInUseException:
            continue
        return FixedAgents(UnityParallelEnv(unity))
    raise RuntimeError("all worker ids are in use")
