"""A run with many more actors or workers than cores, or with large images, says so when it starts."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from tests.support.runs import SMALL, offbeat, small_arguments
from torch import Tensor, nn

from offbeat.api.running import start_hints
from offbeat.config.resolve import resolve
from offbeat.core.types import Leaf
from offbeat.runtime.runtimes import build


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    monkeypatch.setattr(start_hints, "usable_cores", lambda: 2)


def hint(**flags: Any) -> str:
    return start_hints.process_hint(resolve("ppo", "CartPole-v1", flags={**SMALL, "unrolls_per_batch": 9, **flags}))


def test_more_than_four_actors_or_workers_per_core_get_a_hint():
    assert "9 actors share 2 cores" in hint(runtime="processes", actors=9)
    assert "fewer --actors with more --envs-per-actor are as fast" in hint(runtime="processes", actors=9)
    assert "fewer --workers are as fast" in hint(runtime="hogwild", workers=9)


@pytest.mark.parametrize(
    "flags",
    [
        {"runtime": "processes", "actors": 8},
        {"runtime": "hogwild", "workers": 8},
        {"runtime": "threads", "actors": 9},
        {"runtime": "ray", "actors": 9},
    ],
    ids=lambda flags: flags["runtime"],
)
def test_fewer_processes_and_those_that_are_not_on_this_machine_get_none(flags):
    assert hint(**flags) == ""


class Mean(nn.Module):
    """An encoder without weights, of whatever size an image has."""

    def __init__(self, _leaf: Leaf) -> None:
        super().__init__()

    def forward(self, observations: Tensor) -> Tensor:
        return observations.flatten(1).float().mean(1, keepdim=True)


def test_large_images_get_a_hint_of_what_makes_them_smaller():
    flags: dict[str, Any] = {**SMALL, "encoder": f"{__name__}:Mean", "normalize_observations": False}
    config = resolve("ppo", "offbeat/Pixels-v0", flags=flags, assignments={"env.kwargs.size": 130})
    with closing(build(config)) as parts:
        hints = "\n".join(start_hints.start_hints(parts))
    assert "130 x 130 pixels: --set image_size=84 grayscale=true makes them 2 times smaller" in hints


def test_the_hint_is_shown_when_the_run_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(start_hints, "MOST_PER_CORE", 0)
    said = offbeat(*small_arguments(tmp_path / "run", steps=64, runtime="processes", actors=1))
    assert said.code == 0, said.err
    assert "1 actors share 2 cores" in said.err
