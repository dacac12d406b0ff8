"""The nodes of a Ray cluster that can run jobs: they have the resources, and the disk of the experiment."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from offbeat.core.errors import ConfigError, RunFailed
from offbeat.experiments.node_job import reason_against
from offbeat.runtime.ray.cluster import Cluster, Node, own_versions, resources_text, task_on

POLL_EVERY_S = 1.0
"""Seconds between two polls of the nodes of the cluster."""
DISK_ANSWER_S = 60.0
"""Seconds that a node gets to check the disk. It may have to start a worker of Ray first."""


class JobNodes:
    """The nodes of a cluster that can run jobs. Nodes may be lost and others may join.

    Args:
        cluster: the cluster.
        resources: resource -> amount that one job needs on its node.
        with_actors: resource -> amount that one job needs on the cluster, with actors that are not on its node.
        folder: the directory of the experiment, which may not exist yet.
        notify: shows a message to the user.

    Raises:
        ConfigError: a node with the resources does not have the disk.
    """

    def __init__(
        self,
        cluster: Cluster,
        resources: Mapping[str, float],
        with_actors: Mapping[str, float],
        folder: Path,
        notify: Callable[[str], None],
    ) -> None:
        self._cluster, self._resources, self._folder, self._notify = cluster, resources, folder, notify
        self._with_actors, self._of_cluster = with_actors, dict[str, float]()
        self._usable = {node.id: node for node in self._with_disk(self._suitable())}
        self._unusable: set[str] = set()
        """Ids of nodes without the disk."""
        self._asked: dict[str, Any] = {}
        """Id of a node that has joined -> Ray's reference to its answer."""
        self._next_poll, self._head_answers = 0.0, False

    @property
    def ids(self) -> list[str]:
        """Ids of the nodes that jobs can run on."""
        return list(self._usable)

    @property
    def is_lost(self) -> bool:
        """Whether Ray has ended on this machine, or the head is lost."""
        with suppress(RunFailed):
            self._cluster.watch.require()
        return bool(self._cluster.watch.lost)

    def room(self) -> int:
        """Return the number of jobs for which the nodes have the resources, if nothing else uses them.

        None can start while the head does not answer.

        Raises:
            RunFailed: Ray has ended on this machine, or the head is lost.
        """
        if time.monotonic() >= self._next_poll:
            self._cluster.watch.require()
            self._head_answers = self._cluster.watch.head_answers()
            if self._head_answers:
                self._poll()
            self._next_poll = time.monotonic() + POLL_EVERY_S
        if not self._head_answers:
            return 0
        on_nodes = sum(times_in(self._resources, node.resources) for node in self._usable.values())
        return min(on_nodes, times_in(self._with_actors, self._of_cluster))

    def _suitable(self) -> list[Node]:
        """Return the nodes with the resources, and note what all nodes have."""
        nodes = self._cluster.nodes()
        self._of_cluster = total(node.resources for node in nodes)
        return [node for node in nodes if node.has(self._resources)]

    def _with_disk(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the nodes that have the disk of the folder: all but those that are lost meanwhile. Refuse others."""
        disk = next(parent for parent in (self._folder, *self._folder.parents) if parent.is_dir())
        with _token_in(disk) as (token, content):
            asked = {node.id: _ask(node, token, content) for node in nodes}
            silent = dict.fromkeys(asked, f"did not answer within {DISK_ANSWER_S:g} s")
            reasons = {**silent, **dict(_answers(asked, DISK_ANSWER_S))}
        refused = [f"{node.address} {reasons[node.id]}" for node in nodes if reasons[node.id]]
        if refused:
            raise ConfigError(
                f"{len(refused)} of {len(nodes)} nodes with {resources_text(self._resources)} cannot run sessions in "
                f"{self._folder}: {'; '.join(refused)}. A session writes its files there and continues from them on "
                "any node: pass --dir with a folder on a disk that all these nodes have at the same path; or pass "
                "--resources NAME=1, if only the nodes with the disk have this resource"
            )
        return [node for node in nodes if reasons[node.id] is not None]

    def _poll(self) -> None:
        """Drop nodes that were lost, and ask nodes that have joined whether they have the disk."""
        nodes = {node.id: node for node in self._suitable()}
        for lost in self._usable.keys() - nodes.keys():
            self._notify(f"the node {self._usable.pop(lost).address} was lost")
            if not self._usable:
                needed = resources_text(self._resources)
                self._notify(f"no node is left: the sessions wait until a node with {needed} joins")
        for joined in nodes.keys() - self._usable.keys() - self._asked.keys() - self._unusable:
            self._asked[joined] = _ask(nodes[joined], self._folder / ".lock", "")
        for answered, reason in list(_answers(self._asked, 0)):
            del self._asked[answered]
            if answered in nodes and reason is not None:
                self._add(nodes[answered], reason)

    def _add(self, node: Node, reason: str) -> None:
        """Use a node that has joined, unless there is a reason against it."""
        if reason:
            self._unusable.add(node.id)
            self._notify(f"the node {node.address} joined, but is not used: it {reason}")
        else:
            self._usable[node.id] = node
            self._notify(f"the node {node} joined")


def times_in(resources: Mapping[str, float], available: Mapping[str, float]) -> int:
    """Return how many times these resources are available."""
    return min(int(available.get(name, 0.0) / amount + 1e-9) for name, amount in resources.items() if amount)


def total(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of resources: resource -> amount."""
    summed: dict[str, float] = {}
    for part in parts:
        for name, amount in part.items():
            summed[name] = summed.get(name, 0.0) + amount
    return summed


# --- the disk -----------------------------------------------------------------------------------------------


@contextmanager
def _token_in(folder: Path) -> Iterator[tuple[Path, str]]:
    """Write a file and lock it while entered; yield its path and content.

    Raises:
        ConfigError: it cannot be written.
    """
    token, content = folder / f".offbeat-{uuid4().hex}", uuid4().hex
    try:
        with token.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield token, content
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used ({error.strerror}): pass another --dir") from None
    finally:
        token.unlink(missing_ok=True)


def _ask(node: Node, token: Path, content: str) -> Any:
    """Let a node check a file; return Ray's reference to its reason against running jobs."""
    return task_on(node.id, reason_against).remote(str(token), content, str(Path.cwd()), own_versions())


def _answers(asked: Mapping[str, Any], timeout_s: float) -> Iterator[tuple[str, str | None]]:
    """Yield the answers that come within a time: id of the node; its reason, '' if it has none, None if it is lost."""
    import ray

    if not asked:
        return
    answered, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=timeout_s)
    for node, answer in asked.items():
        if answer in answered:
            try:
                yield node, ray.get(answer)
            except ray.exceptions.RayTaskError as error:  # with the traceback of the node, whose end is the cause
                yield node, f"cannot run offbeat ({str(error).splitlines()[-1]})"
            except ray.exceptions.RayError:
                yield node, None
