"""Flags of commands whose work can run on a Ray cluster, and the connection that they describe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from tyro.conf import arg

from offbeat.config.ray import RESERVED, require_amount
from offbeat.core.errors import ConfigError
from offbeat.core.fields import NonNegative, Positive, read

if TYPE_CHECKING:
    from offbeat.runtime.ray.cluster import Cluster
    from offbeat.runtime.ray.tasks import TaskPool

On = Annotated[
    Literal["local", "ray"],
    arg(metavar="local|ray", help="Where the work runs: on this machine, or on the nodes of a Ray cluster."),
]
RayAddress = Annotated[
    str | None,
    arg(
        metavar="HOST:PORT|auto",
        help="Address of the Ray cluster; auto: the one that this machine belongs to. Default: Ray is started on this "
        "machine, and ended again. Only with --on ray.",
        help_behavior_hint="",
    ),
]
Cpus = Annotated[
    str | None,
    arg(
        metavar="N",
        help="CPUs that each session, evaluation or match reserves on its node. Default: 1, or in `offbeat run` as "
        "many as the layout of the session uses. Only with --on ray.",
        help_behavior_hint="",
    ),
]
Gpus = Annotated[
    str | None,
    arg(
        metavar="N",
        help="GPUs that each session, evaluation or match reserves on its node; it sees no others. Default: 0, or in "
        "`offbeat run` as many as the settings of the session name. Only with --on ray.",
        help_behavior_hint="",
    ),
]
Resources = Annotated[
    str | None,
    arg(
        metavar="NAME=AMOUNT,...",
        help="Custom resources that each session, evaluation or match reserves, such as fast=1. Only with --on ray.",
        help_behavior_hint="",
    ),
]


@dataclass(frozen=True)
class OnRay:
    """A Ray cluster, and the resources of each session, evaluation or match on it, as the flags say them."""

    address: str | None
    cpus: float | None
    """None: the command chooses."""
    gpus: float | None
    """None: the command chooses."""
    resources: dict[str, float]
    """Custom resource -> amount."""

    @classmethod
    def read(
        cls, on: str, address: str | None, cpus: str | None, gpus: str | None, resources: str | None
    ) -> Self | None:
        """Read the flags; return None if the work runs on this machine.

        Raises:
            ConfigError: a value is invalid, or a flag needs --on ray.
        """
        if on == "local":
            given = {"ray-address": address, "cpus": cpus, "gpus": gpus, "resources": resources}
            for flag in (flag for flag, value in given.items() if value is not None):
                raise ConfigError(f"--{flag} needs --on ray: add it, or leave --{flag} out")
            return None
        return cls(
            address,
            None if cpus is None else _amount("cpus", cpus, Positive, "pass, for example, --cpus 2"),
            None if gpus is None else _amount("gpus", gpus, NonNegative, "pass, for example, --gpus 1"),
            {} if resources is None else _custom(resources),
        )

    @contextmanager
    def connected(self, cpus: float) -> Iterator[Cluster]:
        """Connect to the cluster, or start Ray on this machine, while entered.

        Args:
            cpus: CPUs that each session, evaluation or match reserves.

        Raises:
            ConfigError: Ray is missing, or nobody answers at the address.
        """
        from offbeat.runtime.ray.connecting import LOCAL, connect

        connection = connect(self.address or LOCAL, local_cpus=cpus, local_resources=self.resources, show_output=False)
        with connection as cluster:
            yield cluster

    @contextmanager
    def task_pool(self, user: str) -> Iterator[TaskPool]:
        """Connect, and yield a pool of tasks with these resources, by default one CPU; `user`: what a task is.

        Raises:
            ConfigError: as `connected`; or no node has the resources, or other versions.
        """
        from offbeat.runtime.ray.tasks import TaskPool

        cpus = 1.0 if self.cpus is None else self.cpus
        with self.connected(cpus) as cluster:
            yield TaskPool(cluster, {"CPU": cpus, "GPU": self.gpus or 0.0, **self.resources}, user)


def _custom(text: str) -> dict[str, float]:
    """Read custom resources, NAME=AMOUNT,..."""
    resources: dict[str, float] = {}
    for part in text.split(","):
        name, _, amount = part.partition("=")
        if name.upper() in ("CPU", "GPU"):
            raise ConfigError(f"resources has {part}, which has a flag of its own: pass --{name.lower()}s {amount}")
        if name in RESERVED:
            raise ConfigError(f"resources has {name}, which is not a custom resource: pass the name of another one")
        if not (name and amount):
            raise ConfigError(f"resources is {text!r}, but NAME=AMOUNT is expected: pass --resources fast=1")
        if name in resources:
            raise ConfigError(f"resources is {text!r}, which has {name} twice: pass it once")
        remedy = f"pass, for example, --resources {name}=1"
        resources[name] = _amount(f"resource {name}", amount, Positive, remedy)
    return resources


def _amount(name: str, text: str, kind: Any, remedy: str) -> float:
    """Read an amount of a resource."""
    amount: float = read(name, text, kind, remedy)
    require_amount(name, amount)
    return amount
