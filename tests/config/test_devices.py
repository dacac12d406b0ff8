"""Devices of several learners that cannot be used together are refused, with the remedy."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from offbeat.config.resolve import resolve
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError
from offbeat.runtime.devices import device_of, device_text

TWO: dict[str, Any] = {"runtime": "processes", "shards": 2, "devices": "cpu,cpu"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"devices": "cpu,cpu,cpu"},
            "devices is cpu,cpu,cpu, so each of 3 learners needs a shard of its own, but shards is 2",
        ),
        (
            {"devices": "cpu,cuda:0"},
            "devices is cpu,cuda:0, of 2 kinds .cpu, cuda., which do not compute the same bits",
        ),
        ({"device": "cuda"}, "device is cuda, but devices is cpu,cpu: leave --device out, or pass --device cpu"),
        ({"device": "cpu", "devices": "cuda:0,cuda:1"}, "device is cpu, but devices is cuda:0,cuda:1"),
        ({"learner_workers": 2}, "learner_workers is 2 and devices is cpu,cpu"),
        ({"split": "measured"}, "split is measured, which measures one learner, but devices is cpu,cpu"),
        ({"devices": ""}, "devices is empty"),
        ({"devices": "cpu,gpu"}, "devices is 'cpu,gpu', but .* that is cpu, cuda or cuda:N, or none is expected"),
    ],
)
def test_devices_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        resolve("ppo", "CartPole-v1", flags={**TWO, **settings})


@pytest.mark.parametrize("runtime", ["serial", "threads", "hogwild"])
def test_other_runtimes_refuse_devices(runtime):
    message = f"devices is .*, which is not supported by the {runtime} runtime: .* --runtime processes"
    with pytest.raises(ConfigError, match=message):
        resolve("ppo", "CartPole-v1", flags={"runtime": runtime, "devices": "cpu,cpu"})


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            0,
            "devices is cuda:1,cuda:3, but cuda:1 is not there: torch finds no CUDA GPU. Pass only devices",
        ),
        (1, "but cuda:1 is not there: torch finds 1 CUDA GPU, cuda:0"),
        (3, "but cuda:3 is not there: torch finds 3 CUDA GPUs, cuda:0 to cuda:2"),
    ],
)
def test_gpus_that_are_not_there_are_refused(monkeypatch, found, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: found > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    config = resolve("ppo", "CartPole-v1", flags={**TWO, "devices": "cuda:1,cuda:3"})
    with pytest.raises(ConfigError, match=message):
        device_of(config)


def test_each_learner_has_its_device_and_all_other_settings_of_the_run(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    config = resolve("sac", "Pendulum-v1", flags={**TWO, "devices": "cuda:0,cuda:1"})
    assert [device_of(config.of_learner(rank)) for rank in range(2)] == ["cuda:0", "cuda:1"]
    assert device_of(config) == "cuda:0"
    assert config.of_learner(1).runtime.shards == 2
    assert config.of_learner(1).threads == config.threads == 1


def test_the_cores_of_the_learner_are_dealt_out_to_all_learners():
    devices = ("cpu", "cpu")
    assert RuntimeConfig(devices=devices).cores_of_learner(1) is None
    cores = RuntimeConfig(devices=devices, learner_cores=(4, 5, 6))
    assert [cores.cores_of_learner(rank) for rank in range(2)] == [{4, 6}, {5}]
    assert [RuntimeConfig(devices=devices, learner_cores=(4,)).cores_of_learner(rank) for rank in range(2)] == [
        {4},
        {4},
    ]


def test_auto_layout_does_not_measure_with_several_devices():
    assert resolve("ppo", "CartPole-v1", flags={"runtime": "processes"}).runtime.split == "measured"
    assert resolve("ppo", "CartPole-v1", flags=TWO).runtime.split == "given"


@pytest.mark.parametrize(
    ("settings", "found", "text"),
    [
        ({}, False, "cpu (auto: no GPU found)"),
        ({}, True, "cpu (auto: faster for small networks; --device cuda uses the GPU)"),
        ({"device": "cpu"}, True, "cpu"),
        ({"device": "cuda"}, True, "cuda"),
        (TWO, True, "cpu,cpu"),
    ],
)
def test_the_device_that_auto_chooses_is_shown_with_the_reason(settings, found, text, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: found)
    assert device_text(resolve("ppo", "CartPole-v1", flags=settings)) == text
