"""Starts jobs on the nodes of a Ray cluster: each in an actor with its own resources.

The directory of the experiment is on a disk that all these nodes have at the same path. So a job can continue on
any node, and what an experiment knows is in its files, as on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from offbeat.config.config import Config
from offbeat.config.devices import gpus_of
from offbeat.core.errors import ConfigError
from offbeat.experiments.jobs import Job
from offbeat.experiments.ray_nodes import JobNodes, times_in, total
from offbeat.experiments.ray_process import Placement, RayProcess
from offbeat.runtime.ray.cluster import Cluster, resources_text
from offbeat.runtime.ray.placement import resources_of


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


def actor_resources(configs: Sequence[Config], address: str) -> dict[str, float]:
    """Return what the actors of the largest job reserve on the cluster, besides the job: resource -> amount.

    Args:
        configs: the configs of the jobs.
        address: host:port of the cluster. Actors on other clusters do not count.
    """
    most: dict[str, float] = {}
    for runtime in (config.runtime for config in configs):
        if runtime.ray_address in ("auto", address):
            for name, amount in resources_of(runtime).items():
                most[name] = max(most.get(name, 0.0), runtime.actors * amount)
    return most


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
        of_actors: resource -> amount that the actors of each job need on the cluster, besides the job.

    Raises:
        ConfigError: no node has the resources, or the cluster does not have them with those of the actors.
    """

    def __init__(
        self,
        cluster: Cluster,
        resources: Mapping[str, float],
        jobs: int | None = None,
        of_actors: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        cluster.require(resources, "a session")
        self._cluster, self._resources, self._jobs = cluster, resources, jobs
        self._with_actors = total([resources, of_actors])
        if not times_in(self._with_actors, available := total(node.resources for node in cluster.nodes())):
            raise ConfigError(
                f"a session and its actors need {resources_text(self._with_actors)} together, but the cluster has "
                f"{resources_text(available)}: write fewer actors, or start another node"
            )
        self._nodes: JobNodes | None = None

    def prepare(self, folder: Path, notify: Callable[[str], None]) -> None:
        """Require that all nodes with the resources have the disk of a folder. See `Launcher`."""
        self._nodes = JobNodes(self._cluster, self._resources, self._with_actors, folder.absolute(), notify)

    def room(self) -> int:
        assert self._nodes is not None
        room = self._nodes.room()
        return room if self._jobs is None else min(room, self._jobs)

    def launch(self, job: Job, arguments: Sequence[str]) -> RayProcess:
        assert self._nodes is not None
        return RayProcess(Placement(job, arguments, self._nodes, self._resources))
