"""Nodes that join an experiment, without a cluster: what they answer is given."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from offbeat.experiments import ray_nodes
from offbeat.experiments.ray_nodes import JobNodes
from offbeat.runtime.ray.cluster import Node

FIRST, JOINED = Node("1", "10.0.0.1", {"CPU": 1.0}), Node("2", "10.0.0.2", {"CPU": 1.0})


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
        nodes = JobNodes(cluster, {"CPU": 1.0}, tmp_path, said.append)
        present.append(JOINED)
        for _ in range(3):
            nodes._poll()
    assert ask.call_count == 2
    assert nodes.ids == ["1"]
    reason = "it cannot run offbeat (ModuleNotFoundError: No module named 'offbeat')"
    assert said == [f"the node 10.0.0.2 joined, but is not used: {reason}"]
