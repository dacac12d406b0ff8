"""A run warns if its processes share memory on a processor for which the order of memory is not proven."""

from __future__ import annotations

import platform
import re
import warnings
from typing import Any

import pytest

import offbeat
from offbeat.api.running.start_warnings import unproven_memory_order
from offbeat.config.resolve import resolve
from offbeat.core.argument_notation import flags_shown, in_python
from offbeat.core.errors import UnprovenMemoryOrder

SMALL: dict[str, Any] = {
    "steps": 64,
    "unroll_length": 16,
    "envs_per_actor": 4,
    "hidden_sizes": (8,),
    "progress": "none",
}
EVALUATES: dict[str, Any] = {"eval_every": 64, "eval_episodes": 1}


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"runtime": "processes", "eval_every": 0}, r"Pass runtime=\"threads\" and evaluator=\"inline\"$"),
        (EVALUATES, r"Pass evaluator=\"inline\"$"),
    ],
)
def test_a_run_on_another_processor_warns_if_its_processes_share_memory(tmp_path, monkeypatch, settings, remedy):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.warns(UnprovenMemoryOrder, match=f"on this processor, aarch64, it is not proven.*{remedy}"):
        offbeat.train("ppo", "CartPole-v1", run_dir=tmp_path / "run", preset="none", **SMALL, **settings)


@pytest.mark.parametrize(
    ("processor", "settings"),
    [("arm64", {**EVALUATES, "evaluator": "inline"}), ("arm64", {"eval_every": 0}), ("x86_64", EVALUATES)],
)
def test_a_run_without_such_processes_does_not_warn(tmp_path, monkeypatch, processor, settings):
    monkeypatch.setattr(platform, "machine", lambda: processor)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnprovenMemoryOrder)
        offbeat.train("ppo", "CartPole-v1", run_dir=tmp_path / "run", preset="none", **SMALL, **settings)


def test_a_run_with_several_devices_on_another_processor_is_told_to_leave_them_out_with_threads(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    config = resolve("ppo", "CartPole-v1", flags={"runtime": "processes", "devices": "cpu,cpu", "shards": 2})
    (warning,) = unproven_memory_order(config)
    assert in_python(str(warning)).endswith('Pass runtime="threads" without devices and evaluator="inline"')
    resolve("ppo", "CartPole-v1", flags={"runtime": "threads", "shards": 2})


@pytest.mark.parametrize(
    ("devices", "warns"), [("cpu,cpu", [r"Pass --set devices=cpu and --set evaluator=inline$"]), ("cpu", [])]
)
def test_a_run_on_ray_on_another_processor_warns_if_its_learners_share_memory(monkeypatch, devices, warns):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    flags = {"runtime": "ray", "devices": devices, "shards": 2, "eval_every": 0}
    with flags_shown():
        found = [str(each) for each in unproven_memory_order(resolve("ppo", "CartPole-v1", flags=flags))]
    assert [re.search(each, text) is not None for each, text in zip(warns, found, strict=True)] == [True] * len(warns)
