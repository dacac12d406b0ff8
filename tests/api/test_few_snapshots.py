"""A league warns, before it starts, that the run ends before it takes a second snapshot to play against."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import offbeat
from offbeat.core.errors import FewSnapshots

GAME = "offbeat.envs.testing.games:RockPaperScissors"
SMALL: dict[str, Any] = {
    "env_kwargs": {"rounds": 1000}, "envs_per_actor": 4, "hidden_sizes": (8,), "eval_every": 0, "runtime": "serial",
    "progress": "none", "league.snapshot_every": 4,
}  # fmt: skip
UNROLLS: dict[str, Any] = {"unroll_length": 16, "minibatch_size": 32}
REPLAY: dict[str, Any] = {"chunk_length": 16, "warmup": 40, "capacity": 500, "batch_size": 8}
TWICE: dict[str, Any] = {"passes": 2, "epochs": 1}


@pytest.mark.parametrize(
    ("algorithm", "settings", "learning_steps", "warns"),
    [
        ("ppo", {"steps": 256}, 4, True),
        ("ppo", {"steps": 257}, 5, False),
        ("ppo", {"steps": 512, "unrolls_per_batch": 2}, 4, True),
        ("ppo", {"steps": 128, **TWICE}, 3, True),
        ("ppo", {"steps": 129, **TWICE}, 5, False),
        ("dqn", {"steps": 256}, 4, True),
        ("dqn", {"steps": 257}, 5, False),
        ("ppo", {"steps": 256, "league.opponents": "latest"}, 4, False),
        ("ppo", {"steps": 256, "league.latest_ratio": 1}, 4, False),
        ("ppo", {"steps": 512, "stop_at": 128}, 2, False),
    ],
    ids=str,
)
def test_a_league_warns_if_the_run_ends_before_its_second_snapshot_can_be_met(
    tmp_path, algorithm, settings, learning_steps, warns
):
    settings = {**SMALL, **(REPLAY if algorithm == "dqn" else UNROLLS), **settings}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run = offbeat.train(algorithm, GAME, run_dir=tmp_path / "run", **settings)
    assert run.metrics["learning_step"] == learning_steps
    messages = [str(warning.message) for warning in found if warning.category is FewSnapshots]
    assert len(messages) == warns
    for message in messages:
        assert f"about {learning_steps} learning steps, and a snapshot is taken every 4 of them" in message
        assert 'pass league={"snapshot_every": 1}, or more steps' in message


def test_a_league_whose_only_opponents_are_frozen_does_not_warn_of_snapshots(tmp_path):
    source = tmp_path / "source"
    offbeat.train("ppo", GAME, run_dir=source, **{**SMALL, **UNROLLS, "steps": 64, "league.opponents": "latest"})
    frozen = {"agents": "player_1", "train": False, "init_from": source}
    policies = {"learns": {"agents": "player_0"}, "frozen": frozen}
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewSnapshots)
        offbeat.train("ppo", GAME, run_dir=tmp_path / "run", policies=policies, steps=256, **SMALL, **UNROLLS)
