"""A learner that fails ends the run on its last checkpoint; an update that is not finite is refused, and goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.failing_ppo import FAILING
from tests.support.runs import CommandResult, lines_of, offbeat, record_pids, small_arguments, small_run, status_of
from tests.support.thorough import thorough

from offbeat.config import registry
from offbeat.run_directory.checkpoint import load

ENVS = ("tests.sample_envs.run_envs",)
RUNTIMES = pytest.mark.parametrize("runtime", ["serial", "processes", *thorough("threads")])
SETTINGS: dict[str, Any] = {"steps": 2048, "actors": 2, "max_lag": 1, "checkpoint_every": 256}


def assert_gone(pids: set[int], runtime: str) -> None:
    assert len(pids) == (2 if runtime == "processes" else 0)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@RUNTIMES
def test_a_learner_that_raises_fails_the_run_with_the_cause_and_leaves_no_actor(tmp_path, monkeypatch, runtime):
    run = tmp_path / "run"
    keep, pids = record_pids(run, "actor")
    with monkeypatch.context() as patch:
        patch.setitem(registry.ALGORITHMS, "ppo", FAILING)
        with pytest.raises(ArithmeticError, match="the advantage is imaginary") as raised:
            small_run(run, runtime=runtime, callbacks=[keep], **SETTINGS)
    assert f"offbeat resume {run}" in raised.value.__notes__[0]
    assert_gone(pids, runtime)
    assert status_of(run)["state"] == "failed"
    saved = load(run / "checkpoints" / "latest").policy["learning_step"]
    assert 0 < saved < 7, "weights in the middle of a learning step are not saved"
    assert offbeat("resume", run).code == 0  # with a learner that does not fail


# --- updates that are not finite ----------------------------------------------------------------------------


def train(env: str, runtime: str, **settings: Any) -> CommandResult:
    """Train in the current folder, in the run directory `run`, on rewards as they are."""
    settings = {**SETTINGS, "normalize_returns": False, "runtime": runtime, **settings}
    return offbeat(*small_arguments(Path("run"), env, imports=ENVS, **settings))


def assert_finite_weights() -> None:
    saved = load(Path("run/checkpoints/latest"))
    assert saved.state is not None
    arrays = [*saved.weights.values(), *saved.state["versions"].values()]  # trained, and published
    assert all(np.isfinite(array).all() for array in arrays)


@RUNTIMES
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_non_finite_updates_are_refused_and_counted_and_training_continues(tmp_path, monkeypatch, runtime):
    monkeypatch.chdir(tmp_path)
    said = train("runs/OverflowingForAWhile-v0", runtime)
    assert said.code == 0, said.err
    last = lines_of(Path("run"))[-1]
    assert 0 < last["updates_refused"] < last["updates"] == 8 * last["learning_step"]
    assert_finite_weights()


@pytest.mark.parametrize("runtime", ["serial", *thorough("threads", "processes")])
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_a_hundred_refused_updates_in_a_row_fail_the_run_which_can_be_resumed(tmp_path, monkeypatch, runtime):
    monkeypatch.chdir(tmp_path)
    said = train("runs/Overflowing-v0", runtime, steps=100_000)
    assert said.code == 1, said.err
    assert (
        "the last 100 updates of the policy were refused, because its loss or a gradient was NaN or infinity"
        in said.err
    )
    assert status_of(Path("run"))["state"] == "failed"
    assert_finite_weights()
    Path("MENDED").touch()
    assert offbeat("resume", "run", "--steps", 5000, "--progress", "none").code == 0
