"""What the progress view of a run shows at its start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offbeat.api.running.run_loop import about_run
from offbeat.config.resolve import resolve

SETTINGS: dict[str, Any] = {"runtime": "processes", "device": "cpu", "envs_per_actor": 16}


@pytest.mark.parametrize(
    ("flags", "topology"),
    [
        ({"actors": 1, "max_lag": 1}, "processes, 1 actor x 16 envs, max_lag 1, cpu"),
        ({"actors": 2, "max_lag": 1, "lag": "exact"}, "processes, 2 actors x 16 envs, max_lag 1 (exact), cpu"),
        (
            {"actors": 4, "max_lag": 1, "inference": "worker", "inference_workers": 2},
            "processes, 4 actors x 16 envs, 2 inference workers, max_lag 1, cpu",
        ),
        (
            {"actors": 2, "max_lag": 1, "devices": ("cpu", "cpu"), "shards": 2},
            "processes, 2 actors x 16 envs, max_lag 1, cpu,cpu",
        ),
    ],
)
def test_the_topology_has_the_workers_the_lag_and_the_devices(flags, topology):
    config = resolve("ppo", "CartPole-v1", flags={**SETTINGS, **flags})
    assert about_run(config, Path("run")).topology == topology


@pytest.mark.parametrize(
    ("preset", "settings"), [(None, "preset ppo-cartpole-v1"), ("none", "default settings, no preset")]
)
def test_the_title_has_the_preset(preset, settings):
    about = about_run(resolve("ppo", "CartPole-v1", preset=preset, flags=SETTINGS), Path("run"))
    assert about.title == f"ppo on CartPole-v1 ({settings})"
