"""Keys of inference workers that contradict each other, or what is there, are refused with the remedy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from offbeat.api.train import train
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.runtime.devices import require_inference_devices

WORKER: dict[str, Any] = {"inference": "worker", "runtime": "processes", "actors": 2}
EXACT = WORKER | {"lag": "exact"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"inference_workers": 2}, "inference_workers is given, but inference is actor: pass --set inference=worker"),
    (WORKER | {"inference_workers": 3}, "inference_workers is 3, but each serves at least one of 2 actors"),
    (
        WORKER | {"inference_device": "cpu,cpu"},
        "names 2 devices for 1 inference workers: pass --set inference_workers=2",
    ),
    (WORKER | {"inference_device": "tpu"}, "each item text that is cpu, cuda or cuda:N"),
    (
        EXACT | {"inference_workers": 2, "inference_device": "cuda,cpu"},
        "devices of 2 kinds, cpu and cuda, which round differently, but lag is exact",
    ),
    (
        EXACT | {"inference_batching": "arrival"},
        "depends on timing, but lag is exact: pass --set inference_batching=fixed",
    ),
    (WORKER | {"inference_timeout_ms": 1}, "inference_batching is fixed: pass --set inference_batching=arrival too"),
    (WORKER | {"inference_max_requests": 2}, "inference_batching is fixed: pass --set inference_batching=arrival too"),
    (
        WORKER | {"runtime": "serial", "inference_batching": "arrival"},
        "inference_batching is arrival, which is not supported by the serial runtime",
    ),
    (
        {"inference": "worker", "runtime": "hogwild"},
        "inference is worker, which is not supported by the hogwild runtime",
    ),
    (WORKER | {"league": {}}, "inference is worker, but in a league each actor also acts with frozen opponents"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=lambda each: "" if isinstance(each, str) else str(each))
def test_keys_of_inference_that_contradict_each_other_are_refused_with_the_remedy(settings, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        resolve("ppo", "CartPole-v1", flags=settings)


def test_an_inference_device_that_is_not_there_is_refused_before_the_directory_is_made(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    settings = WORKER | {"inference_device": "cuda:1"}
    with pytest.raises(ConfigError, match="inference_device is cuda:1, but cuda:1 is not there: torch finds 1 CUDA"):
        train("ppo", "CartPole-v1", run_dir=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_an_inference_device_that_torch_counts_but_cannot_use_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="torch finds no CUDA GPU"):
        require_inference_devices(resolve("ppo", "CartPole-v1", flags=WORKER | {"inference_device": "cuda:0"}))
