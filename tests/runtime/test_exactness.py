"""With `lag = "exact"` the bits follow from the config alone: threads and processes give those of serial.

Here are the layouts; images, cores, trees and masks are in tests/chaos/test_matrix.py.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.reference.marks import more
from tests.reference.replay_runs import SMALL_SAC, assert_ratio, small_sac
from tests.reference.runs import Started, lines_of, offbeat, small_arguments, small_run, untimed, weights_of

from offbeat.api.train import Run, resume
from offbeat.config.registry import ALGORITHMS
from offbeat.config.resolve import load

STEPS = 1536
ENVS = "tests.reference.run_envs"
CURIOUS = "tests.reference.curious_envs"
BOTH = ("threads", "processes")


class Cell(NamedTuple):
    algorithm: str
    env: str
    max_lag: int
    actors: int
    unrolls_per_batch: int
    stop_in: str
    """In this runtime another run of the cell is stopped ..."""
    resume_in: str
    """... and in this one it goes on."""
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed

    @property
    def settings(self) -> dict[str, Any]:
        layout = {"max_lag": self.max_lag, "actors": self.actors, "unrolls_per_batch": self.unrolls_per_batch}
        fixed = {"algorithm": self.algorithm, "env": self.env, "steps": STEPS, "lag": "exact", "unroll_length": 8}
        return {**fixed, **layout, **self.more}

    def run(self, path: Path, **changes: Any) -> Run:
        return small_run(path, **self.settings, **changes)


class ReplayCell(NamedTuple):
    """The same for an algorithm on a replay."""

    algorithm: str
    env: str
    max_ahead: int
    actors: int
    stop_in: str
    resume_in: str
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def run(self, path: Path, **changes: Any) -> Run:
        layout = {"max_ahead": self.max_ahead, "actors": self.actors, "lag": "exact", "utd_ratio": "1/2"}
        return small_sac(path, self.env, algorithm=self.algorithm, **layout, **self.more, **changes)


CORE = {"core": "gru", "core_size": 8}
TOLD = {
    "info_metrics": ("place", "success", "sign/positive", "progress", "wind"),
    "curriculum": ("wind 0:0 0.2:0 0.7:0.5",),
    "imports": (CURIOUS,),
}
WIDE = {"hidden_sizes": (256, 256), "envs_per_actor": 16}
CELLS = [
    Cell("ppo", "CartPole-v1", 0, 1, 1, "serial", "threads"),
    Cell("ppo", "CartPole-v1", 3, 3, 3, "processes", "processes"),
    Cell("impala", "CartPole-v1", 1, 1, 2, "threads", "serial", {"decorrelate": True}),
    Cell("impala", "Pendulum-v1", 3, 2, 1, "processes", "processes", {"env_groups": 2}),
    # Wide enough that OpenBLAS really uses both threads.
    Cell("ppo", "CartPole-v1", 1, 1, 1, "serial", "processes", {"learner_threads": 2, **WIDE}),
    # Envs that report numbers, and are told how far the training has come.
    Cell("ppo", "curious/Learning-v0", 1, 2, 1, "processes", "threads", {**TOLD, "decorrelate": True}),
    # Moments in which there is nothing to decide, which a core sees too.
    Cell("ppo", "curious/Waiting-v0", 1, 2, 1, "serial", "processes", {"imports": (CURIOUS,)}),
]
MORE_CELLS = [
    Cell("ppo", "CartPole-v1", 1, 2, 2, "threads", "threads"),
    Cell("ppo", "Pendulum-v1", 0, 2, 2, "threads", "processes"),
    Cell("ppo", "Pendulum-v1", 1, 3, 2, "processes", "serial"),
    Cell("ppo", "Pendulum-v1", 3, 1, 2, "serial", "processes"),
    Cell("impala", "CartPole-v1", 0, 3, 3, "processes", "threads"),
    Cell("impala", "Pendulum-v1", 1, 2, 3, "threads", "processes"),
    Cell("a2c", "CartPole-v1", 3, 1, 1, "processes", "threads"),
    Cell("a2c", "CartPole-v1", 0, 2, 3, "threads", "threads", {"learner_threads": 2}),
    Cell("a2c", "Pendulum-v1", 1, 3, 2, "serial", "processes", {"learner_threads": 2, "env_groups": 4}),
    Cell("a2c", "Pendulum-v1", 3, 3, 1, "processes", "serial", {"decorrelate": True}),
    # What more features of envs and networks meet: all of them, one by one, are in the matrix.
    Cell("impala", "Pendulum-v1", 1, 2, 1, "threads", "processes", {"core": "lstm", "core_size": 8}),
    Cell("ppo", "runs/Locks-v0", 1, 2, 1, "threads", "processes", {"decorrelate": True, "imports": (ENVS,)}),
    Cell("impala", "curious/WaitingCue-v0", 1, 2, 2, "threads", "serial", {**CORE, "imports": (CURIOUS,)}),
    Cell("a2c", "curious/LearningVector-v0", 2, 2, 2, "serial", "processes", {**TOLD, "info_metrics": ("age", "wind")}),
]


SOFT = {"exploration_fraction": 0.9, "ema_rate": 0.05, "ema_every": 1}
COPIED = {"exploration_fraction": 0.7, "ema_rate": 1.0, "ema_every": 7, "n_step": 3, "normalize_observations": True}
REMEMBERS = {"core_size": 8, "batch_size": 24, "burn_in": 6, "n_step": 3}
REPLAY_CELLS = [
    ReplayCell("sac", "Pendulum-v1", 6, 3, "serial", "processes", {"policy_delay": 2, "learner_threads": 2}),
    ReplayCell("dqn", "CartPole-v1", 4, 2, "processes", "serial", COPIED),
    # Sequences, whose states go on over tickets and stops.
    ReplayCell("dqn", "CartPole-v1", 2, 2, "processes", "threads", {**REMEMBERS, "core": "gru", "prioritized": True}),
]
MORE_REPLAY_CELLS = [
    ReplayCell("sac", "Pendulum-v1", 0, 1, "serial", "threads", {"n_step": 3, "max_grad_norm": 1.0}),
    ReplayCell("sac", "Pendulum-v1", 1, 1, "threads", "processes", {"prioritized": True}),
    ReplayCell("sac", "Pendulum-v1", 2, 2, "processes", "serial", {"normalize_observations": True}),
    ReplayCell("sac", "CartPole-v1", 3, 2, "processes", "threads", {"prioritized": True, "n_step": 2}),
    ReplayCell("dqn", "CartPole-v1", 1, 2, "threads", "processes", {**SOFT, "prioritized": True}),
    ReplayCell("sac", "Pendulum-v1", 3, 2, "serial", "processes", {**REMEMBERS, "core": "lstm"}),
    ReplayCell("dqn", "curious/Learning-v0", 3, 2, "threads", "processes", {**TOLD, "n_step": 2}),
]


def test_the_cells_cover_every_algorithm():
    assert {cell.algorithm for cell in CELLS + MORE_CELLS + REPLAY_CELLS + MORE_REPLAY_CELLS} == set(ALGORITHMS)


def figures_of(run: Run) -> dict[int, dict[str, Any]]:
    """Return what the metrics lines say that does not depend on the clock, by learning step."""
    return {line["learning_step"]: untimed(line) for line in lines_of(run.path)}


@pytest.mark.parametrize(
    "cell",
    [*CELLS, *REPLAY_CELLS, *more(*MORE_CELLS, *MORE_REPLAY_CELLS)],
    ids=lambda cell: "-".join(map(str, cell[:-1])),
)
def test_all_runtimes_give_the_same_bits_and_the_same_figures(tmp_path, cell):
    serial = cell.run(tmp_path / "serial")
    for runtime in BOTH:
        run = cell.run(tmp_path / runtime, runtime=runtime)
        assert weights_of(run.path) == weights_of(serial.path), runtime
        assert figures_of(run) == figures_of(serial), runtime
    stopped = cell.run(tmp_path / "stopped", runtime=cell.stop_in, stop_at=serial.metrics["env_steps"] // 2)
    assert weights_of(stopped.path) != weights_of(serial.path)
    resumed = resume(stopped.path, runtime=cell.resume_in)
    assert (stopped.state, resumed.state) == ("interrupted", "finished")
    assert weights_of(resumed.path) == weights_of(serial.path)
    assert figures_of(resumed) == figures_of(serial)
    assert load(resumed.path / "config.toml").runtime.runtime == cell.resume_in
    if isinstance(cell, ReplayCell):
        assert_ratio(serial.path, Fraction(1, 2), SMALL_SAC["warmup"])


@pytest.mark.parametrize("runtime", BOTH)
def test_checkpoints_and_evaluations_on_the_way_change_nothing(tmp_path, runtime):
    layout: dict[str, Any] = {"max_lag": 2, "actors": 2, "lag": "exact"}
    plain = small_run(tmp_path / "plain", **layout)
    often = small_run(
        tmp_path / "often", **layout, runtime=runtime, checkpoint_every=200, eval_every=400, eval_episodes=2
    )
    assert weights_of(plain.path) == weights_of(often.path)


@pytest.mark.parametrize("runtime", BOTH)
def test_they_change_nothing_on_a_replay_either(tmp_path, runtime):
    layout: dict[str, Any] = {"max_ahead": 3, "actors": 2, "lag": "exact", "chunk_length": 2, "prioritized": True}
    plain = small_sac(tmp_path / "plain", **layout)
    often = small_sac(
        tmp_path / "often", **layout, runtime=runtime, checkpoint_every=40, eval_every=100, eval_episodes=1
    )
    assert weights_of(plain.path) == weights_of(often.path)


@pytest.mark.parametrize("runtime", BOTH)
def test_envs_of_irregular_speed_change_nothing(tmp_path, runtime):
    settings: dict[str, Any] = {"imports": (ENVS,), "steps": 768, "lag": "exact", "max_lag": 1, "actors": 3}
    serial = small_run(tmp_path / "serial", "runs/Irregular-v0", **settings)
    irregular = small_run(tmp_path / "run", "runs/Irregular-v0", **settings, runtime=runtime)
    assert weights_of(irregular.path) == weights_of(serial.path)


@pytest.mark.parametrize("runtime", BOTH)
def test_they_change_nothing_on_a_replay_that_actors_are_far_ahead_of(tmp_path, runtime):
    layout: dict[str, Any] = {"imports": (ENVS,), "lag": "exact", "max_ahead": 9, "actors": 3, "utd_ratio": "1/8"}
    serial = small_sac(tmp_path / "serial", "runs/Irregular-v0", **layout)
    irregular = small_sac(tmp_path / "run", "runs/Irregular-v0", **layout, runtime=runtime)
    assert weights_of(irregular.path) == weights_of(serial.path)


@pytest.mark.parametrize("runtime", BOTH)
def test_a_run_is_stopped_and_resumed_again_and_again_across_runtimes(tmp_path, runtime):
    layout: dict[str, Any] = {"max_lag": 1, "actors": 2, "lag": "exact"}
    whole = small_run(tmp_path / "whole", **layout)
    path = small_run(tmp_path / "run", **layout, runtime=runtime, callbacks=[stop_from(300)]).path
    for env_steps, other in ((700, "serial"), (1100, runtime), (1500, "threads")):
        assert resume(path, runtime=other, callbacks=[stop_from(env_steps)]).state == "interrupted"
    assert resume(path, runtime=runtime).state == "finished"
    assert weights_of(path) == weights_of(whole.path)


def stop_from(env_steps: int) -> Any:
    return lambda line: "stop" if line["env_steps"] >= env_steps else None


def test_settings_that_mean_nothing_in_another_runtime_are_dropped_when_it_resumes_there(tmp_path):
    layout: dict[str, Any] = {"max_lag": 1, "actors": 2, "lag": "exact"}
    whole = small_run(tmp_path / "whole", **layout)
    only: dict[str, Any] = {"runtime": "processes", "restart_budget": 2, "start_together": 1, "step_timeout_s": 50}
    path = small_run(tmp_path / "run", **layout, **only, stop_at=700).path
    assert resume(path, runtime="serial").state == "finished"
    assert weights_of(path) == weights_of(whole.path)
    kept = load(path / "config.toml").runtime
    assert (kept.runtime, kept.restart_budget, kept.start_together) == ("serial", 2, None)


# --- as typed, where nobody says how many threads there are ---------------------------------------------------

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def test_the_bits_are_the_same_from_the_command_line_with_no_thread_variable_set(tmp_path, monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    layout: dict[str, Any] = {"max_lag": 1, "actors": 2, "lag": "exact", "hidden_sizes": (64, 64)}
    for runtime in ("serial", *BOTH):
        path = tmp_path / runtime
        said = Started([*small_arguments(path, **layout), f"runtime={runtime}"], tmp_path, threads=None).end()
        assert said.code == 0, said
    assert weights_of(tmp_path / "serial") == weights_of(tmp_path / "threads") == weights_of(tmp_path / "processes")


def test_resume_on_the_command_line_takes_another_runtime(tmp_path):
    layout: dict[str, Any] = {"max_lag": 1, "actors": 2, "lag": "exact"}
    whole = small_run(tmp_path / "whole", **layout)
    path = small_run(tmp_path / "run", **layout, stop_at=700).path
    assert offbeat("resume", path, "--runtime", "processes", "--progress", "none").code == 0
    assert weights_of(path) == weights_of(whole.path)


# --- bounded ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", BOTH)
@pytest.mark.parametrize("max_lag", [0, 1, 3])
def test_no_row_is_older_than_max_lag_however_irregular_the_envs_are(tmp_path, runtime, max_lag):
    layout: dict[str, Any] = {"max_lag": max_lag, "actors": 2, "unrolls_per_batch": 2}
    run = small_run(tmp_path / "run", "runs/Irregular-v0", imports=(ENVS,), steps=2048, runtime=runtime, **layout)
    lines = lines_of(run.path)
    assert len(lines) >= 2048 // (2 * 4 * 16)
    for line in lines:
        assert 0 <= line["policy_lag_min"] <= line["policy_lag_mean"] <= line["policy_lag_max"] <= max_lag
        assert line["ratio_max_deviation_first"] < 1e-5


@pytest.mark.parametrize("runtime", BOTH)
def test_strictly_on_policy_is_what_max_lag_0_is_in_every_runtime(tmp_path, runtime):
    layout: dict[str, Any] = {"max_lag": 0, "actors": 2}
    run = small_run(tmp_path / "run", **layout, runtime=runtime)
    serial = small_run(tmp_path / "serial", **layout)
    for line in lines_of(run.path):
        assert line["policy_lag_max"] == 0
        assert line["effective_sample_size"] == pytest.approx(1, abs=1e-5)
    assert weights_of(run.path) == weights_of(serial.path), "there is only one version that may act: it is exact too"


@pytest.mark.parametrize("runtime", BOTH)
@pytest.mark.parametrize("max_lag", [0, 2])
def test_a_run_ends_after_the_batch_that_reaches_steps_and_says_what_was_acted_beyond(tmp_path, runtime, max_lag):
    rows = 2 * 4 * 16
    layout: dict[str, Any] = {"max_lag": max_lag, "actors": 2, "steps": 10 * rows}
    run = small_run(tmp_path / "run", "Pendulum-v1", runtime=runtime, **layout)  # 160 rows: no episode ends in them
    assert (run.state, run.metrics["env_steps"]) == ("finished", 10 * rows)
    assert run.metrics["acted_beyond"] in [batches * rows for batches in range(max_lag + 1)]


@pytest.mark.parametrize("runtime", BOTH)
def test_a_bounded_run_is_stopped_and_resumed_with_its_episodes(tmp_path, runtime):
    path = tmp_path / "run"
    layout: dict[str, Any] = {"max_lag": 1, "actors": 2, "runtime": runtime}
    said = offbeat(*small_arguments(path, stop_at=700, **layout))
    assert said.out.startswith("interrupted: stopped at --stop-at 700")
    assert 700 <= lines_of(path)[-1]["env_steps"] <= 700 + 2 * 128
    assert lines_of(path)[-1]["acted_beyond"] == 0
    said = offbeat("resume", path, "--progress", "lines")
    assert said.code == 0
    assert "episodes under way go on where they were" in said.err
    for line in lines_of(path):
        assert line["policy_lag_max"] <= 1


@pytest.mark.parametrize("runtime", BOTH)
def test_every_figure_of_who_waits_for_whom_is_told(tmp_path, runtime):
    run = small_run(tmp_path / "run", actors=2, max_lag=1, runtime=runtime)
    for line in lines_of(run.path):
        assert 0 <= line["actor_wait_fraction"] <= 1
        assert 0 <= line["learner_wait_fraction"] <= 1
        assert 0.5 <= line["slots_filled"] <= 1
    for name in ("time_act", "time_env", "time_learn"):
        assert max(line[name] for line in lines_of(run.path)) > 0, name
    for name in ("publish_s", "env_stall_max_s", "actor_wait_s", "learner_wait_s"):
        assert run.metrics[name] > 0, name
