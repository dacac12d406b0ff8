"""The resources that sessions on a cluster need."""

from __future__ import annotations

from typing import Any

import pytest

from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.experiments.ray_launcher import session_resources

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
