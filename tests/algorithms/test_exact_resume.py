"""A2C and IMPALA, stopped and resumed: the bits of a run that went through. PPO's are in tests/runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.reference.runs import untimed, weights_of

from offbeat.api.train import Run, resume, train

SMALL: dict[str, Any] = {
    "steps": 1536,
    "envs_per_actor": 4,
    "unroll_length": 8,
    "hidden_sizes": (16,),
    "learning_rate": 1e-2,
    "normalize_observations": True,
    "normalize_returns": True,
    "eval_every": 0,
    "checkpoint_every": 0,
}


def small_run(path: Path, algorithm: str, env: str, **settings: Any) -> Run:
    return train(algorithm, env, run_dir=path, **{**SMALL, **settings})


@pytest.mark.parametrize("algorithm", ["a2c", "impala"])
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("layout", [{"max_lag": 0}, {"max_lag": 2, "actors": 2}], ids=str)
def test_a_stopped_and_resumed_run_has_the_weights_and_figures_of_one_that_went_through(
    tmp_path, algorithm, env, layout
):
    whole = small_run(tmp_path / "whole", algorithm, env, **layout)
    stopped = small_run(tmp_path / "stopped", algorithm, env, **layout, stop_at=SMALL["steps"] // 2)
    halfway = weights_of(stopped.path)
    resumed = resume(stopped.path)

    assert (stopped.state, resumed.state) == ("interrupted", "finished")
    assert weights_of(resumed.path) == weights_of(whole.path) != halfway
    assert untimed(resumed.metrics) == untimed(whole.metrics)


@pytest.mark.parametrize("algorithm", ["a2c", "impala"])
def test_one_seed_gives_one_result_and_another_seed_another(tmp_path, algorithm):
    first, again, other = (
        weights_of(small_run(tmp_path / name, algorithm, "CartPole-v1", seed=seed).path)
        for name, seed in [("a", 1), ("b", 1), ("c", 2)]
    )
    assert first == again != other
