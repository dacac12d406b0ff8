"""Layouts are compared by their measured speeds; what the costs predict stands beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.runs import SMALL

from offbeat.config.config import Config
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError, EnvFailed, RunFailed
from offbeat.metrics.expectation import FACTOR
from offbeat.tuning.layouts import (
    FailedLayout,
    LayoutComparison,
    MeasuredLayout,
    advice,
    compare,
    concurrent_config,
    failures,
    layout_of,
    misprediction,
    serial_config,
    table,
)

SERIAL = MeasuredLayout("serial", 1, 32, 1, predicted_sps=26_000, achieved_sps=25_000)
PROCESSES = MeasuredLayout("processes", 2, 16, 1, predicted_sps=53_600, achieved_sps=50_000)


def config(algorithm: str = "ppo", env: str = "CartPole-v1", **settings: Any) -> Config:
    return resolve(algorithm, env, flags={**(SMALL if algorithm == "ppo" else {}), **settings})


def reached(sps: float) -> LayoutComparison:
    """Return the comparison of a run in processes that reached a speed with serial."""
    run = replace(PROCESSES, achieved_sps=sps)
    return LayoutComparison(run, SERIAL, run)


# --- which layouts are compared -----------------------------------------------------------------------------


def test_serial_is_compared_with_all_envs_in_one_actor():
    serial = serial_config(config(runtime="processes", actors=2, envs_per_actor=4, max_lag=1))
    assert (serial.runtime.runtime, serial.runtime.actors, serial.runtime.envs_per_actor) == ("serial", 1, 8)
    assert serial.runtime.batch_rows == config(runtime="processes", actors=2, envs_per_actor=4).runtime.batch_rows


def test_serial_with_all_envs_in_one_actor_has_one_inference_worker():
    inference: dict[str, Any] = {"inference": "worker", "inference_workers": 2, "inference_device": "cpu,cpu"}
    serial = serial_config(config(runtime="processes", actors=2, envs_per_actor=4, **inference)).runtime
    assert (serial.actors, serial.envs_per_actor, serial.inference) == (1, 8, "worker")
    assert (serial.inference_workers, serial.inference_device) == (None, ("cpu",))


def test_a_layout_is_kept_in_which_actors_and_unrolls_of_a_batch_differ():
    given = config(runtime="processes", actors=2, envs_per_actor=4, unrolls_per_batch=3)
    assert serial_config(given) == given.in_runtime("serial")
    assert concurrent_config(serial_config(given), print) == given


def test_a_serial_run_is_compared_with_processes_in_the_layout_that_is_best_there():
    processes = concurrent_config(config(runtime="serial", actors=1, envs_per_actor=8), print)
    runtime = processes.runtime
    assert (runtime.runtime, runtime.max_lag, runtime.split) == ("processes", 1, "given")
    assert runtime.actors * runtime.envs_per_actor == 8


def test_a_run_with_a_replay_is_compared_in_its_own_layout():
    given = config("sac", "Pendulum-v1", runtime="serial", actors=2, envs_per_actor=3)
    concurrent = concurrent_config(given, print)
    assert (concurrent.runtime.actors, concurrent.runtime.envs_per_actor) == (2, 3)
    assert serial_config(concurrent).runtime == given.runtime


def test_a_runtime_that_does_not_support_the_config_is_left_out():
    def refuse(_config: Config) -> MeasuredLayout:
        raise ConfigError("an env of a script cannot be sent to another process")

    found = compare(PROCESSES, config(runtime="processes", actors=2), (), refuse, print)
    assert found.layouts == [PROCESSES]
    assert found.overlap_gain is None
    assert advice(found, busy=False) == ""


@pytest.mark.parametrize("error", [RunFailed("actor 0 hangs"), EnvFailed("out of breath", remedy="Run it")])
def test_a_layout_that_fails_is_named_with_its_reason_and_the_others_are_compared(error):
    def fail_in_serial_and_alone(given: Config) -> MeasuredLayout:
        if given.runtime.actors == 1:
            raise error
        return layout_of(given, given.threads, 1_000, 900)

    run = config(runtime="processes", actors=2, envs_per_actor=4)
    alone, other = (config(runtime="processes", actors=actors, envs_per_actor=8 // actors) for actors in (1, 4))
    found = compare(PROCESSES, run, (alone, other), fail_in_serial_and_alone, print)
    assert [layout.actors for layout in found.layouts] == [2, 4]
    assert failures(found.failed).splitlines() == [
        f"  serial, 1 actor x 8 envs failed: {error}",
        f"  processes, 1 actor x 8 envs failed: {error}",
    ]
    assert [FailedLayout(**each) for each in found.results()["failed_layouts"]] == list(found.failed)


def test_envs_that_fail_while_processes_are_chosen_fail_this_layout_alone(monkeypatch):
    def fail(*_arguments: object) -> MeasuredLayout:
        raise EnvFailed("out of breath")

    monkeypatch.setattr("offbeat.tuning.layouts.with_measured_topology", fail)
    found = compare(SERIAL, config(runtime="serial", actors=1, envs_per_actor=8), (), fail, print)
    assert found.layouts == [SERIAL]
    assert [(layout.runtime, layout.reason) for layout in found.failed] == [("processes", "out of breath")]


# --- predicted and measured ---------------------------------------------------------------------------------


def test_the_gain_of_overlap_is_the_ratio_of_two_measured_speeds():
    found = reached(50_000)
    assert found.results()["overlap_gain"] == 2.0
    assert found.results()["layouts"][1] == {
        "runtime": "serial",
        "actors": 1,
        "envs_per_actor": 32,
        "learner_threads": 1,
        "predicted_sps": 26_000,
        "achieved_sps": 25_000,
    }


def test_the_table_shows_the_prediction_beside_the_measured_speed():
    assert table([PROCESSES, SERIAL]).splitlines() == [
        "  env steps/s                     predicted    measured",
        "  processes, 2 actors x 16 envs      53,600      50,000    93%",
        "  serial, 1 actor x 32 envs          26,000      25,000    96%",
    ]


@pytest.mark.parametrize(
    ("sps", "expected"),
    [
        (50_000, "asynchrony pays: processes is 2.00x as fast as serial here"),
        (
            25_100,
            (
                "asynchrony makes no difference to this workload: processes is 1.00x as fast as serial here, and "
                "--runtime serial --actors 1 --envs-per-actor 32 --set learner_threads=1 is simpler"
            ),
        ),
        (
            20_000,
            (
                "asynchrony does not help this workload: processes is 0.80x as fast as serial here, so pass --runtime "
                "serial --actors 1 --envs-per-actor 32 --set learner_threads=1"
            ),
        ),
    ],
)
def test_advice_follows_the_measured_speeds_whatever_was_predicted(sps, expected):
    assert advice(reached(sps), busy=False) == expected


def test_a_serial_run_is_told_the_runtime_that_was_faster_or_to_stay():
    alike = replace(PROCESSES, actors=1, envs_per_actor=32)
    assert advice(LayoutComparison(SERIAL, SERIAL, alike), busy=False) == (
        "asynchrony pays: processes is 2.00x as fast as serial here, so pass --runtime processes"
    )
    slow = replace(PROCESSES, achieved_sps=20_000)
    assert advice(LayoutComparison(SERIAL, SERIAL, slow), busy=False).endswith("so stay with --runtime serial")


def test_a_runtime_is_recommended_in_the_layout_that_was_measured():
    run = replace(SERIAL, actors=4, envs_per_actor=8)
    assert advice(LayoutComparison(run, run, PROCESSES), busy=False).endswith(
        "so pass --runtime processes --actors 2 --envs-per-actor 16 --set learner_threads=1"
    )


def test_another_layout_is_recommended_only_if_it_was_faster():
    faster = replace(PROCESSES, actors=1, envs_per_actor=32, achieved_sps=60_000)
    assert advice(replace(reached(50_000), others=(faster,)), busy=False).endswith(
        "; --actors 1 --envs-per-actor 32 --set learner_threads=1 is 1.20x as fast as the layout of this run"
    )
    slower = replace(faster, achieved_sps=50_100, predicted_sps=90_000)
    assert "--actors" not in advice(replace(reached(50_000), others=(slower,)), busy=False)


def test_no_layout_is_recommended_on_a_busy_machine():
    assert advice(reached(20_000), busy=True) == "the machine is too busy to say which layout is faster"


def test_a_speed_far_from_its_prediction_is_explained():
    assert misprediction([PROCESSES, SERIAL], busy=False) == ""
    slow = replace(PROCESSES, achieved_sps=0.99 * PROCESSES.predicted_sps / FACTOR)
    assert misprediction([SERIAL, slow], busy=False).startswith(
        "slower than predicted (processes, 2 actors x 16 envs): each cost is measured alone"
    )
    fast = replace(SERIAL, achieved_sps=1.01 * FACTOR * SERIAL.predicted_sps)
    assert misprediction([fast, PROCESSES], busy=False).startswith(
        "faster than predicted (serial, 1 actor x 32 envs): the costs"
    )


def test_a_layout_has_the_numbers_of_its_config():
    found = layout_of(config(runtime="threads", actors=2, envs_per_actor=4, learner_threads=2), 2, 10.0, 9.0)
    assert found.name == "threads, 2 actors x 4 envs, 2 learner threads"
    hogwild = layout_of(config(runtime="hogwild", workers=2, envs_per_actor=4), 1, 10.0, 9.0)
    assert hogwild.name == "hogwild, 2 workers x 4 envs"
