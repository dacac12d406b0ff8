from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from offbeat.config.runtimes import RUNTIMES
from offbeat.core.errors import RunFailed
from offbeat.core.policy_names import DEFAULT_POLICY, policy_key
from offbeat.metrics.counters import Counters
from offbeat.metrics.names import METRICS, is_of_run
from offbeat.metrics.recorder import Recorder
from offbeat.metrics.sinks import Line
from offbeat.metrics.speed_model import Topology
from offbeat.metrics.timings import CORE_WAIT, Timings

PROCESSES = Topology(RUNTIMES["processes"], actors=2, learner_threads=1, cores=4, max_lag=1)


class RecordingSink:
    """A sink that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.closed = False

    def write(self, line):
        self.lines.append(line)

    def close(self):
        self.closed = True


def at(step: int, **counters: Any) -> Counters:
    """The counters of a run that takes 100 env steps, 4 updates and half a second for a learning step."""
    usual: dict[str, Any] = {
        "env_steps": 100 * step,
        "frames": 200 * step,
        "updates": 4 * step,
        "wall_time_s": 0.5 * step,
    }
    return Counters(**{"learning_step": step, **usual, **counters})


def ended(recorder: Recorder, *returns: float) -> None:
    recorder.add_episodes(np.array(returns, np.float32), np.full(len(returns), 10, np.int32))


def evaluation(mean: float, std: float, length: float) -> dict[str, float]:
    return {"eval_return_mean": mean, "eval_return_std": std, "eval_length_mean": length, "eval_env_steps": 7}


def owner_of(_metric: str) -> str:
    return "a callback"


def bound_of(recorder: Recorder) -> str:
    return recorder.bottleneck.bound if recorder.bottleneck else ""


def test_returns_of_all_policies_count_each_policy_by_its_episodes_whoever_learns_last():
    recorder = Recorder([], episodes_window=4)
    for policy, value, episodes in (("first", 10.0, 20), ("last", -2.0, 40)):
        returns = np.full(episodes, value, np.float32)
        recorder.add_episodes(returns, np.full(episodes, 10, np.int32), policy)
    resumed = Recorder([], episodes_window=4)
    resumed.restore(recorder.state(Timings()))
    for each in (recorder, resumed):
        line = each.line(at(1), Timings())
        of_all = [line[f"episode_return_{name}"] for name in ("min", "mean", "max")]
        assert of_all == [-2, pytest.approx((20 * 10 - 40 * 2) / 60), 10]
        assert line["episodes"] == 60
        assert each.episode_length_mean == pytest.approx(10)


def test_a_line_has_every_metric_and_is_written_to_all_sinks():
    sinks = [RecordingSink(), RecordingSink()]
    line = Recorder(sinks).line(at(1), Timings())
    assert list(line) == list(METRICS)
    assert [sink.lines for sink in sinks] == [[line], [line]]


def test_closing_the_recorder_closes_its_sinks():
    sink = RecordingSink()
    Recorder([sink]).close()
    assert sink.closed


def test_unknown_metrics_are_none():
    recorder = Recorder([], PROCESSES)
    line = recorder.line(Counters(), Timings())
    assert recorder.bottleneck is None
    for name in (
        "sps",
        "ups",
        "episode_return_mean",
        "eval_return_mean",
        "policy_lag_max",
        "policy_loss",
        "actor_wait_fraction",
    ):
        assert line[name] is None
    assert line["episodes"] == line["evaluations"] == line["env_steps"] == 0


def test_episodes_are_counted_in_total_and_averaged_over_the_window():
    recorder = Recorder([], episodes_window=3)
    ended(recorder, 100.0, 1.0)
    ended(recorder, 2.0, 3.0)
    ended(recorder)
    line = recorder.line(at(1), Timings())
    assert line["episodes"] == 4
    assert (line["episode_return_min"], line["episode_return_mean"], line["episode_return_max"]) == (1.0, 2.0, 3.0)
    assert line["episode_length_mean"] == 10.0


def test_speeds_are_measured_since_the_last_line():
    recorder = Recorder([])
    assert recorder.line(at(2), Timings())["sps"] == 200.0
    line = recorder.line(at(4, env_steps=1200, updates=58, wall_time_s=3.0), Timings())
    assert line["sps"] == 500.0
    assert line["ups"] == 25.0


def test_learning_metrics_are_averaged_and_lag_keeps_minimum_and_maximum():
    recorder = Recorder([])
    recorder.add_learning_step({"policy_loss": 9.0, "policy_lag_min": 0, "policy_lag_max": 9})
    recorder.line(at(1), Timings())
    recorder.add_learning_step({"policy_loss": 1.0, "policy_lag_min": 1, "policy_lag_mean": 1.5, "policy_lag_max": 2})
    recorder.add_learning_step({"policy_loss": 3.0, "policy_lag_min": 0, "policy_lag_mean": 0.5, "policy_lag_max": 1})
    line = recorder.line(at(3), Timings())
    assert line["policy_loss"] == 2.0
    assert (line["policy_lag_min"], line["policy_lag_mean"], line["policy_lag_max"]) == (0.0, 1.0, 2.0)


@pytest.mark.parametrize("policy", [DEFAULT_POLICY, "red"])
def test_metrics_of_an_encoder_are_averaged_whatever_their_names_are(policy):
    recorder = Recorder([])
    for value in (1.0, 2.0, 6.0):
        metrics = {"epsilon": value, "encoder/epsilon": value, "encoder/critic/policy_lag_max": value}
        recorder.add_learning_step(metrics, policy)
    line = recorder.line(at(3), Timings())
    assert [line[policy_key(policy, name)] for name in metrics] == [6.0, 3.0, 3.0]


def test_ratings_and_counts_of_a_league_are_the_newest_ones():
    recorder = Recorder([])
    for games in (10, 20):
        recorder.add_learning_step({"league_games": games, "policies/red/elo": 1200 + games, "snapshots": games / 10})
    line = recorder.line(at(2), Timings())
    assert [line[name] for name in ("league_games", "policies/red/elo", "snapshots")] == [20, 1220, 2]


def test_the_learning_rate_and_epsilon_are_those_of_the_last_learning_step():
    recorder = Recorder([])
    for value in (0.25, 0.75):
        recorder.add_learning_step({"learning_rate": value, "policies/red/epsilon": value})
    line = recorder.line(at(2), Timings())
    assert line["learning_rate"] == line["policies/red/epsilon"] == 0.75


def test_filled_slots_are_reported_as_minimum_mean_and_maximum():
    recorder = Recorder([])
    for filled in (0.25, 0.75, 1.0, 0.0):
        recorder.add_learning_step(dict.fromkeys(("slots_filled", "slots_filled_min", "slots_filled_max"), filled))
    line = recorder.line(at(4), Timings())
    assert [line[name] for name in ("slots_filled_min", "slots_filled", "slots_filled_max")] == [0.0, 0.5, 1.0]


def test_the_queue_of_the_learner_is_reported_as_minimum_mean_and_maximum():
    recorder = Recorder([])
    for batches in (1, 3, 2):
        recorder.add_learning_step({f"learner_queue_size_{name}": batches for name in ("min", "mean", "max")})
    line = recorder.line(at(3), Timings())
    assert [line[f"learner_queue_size_{name}"] for name in ("min", "mean", "max")] == [1, 2, 3]


def test_times_in_milliseconds_are_averages_per_learning_step():
    recorder, timings = Recorder([]), Timings()
    timings.add("learn/load", 9.0)
    recorder.line(at(1), timings)
    for name, seconds in {"learn/load": 0.5, "learn/prepare": 1.0, "learn/update": 2.0, "wait/learner": 4.0}.items():
        timings.add(name, seconds)
    line = recorder.line(at(5), timings)
    names = ("load", "prepare", "grad", "dequeue")
    assert [line[f"learner_{name}_time_ms"] for name in names] == [125.0, 250.0, 500.0, 1000.0]


def test_the_memory_of_processes_is_in_every_line():
    reads = iter([{"memory_main_mb": 100.0}, {"memory_main_mb": 120.0, "memory/actor-0_mb": 30.0}])
    recorder = Recorder([], memory=lambda: next(reads))
    assert recorder.line(at(1), Timings())["memory_main_mb"] == 100.0
    line = recorder.line(at(1), Timings())
    assert (line["memory_main_mb"], line["memory/actor-0_mb"]) == (120.0, 30.0)


# --- numbers of the user's ----------------------------------------------------------------------------------


def test_added_metrics_are_only_in_the_next_line():
    recorder = Recorder([])
    recorder.add_callback_metrics({"mine": 2.5}, owner_of)
    assert recorder.line(at(1), Timings())["mine"] == 2.5
    assert "mine" not in recorder.line(at(2), Timings())


def test_added_metrics_are_restored_by_a_resume():
    first, second = Recorder([]), Recorder([])
    first.add_callback_metrics({"mine": 2.5}, owner_of)
    second.restore(first.state(Timings()))
    assert second.line(at(1), Timings())["mine"] == 2.5


@pytest.mark.parametrize(
    "name",
    [
        *("sps", "speed/sps", "temperature_of_mine", "learning/temperature_of_mine", "learning/policy_loss"),
        *("info/wind_mean", "memory/actor-0_mb", "policies/mine/elo", "twice", "learning/twice", ""),
    ],
)
def test_an_added_metric_with_the_name_of_another_is_refused(name):
    recorder = Recorder([])
    recorder.add_learning_step({"temperature_of_mine": 1.0})
    recorder.line(at(1), Timings())
    recorder.add_callback_metrics({"twice": 1.0}, owner_of)
    with pytest.raises(RunFailed, match=f"'{name}', which is {'the name of another metric' if name else 'empty'}"):
        recorder.add_callback_metrics({name: 1.0}, owner_of)


def test_added_metrics_with_the_same_tag_are_refused():
    with pytest.raises(RunFailed, match="'learning/mine', which is the name of another metric"):
        Recorder([]).add_callback_metrics({"mine": 1.0, "learning/mine": 2.0}, owner_of)


def test_names_of_the_run_are_all_that_a_line_has_before_a_learning_step_gave_any():
    recorder = Recorder([], PROCESSES, info=["wind"])
    recorder.add_evaluation(evaluation(1.0, 0.0, 10.0))
    recorder.add_learning_step({})
    assert all(is_of_run(name) for name, value in recorder.line(at(1), Timings()).items() if value is not None)
    assert {field.name for field in fields(Counters)} <= {name for name in METRICS if is_of_run(name)}


# --- learning -----------------------------------------------------------------------------------------------


def test_the_first_ratio_deviation_is_a_maximum_and_not_a_mean():
    recorder = Recorder([])
    recorder.add_learning_step({"ratio_max_deviation_first": 0.5})
    recorder.add_learning_step({"ratio_max_deviation_first": 0.0})
    assert recorder.line(at(2), Timings())["ratio_max_deviation_first"] == 0.5


def test_non_finite_values_are_excluded_from_the_mean():
    recorder = Recorder([])
    recorder.add_learning_step({"policy_loss": math.nan, "value_loss": math.inf})
    recorder.add_learning_step({"policy_loss": 2.0})
    line = recorder.line(at(2), Timings())
    assert line["policy_loss"] == 2.0
    assert line["value_loss"] is None


def test_an_algorithm_may_report_custom_metrics():
    recorder = Recorder([])
    recorder.add_learning_step({"temperature": 0.2})
    assert recorder.line(at(1), Timings())["temperature"] == 0.2


def test_a_line_without_new_learning_repeats_the_learning_metrics():
    recorder, timings = Recorder([]), Timings()
    recorder.add_learning_step({"policy_lag_max": 1.0})
    first = recorder.line(at(2), timings)
    timings.add("evaluate", 3.0)
    again = recorder.line(at(2, wall_time_s=4.0), timings)
    assert (again["sps"], again["policy_lag_max"]) == (first["sps"], 1.0)
    later = recorder.line(at(3, wall_time_s=7.0), timings)
    assert later["sps"] == pytest.approx(100 / 6)
    assert later["time_evaluate"] == pytest.approx(0.5)


def test_times_are_fractions_of_the_wall_time_since_the_last_line():
    recorder, timings = Recorder([]), Timings()
    timings.merge({"act": 0.25, "learn/update": 0.5, "wait/actor": 0.1})
    recorder.line(at(2), timings)
    timings.merge({"act": 1.0, "learn/update": 0.5, "wait/actor": 0.2, "wait/learner": 0.3})
    line = recorder.line(at(6), timings)
    assert line["time_act"] == pytest.approx(0.5)
    assert line["time_learn"] == pytest.approx(0.25)
    assert line["time_wait"] == pytest.approx(0.25)
    assert line["time_env"] == 0.0
    assert line["actor_wait_s"] == pytest.approx(0.3)
    assert line["learner_wait_s"] == pytest.approx(0.3)


def test_the_totals_of_seconds_grow_in_every_line():
    recorder, timings = Recorder([]), Timings()
    timings.merge({"wait/actor": 0.25, "wait/learner": 0.5, "learn/publish": 0.125})
    recorder.line(at(1), timings)
    timings.merge({"wait/actor": 0.25, "learn/publish": 0.125})
    line = recorder.line(at(1), timings)
    assert (line["actor_wait_s"], line["learner_wait_s"], line["publish_s"]) == (0.5, 0.5, 0.25)


def test_waits_and_the_bottleneck_are_computed_for_the_period_of_the_line():
    recorder, timings = Recorder([], PROCESSES), Timings()
    timings.merge({"act": 1.0, "learn": 0.5, "wait/learner": 0.5})
    first = recorder.line(at(2), timings)
    assert (first["actor_wait_fraction"], first["learner_wait_fraction"]) == (0.0, 0.5)
    assert bound_of(recorder) == "actors"
    timings.merge({"act": 0.25, "env": 0.25, "learn": 1.0, "wait/actor": 1.5})
    for wall_time_s in (2.0, 9.0):  # a line without learning since the last repeats it
        line = recorder.line(at(4, wall_time_s=wall_time_s), timings)
        assert (line["actor_wait_fraction"], line["learner_wait_fraction"]) == (0.75, 0.0)
        assert bound_of(recorder) == "learner"


def test_a_warm_up_has_waits_but_no_bottleneck():
    recorder, timings = Recorder([], PROCESSES), Timings()
    timings.merge({"act": 1.0, "learn": 0.5, "wait/learner": 0.5})
    assert recorder.line(at(2, updates=0), timings)["learner_wait_fraction"] == 0.5
    assert bound_of(recorder) == ""
    timings.merge({"act": 1.0, "learn": 0.5, "wait/learner": 0.5})
    recorder.line(at(3, updates=1), timings)
    assert bound_of(recorder) == "actors"


def test_the_wait_of_the_learner_for_a_core_is_that_of_the_period_and_at_the_end_that_of_the_run():
    recorder, timings = Recorder([], PROCESSES), Timings()
    waits = {"act": 0.5, "learn": 0.5, "wait/actor": 0.5, "wait/learner": 0.5}
    bounds = []
    for step, core_wait_s in ((2, 0.5), (4, 0.0), (6, 0.5)):
        timings.merge({**waits, CORE_WAIT: core_wait_s})
        recorder.line(at(step), timings)
        bounds.append(bound_of(recorder))
    assert bounds == ["machine", "lag", "machine"]
    recorder.conclude(timings, 10.0, restarts=0)
    assert bound_of(recorder) == "lag"


def test_a_resumed_run_knows_the_wait_for_a_core_of_the_unfinished_period():
    recorder, timings, resumed = Recorder([], PROCESSES), Timings(), Recorder([], PROCESSES)
    timings.merge({"act": 0.5, "learn": 0.5, "wait/actor": 0.5, "wait/learner": 0.5, CORE_WAIT: 0.5})
    resumed.restore(json.loads(json.dumps(recorder.state(timings))))
    resumed.line(at(2), Timings())
    assert bound_of(resumed) == "machine"


def test_serial_has_a_bottleneck_but_no_wait_metrics():
    recorder, timings = Recorder([], Topology(RUNTIMES["serial"], 1, 1, 4, 0)), Timings()
    timings.merge({"act": 0.25, "learn": 0.75})
    line = recorder.line(at(2), timings)
    assert (line["actor_wait_fraction"], line["learner_wait_fraction"]) == (None, None)
    assert recorder.bottleneck is not None
    assert recorder.bottleneck.gain_max == pytest.approx(4 / 3)


def test_slots_filled_is_averaged_and_the_longest_stall_is_reported():
    recorder = Recorder([])
    recorder.add_learning_step({"slots_filled": 0.25})
    recorder.add_learning_step({"slots_filled": 0.75})
    line = recorder.line(at(2, env_stall_max_s=1.5, actor_restarts=1), Timings())
    assert (line["slots_filled"], line["env_stall_max_s"], line["actor_restarts"]) == (0.5, 1.5, 1)


def test_evaluations_are_counted_and_the_best_score_is_recorded():
    recorder = Recorder([])
    recorder.add_evaluation(evaluation(10.0, 1.0, 50.0))
    recorder.add_evaluation(evaluation(8.0, 2.0, 40.0))
    line = recorder.line(at(1), Timings())
    assert (line["eval_return_mean"], line["eval_return_std"], line["eval_length_mean"]) == (8.0, 2.0, 40.0)
    assert line["best_eval_return_mean"] == 10.0
    assert line["evaluations"] == 2


def test_a_restored_recorder_writes_the_same_lines_as_the_original():
    first, timings = Recorder([], PROCESSES, episodes_window=3), Timings()
    ended(first, 1.0, 2.0, 3.0, 4.0)
    first.add_learning_step({"policy_loss": 1.5, "policy_lag_max": 1})
    first.add_evaluation(evaluation(10.0, 1.0, 50.0))
    timings.merge({"wait/actor": 0.5, "act": 0.5, "learn/publish": 0.25})
    first.line(at(2, env_stall_max_s=0.5), timings)
    timings.merge({"wait/actor": 1.0, "act": 0.5})  # since that line, and before the checkpoint
    second = Recorder([], PROCESSES, episodes_window=3)
    second.restore(json.loads(json.dumps(first.state(timings), allow_nan=False)))
    assert second.bottleneck == first.bottleneck
    assert second.line(at(2), Timings()) == first.line(at(2), timings)

    since = Timings()
    for each in (timings, since):
        each.merge({"wait/actor": 0.25, "act": 0.5, "learn/publish": 0.125})
    for recorder in (first, second):
        ended(recorder, 7.0)
        recorder.add_learning_step({"policy_loss": 2.5})
        recorder.add_evaluation(evaluation(5.0, 1.0, 50.0))
    assert second.line(at(3), since) == first.line(at(3), timings)
    assert second.bottleneck == first.bottleneck


def test_a_state_without_newer_totals_can_be_restored():
    state = Recorder([], PROCESSES).state(Timings())
    del state["waited"]["publish_s"], state["bottleneck"], state["counted"]["env_stall_max_s"]
    state["waited"]["actor_wait_s"] = 3.0
    recorder = Recorder([], PROCESSES)
    recorder.restore(state)
    line = recorder.line(at(1), Timings())
    assert (line["actor_wait_s"], line["publish_s"]) == (3.0, 0.0)


def test_info_metrics_are_averaged_since_the_last_line_also_across_a_resume():
    recorder = Recorder([], info=("a", "b"))
    recorder.add_infos(np.array([[6.0, 0.0], [1.0, 0.0]]))
    going_on = Recorder([], info=("b", "c", "a"))
    going_on.restore(json.loads(json.dumps(recorder.state(Timings()))))
    recorder.add_infos(np.array([[3.0, 0.0], [2.0, 0.0]]))
    going_on.add_infos(np.array([[0.0, 5.0, 3.0], [0.0, 1.0, 2.0]]))
    line = recorder.line(at(1), Timings())
    assert (line["info/a_mean"], line["info/b_mean"]) == (3.0, None)
    line = going_on.line(at(1), Timings())
    assert (line["info/a_mean"], line["info/b_mean"], line["info/c_mean"]) == (3.0, None, 5.0)
    recorder.add_infos(np.array([[1.0, 2.0], [1.0, 1.0]]))
    line = recorder.line(at(2), Timings())
    assert (line["info/a_mean"], line["info/b_mean"]) == (1.0, 2.0)


def test_info_metrics_of_several_policies_are_averaged_over_all_and_for_each_also_across_a_resume():
    names = ("a", "a:last")
    recorder, going_on = Recorder([], info=names), Recorder([], info=names)
    recorder.add_infos(np.array([[6.0, 1.0], [3.0, 1.0]]), "one")
    recorder.add_infos(np.array([[2.0, 0.0], [1.0, 0.0]]), "two")
    going_on.restore(json.loads(json.dumps(recorder.state(Timings()))))
    going_on.add_infos(np.array([[0.0, 3.0], [0.0, 1.0]]), "two")
    line = going_on.line(at(1), Timings())
    assert (line["policies/one/info/a_mean"], line["policies/two/info/a_mean"], line["info/a_mean"]) == (2, 2, 2)
    assert (line["policies/one/info/a_last"], line["policies/two/info/a_last"], line["info/a_last"]) == (1, 3, 2)
    going_on.add_infos(np.array([[5.0, 0.0], [1.0, 0.0]]), "two")
    line = going_on.line(at(2), Timings())
    assert (line["policies/one/info/a_mean"], line["policies/two/info/a_mean"], line["info/a_mean"]) == (None, 5, 5)


def test_info_metrics_that_are_never_reported_give_one_warning():
    said: list[str] = []
    recorder = Recorder([], None, said.append, info=("a", "b"))
    recorder.add_infos(np.array([[1.0, 0.0], [1.0, 0.0]]))
    ended(recorder, *[1.0] * 19)
    recorder.line(at(1), Timings())
    assert not said
    ended(recorder, 1.0)
    for step in (2, 3):
        recorder.line(at(step), Timings())
    recorder.conclude(Timings(), 1.0, restarts=0)
    assert [text.split(",")[0] for text in said] == ["info_metrics or league.outcome names b"]
