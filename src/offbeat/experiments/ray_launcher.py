"""Starts jobs on the nodes of a Ray cluster: each in an actor with its own resources.

The directory of the experiment is on a disk that all these nodes have at the same path. So a job can continue on
any node, and what an experiment knows is in its files, as on one machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offbeat.config.config import Config
from offbeat.config.devices import gpus_of
from offbeat.core.errors import ConfigError
from offbeat.experiments.file_digests import FileDigests
from offbeat.experiments.jobs import Job
from offbeat.experiments.node_job import Launch, NodeJob
from offbeat.experiments.ray_nodes import JobNodes
from offbeat.experiments.ray_process import RayProcess
from offbeat.experiments.sessions import busy_cores_of
from offbeat.runtime.child import THREAD_VARIABLES
from offbeat.runtime.ray.cluster import Cluster

CARRIED = ("PYTHONPATH", *THREAD_VARIABLES)
"""Environment variables that jobs get from this process. All others are those of the node."""


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
    cores = [busy_cores_of(config) for config in configs]
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
        remedy = "pass --cpus, --gpus or --resources with what a node has, or start a larger node"
        cluster.require_resources(resources, "a session", remedy)
        cluster.require_versions()
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
        return RayProcess(_Placement(job, arguments, self._nodes, self._resources))


@dataclass(frozen=True, eq=False)
class _Placement:
    """Where a job may start, and what it needs there."""

    job: Job
    arguments: Sequence[str]
    usable: JobNodes
    resources: Mapping[str, float]

    @property
    def nodes(self) -> Sequence[str]:
        return self.usable.ids

    def actor(self) -> Any:
        import ray
        from ray.util.scheduling_strategies import In, NodeLabelSchedulingStrategy

        custom = {name: amount for name, amount in self.resources.items() if name not in ("CPU", "GPU")}
        one_of: Any = In
        actor: Any = ray.remote(NodeJob)
        return actor.options(
            num_cpus=self.resources["CPU"], num_gpus=self.resources["GPU"], resources=custom,
            max_concurrency=4, max_restarts=0,
            scheduling_strategy=NodeLabelSchedulingStrategy({"ray.io/node-id": one_of(*self.nodes)}),
        ).remote()  # fmt: skip

    def launch(self) -> Launch:
        output = self.job.output
        return Launch(
            list(self.arguments),
            str(Path.cwd()),
            str(self.job.log.absolute()),
            None if output is None else str(output.absolute()),
            {name: os.environ.get(name) for name in CARRIED},
            FileDigests.of(path.absolute() for path in self.job.files),
        )
