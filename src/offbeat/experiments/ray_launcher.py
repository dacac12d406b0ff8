"""Starts jobs on the nodes of a Ray cluster: each in an actor with its own resources.

The directory of the experiment is on a disk that all these nodes have at the same path. So a job can continue on
any node, and what an experiment knows is in its files, as on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from offbeat.config.config import Config
from offbeat.config.devices import gpus_of
from offbeat.core.errors import ConfigError
from offbeat.experiments.jobs import Job
from offbeat.experiments.ray_nodes import JobNodes
from offbeat.experiments.ray_process import Placement, RayProcess
from offbeat.runtime.ray.cluster import Cluster


def session_resources(
    configs: Sequence[Config], cpus: float | None, gpus: float | None, resources: Mapping[str, float]
) -> dict[str, float]:
    """Return the resources that each job needs: resource -> amount.

    Args:
        configs: the configs of the jobs.
        cpus: number of CPUs; None: the cores that the largest job can keep busy.
        gpus: number of GPUs; None: those that the config names.
        resources: custom resources.

    Raises:
        ConfigError: the number of cores is not known.
    """
    cores = [config.busy_cores for config in configs]
    if cpus is None and None in cores:
        raise ConfigError(
            "split is measured, so each session chooses its actors for all cores of its node: pass --cpus N with the "
            'number of CPUs of a node, or write actors = N, or split = "given", under [settings]'
        )
    needed = max(core or 0 for core in cores) if cpus is None else cpus
    found = max(map(_gpus_of, configs)) if gpus is None else gpus
    return {"CPU": needed, "GPU": found, **resources}


def _gpus_of(config: Config) -> int:
    """Return the number of GPUs that a config names."""
    runtime = config.runtime
    learning = runtime.devices or ((runtime.device,) if runtime.device != "auto" else ())
    return len(set(gpus_of([*learning, *(runtime.inference_device or ())])))


class RayLauncher:
    """Starts jobs on the nodes of a cluster.

    Args:
        cluster: the cluster.
        resources: resource -> amount that each job needs.
        jobs: number of jobs that run at the same time; None: as many as the nodes have resources for.

    Raises:
        ConfigError: no node has the resources.
    """

    def __init__(self, cluster: Cluster, resources: Mapping[str, float], jobs: int | None = None) -> None:
        cluster.require(resources, "a session")
        self._cluster, self._resources, self._jobs = cluster, resources, jobs
        self._nodes: JobNodes | None = None

    def prepare(self, folder: Path, notify: Callable[[str], None]) -> None:
        """Require that all nodes with the resources have the disk of a folder. See `Launcher`."""
        self._nodes = JobNodes(self._cluster, self._resources, folder.absolute(), notify)

    def room(self) -> int:
        assert self._nodes is not None
        room = self._nodes.room()
        return room if self._jobs is None else min(room, self._jobs)

    def launch(self, job: Job, arguments: Sequence[str]) -> RayProcess:
        assert self._nodes is not None
        return RayProcess(Placement(job, arguments, self._nodes, self._resources))
