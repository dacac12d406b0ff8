"""What actors need on their nodes, and what a Ray that is started for a run has."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.runs import SMALL

from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.runtime.ray import acting
from offbeat.runtime.ray.acting import RayActing
from offbeat.runtime.ray.cluster import Cluster, Node
from offbeat.runtime.runtimes import build

HERE = Node("1", "127.0.0.1", {"CPU": 2.0, "fast": 2.0})


def test_a_ray_that_is_started_for_a_run_has_the_cpus_and_custom_resources_of_all_actors_but_no_other_gpus(monkeypatch):
    started: dict[str, Any] = {}

    def connect(address: str, **settings: Any) -> Cluster:
        started.update(settings, address=address)
        return Cluster(address, is_local=True)

    monkeypatch.setattr(acting, "connect", connect)
    monkeypatch.setattr(Cluster, "nodes", lambda _self: [HERE])
    needs: dict[str, Any] = {"ray_cpus": 1.0, "ray_gpus": 1.0, "ray_resources": "fast=0.7,near=1"}
    parts: Any = build(resolve("ppo", "CartPole-v1", flags={**SMALL, "runtime": "ray", "actors": 2, **needs}))
    unused: Any = None
    try:
        with pytest.raises(ConfigError, match="pass a smaller ray_gpus or leave it out, or pass the ray_address of"):
            RayActing(parts, 0, unused)
    finally:
        parts.close()
    assert started["local_cpus"] == 2.0
    assert started["local_resources"] == {"fast": 1.4, "near": 2.0}
