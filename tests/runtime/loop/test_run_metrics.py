"""The bottleneck report and the displayed status of a run, also after a resume."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.support.runs import SMALL

from offbeat.config.resolve import resolve
from offbeat.config.runtimes import RUNTIMES
from offbeat.metrics.counters import Counters
from offbeat.metrics.progress.status import Status
from offbeat.metrics.recorder import Recorder
from offbeat.metrics.speed_model import Topology
from offbeat.metrics.timings import Timings
from offbeat.runtime.loop.observer import Observer
from offbeat.runtime.loop.run_metrics import RunMetrics
from offbeat.runtime.loop.run_services import RunServices
from offbeat.runtime.parts import Parts
from offbeat.runtime.reporting import Reporting
from offbeat.runtime.runtimes import build


@pytest.fixture
def parts() -> Iterator[Parts]:
    with closing(build(resolve("ppo", "CartPole-v1", flags=SMALL))) as built:
        yield built


def metrics_of(parts: Parts, runtime: str = "processes", **services: Any) -> RunMetrics:
    """Return the metrics of a run as if it had this runtime, with two actors on four cores."""
    recorder = Recorder([], Topology(RUNTIMES[runtime], 2, 1, 4, max_lag=1))
    own = {"recorder": recorder, "reporting": Reporting(print, print), "observer": Observer()}
    usual = {**dict.fromkeys(RunServices._fields), **own}
    all_services: Any = SimpleNamespace(**usual | services)
    return RunMetrics(parts, all_services, tuple)


@pytest.mark.parametrize("restarts", [0, 1])
def test_the_report_of_a_resumed_run_names_only_the_restarts_since_the_resume(parts, restarts):
    shown: list[Status] = []
    metrics = metrics_of(parts, show_status=shown.append, signals=SimpleNamespace(received=None))
    saved = Counters(env_steps=100, updates=1, actor_restarts=1)
    metrics.restore(Recorder([]).state(Timings()), saved)
    metrics.start_clock()
    parts.timings.merge({"act": 1.0, "learn": 1.0, "wait/learner": 9.0})
    metrics.conclude(Counters(env_steps=200, updates=2, actor_restarts=1 + restarts))
    assert ("processes were restarted once" in metrics.bottleneck) == (restarts == 1)
    assert metrics.bottleneck.startswith(("actor-bound: ", "restarts: ")[restarts])
    metrics.show("saving", Counters(), metrics.bottleneck, None)
    assert (shown[0].actor_wait_fraction, shown[0].learner_wait_fraction) == (0.0, 0.9)


@pytest.mark.parametrize("limit", [None, 100.0])
def test_the_status_has_the_seconds_that_the_limit_of_time_leaves(limit):
    shown: list[Status] = []
    with closing(build(resolve("ppo", "CartPole-v1", flags={**SMALL, "time": limit}))) as parts:
        metrics = metrics_of(parts, show_status=shown.append, signals=SimpleNamespace(received=None))
        metrics.restore(Recorder([]).state(Timings()), Counters(wall_time_s=60.0))
        metrics.show("training", Counters(), "", None)
    left = shown[0].limit_s
    assert left is None if limit is None else left is not None and 0 < left <= 40.0


@pytest.mark.parametrize("updates", [0, 1])
def test_a_run_that_ends_in_its_warm_up_has_no_bottleneck(parts, updates):
    metrics = metrics_of(parts, "serial")
    parts.timings.merge({"act": 1.0, "learn": 1.0})
    metrics.conclude(Counters(env_steps=100, learning_step=1, updates=updates))
    assert metrics.bottleneck.startswith("serial: ") == (updates == 1)


def test_the_expected_time_of_an_evaluation_includes_the_networks_in_inference_workers(parts):
    metrics = metrics_of(parts)
    metrics.recorder.add_episodes(np.array([1.0], np.float32), np.array([10], np.int32))
    parts.timings.merge({"act": 1.0, "env": 2.0, "infer": 3.0})
    episodes = parts.config.run.evaluation_episodes(None)
    assert metrics.expected_evaluation_s(Counters(env_steps=60)) == pytest.approx(episodes * 10 * 6.0 / 60)


def test_a_resumed_run_shows_what_its_checkpoint_has_until_its_first_line(parts):
    saved = Recorder([])
    saved.add_episodes(np.array([3.0], np.float32), np.array([3], np.int32))
    saved.add_evaluation({"eval_return_mean": 8.0})
    saved.add_learning_step({"policy_loss": 0.5})
    saved.line(Counters(learning_step=1), Timings())
    shown: list[Status] = []
    metrics = metrics_of(parts, show_status=shown.append, signals=SimpleNamespace(received=None))
    metrics.restore(saved.state(Timings()), Counters())
    metrics.show("training", Counters(), "", None)
    known = (shown[0].episode_return_mean, shown[0].eval_return_mean, shown[0].best_eval_return_mean)
    assert known == (3.0, 8.0, 8.0)
    assert shown[0].losses == {"policy": 0.5}
