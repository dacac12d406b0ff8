"""`train --steps 2N --stop-at N` and then `resume` is `train --steps 2N`, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.reference.runs import lines_of, offbeat, small_run, untimed, weights_of

from offbeat.api.train import Run, resume
from offbeat.core.errors import ConfigError

HALF = 1024
LAYOUTS = [  # (max_lag, unrolls_per_batch, actors)
    (0, 1, 1),
    (0, 2, 1),
    (0, 2, 2),
    (1, 1, 2),
    (1, 2, 2),
    (3, 1, 1),
    (3, 2, 2),
]
LAGGED: dict[str, Any] = {"max_lag": 1, "unrolls_per_batch": 2, "actors": 2}


def stop_from(env_steps: int) -> Callable[[dict[str, Any]], Any]:
    """Return a callback that asks for a stop at the first metrics line from `env_steps` on."""
    return lambda line: "stop" if line["env_steps"] >= env_steps else None


# --- bit for bit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", ["CartPole-v1", "HalfCheetah-v5"])
@pytest.mark.parametrize(("max_lag", "unrolls_per_batch", "actors"), LAYOUTS)
def test_a_stopped_and_resumed_run_has_the_weights_of_one_that_went_through(
    tmp_path, env, max_lag, unrolls_per_batch, actors
):
    layout = {"max_lag": max_lag, "unrolls_per_batch": unrolls_per_batch, "actors": actors, "steps": 2 * HALF}
    whole = small_run(tmp_path / "whole", env, **layout)
    stopped = small_run(tmp_path / "stopped", env, **layout, stop_at=HALF)
    halfway = weights_of(stopped.path)
    resumed = resume(stopped.path)

    assert (stopped.state, resumed.state) == ("interrupted", "finished")
    assert weights_of(resumed.path) == weights_of(whole.path) != halfway


def test_counters_episodes_and_figures_go_on_where_they_were(tmp_path):
    whole = small_run(tmp_path / "whole", **LAGGED, eval_every=700, eval_episodes=2)
    stopped = small_run(tmp_path / "stopped", **LAGGED, eval_every=700, eval_episodes=2, stop_at=HALF)
    resumed = resume(stopped.path)

    assert resumed.metrics["episodes"] > stopped.metrics["episodes"] > 0
    assert untimed(resumed.metrics) == untimed(whole.metrics)
    assert resumed.metrics["wall_time_s"] > stopped.metrics["wall_time_s"]
    assert lines_of(resumed.path)[-1] == resumed.metrics


def test_a_run_may_be_stopped_and_resumed_again_and_again(tmp_path):
    whole = small_run(tmp_path / "whole", **LAGGED)
    path = small_run(tmp_path / "parts", **LAGGED, callbacks=[stop_from(200)]).path
    for env_steps in (600, 1000, 1500):
        assert resume(path, callbacks=[stop_from(env_steps)]).state == "interrupted"
    assert resume(path).state == "finished"
    assert weights_of(path) == weights_of(whole.path)


@pytest.mark.parametrize("max_lag", [0, 1, 3])
def test_checkpoints_and_evaluations_on_the_way_change_nothing(tmp_path, max_lag):
    plain = small_run(tmp_path / "plain", max_lag=max_lag)
    often = small_run(tmp_path / "often", max_lag=max_lag, checkpoint_every=100, eval_every=300, eval_episodes=2)
    rarely = small_run(tmp_path / "rarely", max_lag=max_lag, checkpoint_every=900)
    assert weights_of(plain.path) == weights_of(often.path) == weights_of(rarely.path)


@pytest.mark.parametrize("env_groups", [2, 4])
def test_columns_that_are_stepped_in_groups_resume_exactly_too(tmp_path, env_groups):
    whole = small_run(tmp_path / "whole", "Pendulum-v1", env_groups=env_groups)
    stopped = small_run(tmp_path / "stopped", "Pendulum-v1", env_groups=env_groups, stop_at=HALF)
    assert weights_of(resume(stopped.path).path) == weights_of(whole.path)


@pytest.mark.parametrize(
    "settings",
    [
        {"learning_rate_schedule": "kl", "kl_target": 0.01},
        {"shared_trunk": True},
        {"exploration": "symmetric_kl", "entropy_coef": 0.01},
        {"recompute_advantages": True},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_adapted_rates_and_other_paths_of_learning_resume_exactly(tmp_path, settings):
    whole = small_run(tmp_path / "whole", **settings)
    stopped = small_run(tmp_path / "stopped", **settings, stop_at=HALF)
    assert weights_of(resume(stopped.path).path) == weights_of(whole.path)


def test_one_seed_gives_one_result_and_another_seed_another(tmp_path):
    first, again, other = (
        weights_of(small_run(tmp_path / name, seed=seed).path) for name, seed in [("a", 1), ("b", 1), ("c", 2)]
    )
    assert first == again != other


# --- what cannot be exact, and what is refused --------------------------------------------------------------


def test_envs_without_snapshots_begin_new_episodes_and_the_resume_says_so(tmp_path):
    path = tmp_path / "run"
    env, modules = "runs/Wave-v0", ("tests.reference.run_envs",)
    small_run(path, env, imports=modules, stop_at=HALF)
    said = offbeat("resume", path, "--progress", "lines")

    assert said.code == 0
    assert "new ones begin, at a marked cut" in said.err
    last = lines_of(path)[-1]
    assert last["env_steps"] >= 2 * HALF
    assert last["episode_length_mean"] == 20  # none was glued together at the cut, and none cut short there


def test_a_resume_with_snapshots_says_that_episodes_go_on(tmp_path):
    path = small_run(tmp_path / "run", stop_at=HALF).path
    assert "episodes under way go on where they were" in offbeat("resume", path, "--progress", "lines").err


def test_a_finished_run_is_resumed_only_with_more_steps(tmp_path):
    path = small_run(tmp_path / "run").path
    before = weights_of(path)
    with pytest.raises(ConfigError, match=r"nothing is left to do.*--steps"):
        resume(path)
    assert weights_of(path) == before

    more = resume(path, steps=3000)
    assert more.state == "finished"
    assert more.metrics["env_steps"] >= 3000
    assert weights_of(path) != before


@pytest.mark.parametrize("max_lag", [0, 1])
def test_extending_a_finished_run_continues_its_episodes_only_if_nothing_was_acted_beyond(tmp_path, max_lag):
    path = small_run(tmp_path / "run", max_lag=max_lag).path
    said = offbeat("resume", path, "--steps", 3000, "--progress", "lines")
    assert ("new ones begin, at a marked cut" in said.err) == (max_lag > 0)


def test_a_resumed_run_has_the_metrics_lines_of_one_that_went_through(tmp_path):
    whole = small_run(tmp_path / "whole", **LAGGED)
    resumed = resume(small_run(tmp_path / "parts", **LAGGED, stop_at=HALF).path)

    by_step = {line["learning_step"]: untimed(line) for line in lines_of(resumed.path)}
    assert by_step == {line["learning_step"]: untimed(line) for line in lines_of(whole.path)}
    assert list(by_step) == list(range(1, len(by_step) + 1))


def test_resuming_from_an_older_checkpoint_drops_the_lines_beyond_it(tmp_path):
    whole = small_run(tmp_path / "run", checkpoint_every=300, eval_every=300, eval_episodes=2)
    lines, weights = lines_of(whole.path), weights_of(whole.path)
    _take_back(whole)
    before = lines_of(whole.path)
    run = resume(whole.path)

    assert before == lines
    assert [untimed(line) for line in lines_of(run.path)] == [untimed(line) for line in lines]
    assert weights_of(run.path) == weights


def _take_back(run: Run) -> Path:
    """Let the oldest kept checkpoint be the latest, as if those after it had never been written."""
    checkpoints = run.path / "checkpoints"
    oldest = min(checkpoints.glob("step-*"))
    (checkpoints / "latest").unlink()
    (checkpoints / "latest").symlink_to(oldest.name)
    return oldest
