"""The nodes that an experiment has room on, and that join it, without a cluster: what they answer is given."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from offbeat.core.errors import RunFailed
from offbeat.experiments import ray_nodes
from offbeat.experiments.ray_nodes import JobNodes
from offbeat.runtime.ray.cluster import Node

FIRST, JOINED = Node("1", "10.0.0.1", {"CPU": 1.0}), Node("2", "10.0.0.2", {"CPU": 1.0})

ONE = {"CPU": 1.0}


def get(answer: str | Exception) -> str:
    """Return the result of a task, as `ray.get` does."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def test_a_node_that_cannot_run_offbeat_is_named_once_and_not_used(tmp_path, monkeypatch):
    exceptions = pytest.importorskip("ray.exceptions")
    error = "RuntimeError: the function failed to import:\nModuleNotFoundError: No module named 'offbeat'\n"
    answers = {"1": "", "2": exceptions.RayTaskError("reason_against", error, RuntimeError(error), "worker", 1, "")}
    fake = SimpleNamespace(wait=lambda asked, **_: (asked, []), get=get, exceptions=exceptions)
    monkeypatch.setitem(sys.modules, "ray", fake)
    present, said = [FIRST], list[str]()
    cluster: Any = SimpleNamespace(nodes=lambda: present)
    with patch.object(ray_nodes, "_ask", side_effect=lambda node, *_: answers[node.id]) as ask:
        nodes = JobNodes(cluster, ONE, ONE, tmp_path, said.append)
        present.append(JOINED)
        for _ in range(3):
            nodes._poll()
    assert ask.call_count == 2
    assert nodes.ids == ["1"]
    reason = "it cannot run offbeat (ModuleNotFoundError: No module named 'offbeat')"
    assert said == [f"the node 10.0.0.2 joined, but is not used: {reason}"]


class FakeCluster:
    """A cluster with nodes, whose head may be lost."""

    def __init__(self, *nodes: Node) -> None:
        self.present, self.answers, self.watch, self.asked = list(nodes), True, self, 0
        self.lost = ""

    def nodes(self) -> list[Node]:
        self.asked += 1
        return self.present

    def require(self) -> None:
        if self.lost:
            raise RunFailed(self.lost)

    def head_answers(self) -> bool:
        return self.answers


@pytest.fixture
def job_nodes(tmp_path, monkeypatch) -> Any:
    """A function that makes `JobNodes` of a cluster, whose nodes all have the disk and are polled each time."""
    monkeypatch.setattr(ray_nodes, "POLL_EVERY_S", 0.0)
    monkeypatch.setattr(ray_nodes, "_ask", lambda *_: "")
    monkeypatch.setattr(ray_nodes, "_answers", lambda asked, _seconds: ((node, "") for node in asked))
    return lambda cluster, with_actors=ONE: JobNodes(cluster, ONE, with_actors, tmp_path, lambda _text: None)


def test_there_is_no_room_and_ray_is_asked_nothing_while_the_head_does_not_answer(job_nodes):
    cluster = FakeCluster(FIRST, JOINED)
    nodes = job_nodes(cluster)
    assert nodes.room() == 2
    asked, cluster.answers = cluster.asked, False
    assert (nodes.room(), cluster.asked) == (0, asked)
    cluster.answers = True
    assert nodes.room() == 2


def test_the_loss_of_ray_is_an_error_where_room_is_searched(job_nodes):
    cluster = FakeCluster(FIRST)
    nodes = job_nodes(cluster)
    assert (nodes.room(), nodes.is_lost) == (1, False)
    cluster.lost = "Ray has ended"
    with pytest.raises(RunFailed, match="Ray has ended"):
        nodes.room()
    assert nodes.is_lost


def test_the_actors_of_the_jobs_get_the_rest_of_the_cluster(job_nodes):
    cluster = FakeCluster(Node("1", "10.0.0.1", {"CPU": 4.0, "fast": 1.0}), Node("2", "10.0.0.2", {"CPU": 4.0}))
    assert job_nodes(cluster).room() == 8
    assert job_nodes(cluster, {"CPU": 3.0}).room() == 2
    assert job_nodes(cluster, {"CPU": 3.0, "fast": 0.7}).room() == 1
    cluster.present.pop()
    assert job_nodes(cluster, {"CPU": 5.0}).room() == 0
