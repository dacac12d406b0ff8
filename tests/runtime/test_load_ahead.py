"""Data that is loaded ahead, in a thread, changes no bit, and a thread that fails or hangs ends the run.

The device is a stand-in for a GPU, tests/support/copying_device.py: a batch that is used too early or too late is
seen in the weights.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.support.checks import assert_parts_are_the_whole
from tests.support.copying_device import CopyingBuffers, FailingBuffers
from tests.support.matrix import CARTS
from tests.support.replay_runs import small_sac
from tests.support.runs import actors_of, lines_of, offbeat, small_arguments, small_run, weights_of
from tests.support.thorough import thorough

from offbeat.api.train import Run
from offbeat.config.config_file import load
from offbeat.core.errors import ConfigError
from offbeat.core.process import threads
from offbeat.workers import staging

ON_POLICY: dict[str, Any] = {"steps": 384, "unroll_length": 8, "lag": "exact"}
ON_A_REPLAY: dict[str, Any] = {
    "steps": 100,
    "warmup": 40,
    "utd_ratio": "1",
    "max_ahead": 2,
    "actors": 2,
    "lag": "exact",
}
PRIORITIZED = {"prioritized": True, "priority_delay": 2}
CORE = {"core": "gru", "core_size": 8}
POLICIES = {"cat": {"agents": "cart_1"}, "dog": {"agents": "*", "settings": {"learning_rate": 1e-4}}}


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setitem(staging.BUFFERS, "cpu", CopyingBuffers)


class Cell(NamedTuple):
    """A run in serial, and another in two parts that loads ahead."""

    algorithm: str
    env: str
    ahead: int
    first: str
    """The runtime of the first part ..."""
    second: str
    """... and of the second."""
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def train(self, path: Any, **changes: Any) -> Run:
        on_a_replay = self.algorithm in ("sac", "dqn")
        start: Callable[..., Run] = small_sac if on_a_replay else small_run
        layout = ON_A_REPLAY if on_a_replay else ON_POLICY
        return start(path, self.env, algorithm=self.algorithm, **{**layout, **self.more}, **changes)


CELLS = [
    Cell("ppo", "CartPole-v1", 3, "threads", "processes", {"max_lag": 2, "actors": 2, "unrolls_per_batch": 1}),
    # The run is cut where batches have passes to come: they are loaded again.
    Cell("ppo", "CartPole-v1", 2, "threads", "processes", {"max_lag": 3, "resident_batches": 2, "passes": 3}),
    Cell("ppo", CARTS, 1, "processes", "processes", {"max_lag": 1, "policies": POLICIES}),
    Cell("sac", "Pendulum-v1", 3, "processes", "threads"),
    Cell("sac", "Pendulum-v1", 2, "threads", "processes", PRIORITIZED),
    Cell("dqn", "CartPole-v1", 1, "threads", "processes", {**CORE, "batch_size": 12, "n_step": 1}),
]


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: "-".join(map(str, cell[:-1])))
def test_a_run_that_loads_ahead_is_resumed_and_has_the_weights_and_metrics_of_serial(cell, tmp_path):
    _, run = assert_parts_are_the_whole(cell.train, cell.first, cell.second, tmp_path, load_ahead=cell.ahead)
    assert load(run.path / "config.toml").runtime.load_ahead == cell.ahead
    assert lines_of(run.path)[-1]["learner_load_wait_time_ms"] > 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("offbeat loader")]


def test_a_device_with_its_own_memory_has_the_bits_of_one_that_shares_it(tmp_path, monkeypatch):
    shared = small_run(tmp_path / "shared", **ON_POLICY, max_lag=1, passes=2)
    monkeypatch.setitem(staging.BUFFERS, "cpu", CopyingBuffers)
    assert weights_of(small_run(tmp_path / "own", **ON_POLICY, max_lag=1, passes=2).path) == weights_of(shared.path)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("runtime", ["threads", "processes"])
def test_a_device_that_copies_is_loaded_ahead_by_default_and_the_lag_keeps_its_bound(tmp_path, runtime):
    run = small_run(tmp_path / "run", runtime=runtime, steps=512, max_lag=1, actors=2, log_every=128)
    lines = lines_of(run.path)
    assert lines[-1]["learner_load_wait_time_ms"] > 0
    assert lines[-1]["time_load"] > 0
    assert all(line["policy_lag_max"] <= 1 for line in lines)


def test_without_a_loader_there_is_no_wait_for_it(tmp_path):
    line = small_run(tmp_path / "run", runtime="threads", steps=256).metrics
    assert line["learner_load_wait_time_ms"] == line["time_load"] == 0
    assert line["learner_load_time_ms"] > 0


# --- errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", ["threads", *thorough("processes")])
@pytest.mark.parametrize(("hangs_s", "message"), [(0.0, "the device is full"), (5.0, "the loader made no progress")])
def test_a_loader_that_fails_or_hangs_ends_the_run_with_the_reason(tmp_path, monkeypatch, runtime, hangs_s, message):
    monkeypatch.setitem(staging.BUFFERS, "cpu", FailingBuffers)
    monkeypatch.setattr(FailingBuffers, "loads", 0)
    monkeypatch.setattr(FailingBuffers, "hangs_s", hangs_s)
    monkeypatch.setattr(threads, "CLOSE_S", 0.1)
    settings = {"runtime": runtime, "max_lag": 1, "stall_timeout_s": 1.0, "load_ahead": 1, "checkpoint_every": 64}
    said = offbeat(*small_arguments(tmp_path / "run", **settings))
    assert said.code == 1
    assert message in said.err
    assert (tmp_path / "run" / "checkpoints" / "latest" / "weights.safetensors").exists()


@pytest.mark.usefixtures("device")
def test_an_actor_that_is_killed_takes_its_ticket_again_while_the_loader_waits_for_it(tmp_path):
    killed: list[int] = []

    def kill(line: dict[str, Any]) -> None:
        if line["env_steps"] >= 512 and not killed:
            killed.append(actors_of(tmp_path / "run")[0])
            os.kill(killed[0], signal.SIGKILL)

    layout: dict[str, Any] = {"runtime": "processes", "actors": 2, "max_lag": 2, "load_ahead": 2, "log_every": 128}
    run = small_run(tmp_path / "run", callbacks=[kill], **layout)
    assert (run.state, run.metrics["actor_restarts"]) == ("finished", 1)
    assert all(line["policy_lag_max"] <= 2 for line in lines_of(run.path))


# --- priorities ---------------------------------------------------------------------------------------------


def test_priorities_that_are_used_later_change_the_result(tmp_path):
    at_once, later = (
        weights_of(small_sac(tmp_path / str(delay), **ON_A_REPLAY, prioritized=True, priority_delay=delay).path)
        for delay in (0, 2)
    )
    assert at_once != later


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "settings", "message"),
    [
        (small_run, {"load_ahead": 65, "runtime": "threads"}, "load_ahead"),
        (small_run, {"load_ahead": 1, "runtime": "serial"}, "load_ahead is 1, which is not supported by the serial"),
        (small_run, {"load_ahead": 1, "runtime": "hogwild"}, "load_ahead is 1, which is not supported by the hogwild"),
        (
            small_sac,
            {"load_ahead": 3, "runtime": "threads", **PRIORITIZED},
            "load_ahead is 3, but with prioritized and priority_delay = 2 only 2 minibatches.*priority_delay=3",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(start, settings, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        start(tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()
