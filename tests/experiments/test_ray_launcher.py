"""The resources that sessions on a cluster need."""

from __future__ import annotations

from typing import Any

import pytest

from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.experiments.ray_launcher import RayLauncher, actor_resources, session_resources
from offbeat.runtime.ray.cluster import Cluster, Node

ONE: dict[str, Any] = {}
FOUR: dict[str, Any] = {"runtime": "processes", "actors": 4}
GPUS: dict[str, Any] = {**FOUR, "shards": 2, "devices": ("cuda:0", "cuda:1")}
MEASURED: dict[str, Any] = {"runtime": "processes", "split": "measured"}


@pytest.mark.parametrize(
    ("configs", "cpus", "gpus", "needed"),
    [
        ([ONE], None, None, {"CPU": 1, "GPU": 0}),
        ([ONE, FOUR], None, None, {"CPU": 5, "GPU": 0}),
        ([{**FOUR, "runtime": "ray"}], None, None, {"CPU": 5, "GPU": 0}),
        ([{**FOUR, "runtime": "ray", "ray_address": "auto"}], None, None, {"CPU": 1, "GPU": 0}),
        ([GPUS], None, None, {"CPU": 6, "GPU": 2}),
        ([{"device": "cuda"}], None, None, {"CPU": 1, "GPU": 1}),
        ([{"device": "cuda"}], 0.5, 0.25, {"CPU": 0.5, "GPU": 0.25}),
        ([MEASURED], 16.0, None, {"CPU": 16, "GPU": 0}),
    ],
)
def test_a_session_needs_the_cores_and_gpus_of_the_largest_config_unless_they_are_given(configs, cpus, gpus, needed):
    resolved = [resolve("ppo", "CartPole-v1", flags=flags) for flags in configs]
    found = session_resources(resolved, cpus, gpus, {"fast": 1.0})
    assert found == {**needed, "fast": 1}


def test_sessions_that_measure_their_topology_need_the_number_of_cpus():
    with pytest.raises(ConfigError, match=r"split is measured.*pass --cpus N.*actors = N"):
        session_resources([resolve("ppo", "CartPole-v1", flags=MEASURED)], None, None, {})


AUTO: dict[str, Any] = {"runtime": "ray", "ray_address": "auto"}
ACTORS: dict[str, Any] = {**AUTO, "actors": 4, "ray_cpus": 0.5, "ray_resources": "fast=0.7"}


def test_the_actors_of_the_largest_config_on_the_same_cluster_are_counted():
    flags = [ONE, ACTORS, {**AUTO, "actors": 3}, {**ACTORS, "ray_address": "10.0.0.2:6379"}, {**ACTORS, "actors": 2}]
    configs = [resolve("ppo", "CartPole-v1", flags=each) for each in flags]
    assert actor_resources(configs, "10.0.0.1:6379") == {"CPU": 3, "fast": 2.8}
    assert actor_resources(configs[3:4], "10.0.0.2:6379") == {"CPU": 2, "fast": 2.8}
    assert actor_resources([resolve("ppo", "CartPole-v1", flags={**FOUR, "runtime": "ray"})], "10.0.0.1:6379") == {}


def test_sessions_whose_actors_would_have_no_place_are_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr(Cluster, "require", lambda *_: None)
    monkeypatch.setattr(Cluster, "nodes", lambda _self: [Node("1", "10.0.0.1", {"CPU": 2.0})])
    cluster = Cluster("10.0.0.1:6379", is_local=False)
    RayLauncher(cluster, {"CPU": 1.0, "GPU": 0.0}, None, {"CPU": 1.0})
    with pytest.raises(
        ConfigError, match=r"session and its actors need 3 CPU together, .* has 2 CPU: write fewer actors"
    ):
        RayLauncher(cluster, {"CPU": 1.0, "GPU": 0.0}, None, {"CPU": 2.0})
