from __future__ import annotations

import textwrap
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.runs import SMALL

from offbeat.config.resolve import resolve
from offbeat.config.runtimes import RUNTIMES
from offbeat.metrics.bottleneck import BottleneckReport, bottleneck_report
from offbeat.metrics.speed_model import Topology
from offbeat.metrics.timings import CORE_WAIT
from offbeat.runtime.loop import run_metrics
from offbeat.runtime.loop.run_services import RunServices
from offbeat.runtime.reporting import Reporting
from offbeat.runtime.runtimes import build

CARTS = "offbeat.envs.testing.worlds:CartPoles"

LABELS = {
    "learner": "learner-bound: actors wait",
    "actors": "actor-bound: the learner waits",
    "lag": "lag-bound: acting and learning take turns",
    "machine": "machine-bound: ",
    "balance": "balanced: neither actors nor learner wait much",
    "serial": "serial: acting takes",
}
ONLY = "unless envs wait, only cheaper acting or learning helps"


def bottleneck(
    acting: float,
    learning: float,
    actors_wait: float = 0.0,
    learner_waits: float = 0.0,
    aside: float = 0.0,
    wait_aside: float = 0.0,
    runtime: str = "processes",
    **topology: Any,
) -> BottleneckReport:
    """Of ten seconds, and `aside` seconds of evaluation and checkpoints, with a topology on two cores.

    Actors waited `wait_aside` of the seconds that they waited while the learner evaluated or saved.
    """
    usual = {"actors": 1, "learner_threads": 1, "cores": 2, "max_lag": 1}
    spent = {
        "act": 0.25 * acting,
        "env": 0.75 * acting,
        "learn": learning,
        "learn/update": learning,
        "evaluate": 0.75 * aside,
        "checkpoint": 0.25 * aside,
        "wait": actors_wait + learner_waits,
        "wait/actor": actors_wait,
        "wait/actor/other_work": wait_aside,
        "wait/learner": learner_waits,
    }
    return bottleneck_report(spent, 10.0 + aside, Topology(**{"runtime": RUNTIMES[runtime], **usual, **topology}))


def test_actors_that_wait_for_messages_and_limit_the_speed_are_told_to_send_larger_tickets():
    spent = {"act": 2.0, "env": 2.0, "wait/messages": 6.0, "learn": 5.0, "wait/learner": 5.0}
    ray = Topology(RUNTIMES["ray"], 1, 1, 2, max_lag=1)
    assert (
        "actors wait 60% of the time for messages: a larger unroll_length"
        in bottleneck_report(spent, 10.0, ray).sentence
    )
    few = bottleneck_report({**spent, "wait/messages": 0.5}, 10.0, ray)
    assert "for messages" not in few.sentence


def test_actors_on_other_machines_do_not_make_all_cores_of_this_machine_busy():
    spent = {"act": 10.0, "env": 10.0, "learn": 10.0}
    bounds = {
        name: bottleneck_report(spent, 10.0, Topology(RUNTIMES[name], 2, 1, 2, max_lag=1)).bound
        for name in ("processes", "ray")
    }
    assert bounds == {"processes": "machine", "ray": "balance"}


# --- worked numbers -----------------------------------------------------------------------------------------


def test_waiting_actors_report_the_learner_as_bottleneck():
    report = bottleneck(5.8, 9.9, 14.2, 0.1, actors=2)
    assert report.bound == "learner"
    assert (report.actor_wait, report.learner_wait) == pytest.approx((0.71, 0.01))
    assert report.gain_max == pytest.approx((5.8 + 9.9) / 9.9)
    assert report.sentence == (
        "learner-bound: actors wait 71% of the time; more actors or a larger --max-lag will not help"
    )


def test_a_waiting_learner_with_idle_cores_reports_that_more_actors_help():
    report = bottleneck(10.0, 3.6, 0.0, 6.4, cores=4)
    assert report.bound == "actors"
    assert (report.actor_wait, report.learner_wait) == pytest.approx((0.0, 0.64))
    assert report.sentence == (
        "actor-bound: the learner waits 64% of the time; more actors help while cores are idle "
        "(at most 1.4 of 4 cores are busy)"
    )


def test_more_actors_are_not_advised_where_no_core_is_idle():
    report = bottleneck(20.0, 3.6, 0.0, 6.4, actors=2)
    assert report.bound == "actors"
    assert "actors have work for both cores: unless envs wait, only a lighter env" in report.sentence
    assert "more actors" not in report.sentence


@pytest.mark.parametrize(
    ("topology", "bound", "beginning"),
    [
        (
            {"cores": 2},
            "machine",
            f"machine-bound: there is work for both cores (WAITS); {ONLY}",
        ),
        (
            {"cores": 4, "learner_threads": 3},
            "machine",
            f"machine-bound: there is work for all 4 cores (WAITS); {ONLY}",
        ),
        (
            {"cores": 4},
            "balance",
            "balanced: neither actors nor learner wait much (WAITS), at most 1.9 of 4 cores are busy",
        ),
    ],
)
def test_without_waits_the_machine_is_the_bottleneck_unless_a_core_is_idle(topology, bound, beginning):
    report = bottleneck(9.6, 9.4, 0.4, 0.6, **topology)
    assert report.bound == bound
    waits = "actors wait 4%, the learner 6%"
    assert report.sentence == beginning.replace("WAITS", waits)


def test_waits_on_both_sides_report_max_lag_as_bottleneck():
    report = bottleneck(7.0, 7.0, 3.0, 3.0)
    assert report.bound == "lag"
    assert report.sentence.endswith("(actors wait 30%, the learner 30%); a larger --max-lag may help")


def test_waits_on_both_sides_with_work_for_all_cores_report_the_machine_as_bottleneck():
    report = bottleneck(24.0, 7.0, 6.0, 3.0, actors=3)
    assert report.bound == "machine"
    assert report.sentence == f"machine-bound: there is work for both cores (actors wait 20%, the learner 30%); {ONLY}"


OTHERS = "other programs, evaluations, or threads of envs and actors use the cores"


@pytest.mark.parametrize(
    ("learner_waits", "actors_wait", "sentence"),
    [
        (3.0, 3.0, f"machine-bound: the learner waits 40% of the time for a core (WAITS): {OTHERS}"),
        (0.4, 0.4, f"machine-bound: the learner waits 40% of the time for a core (WAITS): {OTHERS}"),
        (
            *(3.0, 0.4),
            f"actor-bound: the learner waits 30% of the time for actors, and its thread 40% for a core: {OTHERS}",
        ),
        (
            *(0.4, 3.0),
            f"learner-bound: actors wait 30% of the time, and the learner's thread 40% for a core: {OTHERS}",
        ),
    ],
)
def test_a_learner_that_waits_for_a_core_reports_that_others_use_the_cores(learner_waits, actors_wait, sentence):
    spent = {"act": 7.0, "learn": 7.0, "wait/actor": actors_wait, "wait/learner": learner_waits}
    topology = Topology(RUNTIMES["processes"], 1, 1, 2, max_lag=1)
    report = bottleneck_report({**spent, CORE_WAIT: 4.0}, 10.0, topology)
    assert report.actor_wait is not None
    assert report.learner_wait is not None
    waits = f"actors wait {report.actor_wait:.0%}, the learner {report.learner_wait:.0%}"
    assert report.sentence == sentence.replace("WAITS", waits)
    assert bottleneck_report({**spent, CORE_WAIT: 1.0}, 10.0, topology) == bottleneck_report(spent, 10.0, topology)


@pytest.mark.parametrize("learning", [0.5, 5.0, 9.5])
def test_without_lag_the_report_says_that_acting_and_learning_take_turns(learning):
    report = bottleneck(10 - learning, learning, learning, 10 - learning, max_lag=0)
    assert report.bound == "lag"
    assert "a larger --max-lag lets them overlap: at most " in report.sentence


@pytest.mark.parametrize(("learner_waits", "bound"), [(3.0, "lag"), (6.4, "actors")])
def test_more_lag_or_actors_are_not_advised_while_actors_are_restarted(learner_waits, bound):
    spent = {"act": 7.0, "learn": 7.0, "wait/actor": 3.0 if bound == "lag" else 0.0, "wait/learner": learner_waits}
    report = bottleneck_report(spent, 10.0, Topology(RUNTIMES["processes"], 1, 1, 4, max_lag=1), restarts=3)
    assert report.bound == bound
    assert report.sentence.startswith("restarts: processes were restarted 3 times")
    assert "log.txt has the reasons" in report.sentence
    assert "max-lag" not in report.sentence
    assert "more actors" not in report.sentence


def test_an_overlapped_run_tells_no_gain_over_serial_that_serial_or_bench_would_contradict():
    """Its times include waits for cores, so 1.32x told by serial could become 1.51x here."""
    for waits in ((5.0, 0.0), (0.0, 5.0), (5.0, 5.0), (0.0, 0.0)):
        assert "x" not in bottleneck(8.0, 8.0, *waits, cores=4).sentence.replace("max", "")


def test_the_report_says_that_a_small_gain_does_not_pay():
    report = bottleneck(0.5, 9.5, 9.5, 0.5)
    assert report.gain_max == pytest.approx(10 / 9.5)
    assert report.sentence.endswith("overlap gains at most 1.05x: not worthwhile")


def test_serial_reports_the_largest_gain_of_processes():
    report = bottleneck(2.8, 7.2, runtime="serial", cores=4)
    assert (report.bound, report.actor_wait, report.learner_wait) == ("serial", None, None)
    assert report.sentence == (
        "serial: acting takes 28% and learning 72% of the time; --runtime processes is at most 1.39x as fast "
        "unless envs wait: `offbeat bench` measures it"
    )


def test_the_gain_reported_by_serial_assumes_one_actor_per_core():
    assert bottleneck(9.0, 1.0, runtime="serial", cores=4).gain_max == pytest.approx(4.0)


@pytest.mark.parametrize(("acting", "cores", "gain"), [(0.3, 4, 1.03), (5.0, 1, 1.0)])
def test_serial_reports_that_asynchrony_would_not_help(acting, cores, gain):
    report = bottleneck(acting, 10 - acting, runtime="serial", cores=cores)
    assert report.sentence.endswith(f"asynchrony would not help this workload (at most {gain:.2f}x)")


@pytest.mark.parametrize(
    ("workers", "cores", "used", "advice"),
    [
        (2, 4, "1.5", "at most 2.00x over serial, but with stale gradients"),
        (6, 4, "1.5", "there are more workers than cores: --workers 4 is as fast"),
        (1, 1, "1.0", "one worker does the same work as --runtime serial, which needs no second process"),
    ],
)
def test_hogwild_reports_the_cores_in_use_and_the_largest_gain(workers, cores, used, advice):
    report = bottleneck(10.0, 5.0, runtime="hogwild", actors=workers, cores=cores)
    assert (report.bound, report.actor_wait, report.learner_wait) == ("hogwild", None, None)
    have = "worker has" if workers == 1 else "workers have"
    taken = f"{workers} {have} work for {used} of {cores} cores (acting 67%, learning 33%)"
    assert report.sentence.removesuffix(" (gradient_staleness)") == f"lock-free: {taken}; {advice}"


def test_waits_for_evaluations_and_checkpoints_are_excluded():
    with_waits = bottleneck(4.0, 9.0, 16.0 + 60.0, 1.0, aside=30.0, wait_aside=60.0, actors=2)
    assert bottleneck(4.0, 9.0, 16.0, 1.0, actors=2) == with_waits


def test_only_waits_that_were_counted_are_subtracted():
    """The last evaluation is over before actors wait no more, so no wait for it was counted."""
    report = bottleneck(4.2, 9.0, 5.8, 1.0, aside=30.0)
    assert report.actor_wait == pytest.approx(0.58)
    assert report.bound == "learner"


def test_busy_cores_exclude_the_time_of_evaluations():
    assert bottleneck(10.0, 3.6, 0.0, 6.4, cores=4, aside=30.0) == bottleneck(10.0, 3.6, 0.0, 6.4, cores=4)


def test_actors_that_act_during_an_evaluation_count_as_busy():
    assert bottleneck(30.0, 4.0, 5.0, 6.0, aside=25.0, wait_aside=5.0).actor_wait == 0.0


def test_a_period_without_timings_has_a_report():
    assert bottleneck_report({}, 0.0, Topology(RUNTIMES["processes"], 2, 1, 4, 1)).gain_max == 1.0
    assert bottleneck_report({}, 0.0, Topology(RUNTIMES["serial"], 1, 1, 4, 0)).gain_max == 1.0


@pytest.mark.parametrize(("workers", "measured"), [(1, {CORE_WAIT: 2.5}), (2, {})])
def test_the_wait_for_a_core_is_measured_if_one_thread_learns(monkeypatch, workers, measured):
    """With several workers, this thread waits for theirs."""
    flags = {**SMALL, "runtime": "processes", "policies": "separate", "learner_workers": workers}
    waited = iter((1.0, 1.0, 3.5))
    monkeypatch.setattr(run_metrics, "waited_for_core_s", lambda: next(waited))
    services: Any = SimpleNamespace(**{**dict.fromkeys(RunServices._fields), "reporting": Reporting(print, print)})
    with closing(build(resolve("ppo", CARTS, flags=flags))) as parts:
        metrics = run_metrics.RunMetrics(parts, services, tuple)
        metrics.start_clock()
        spent = metrics.timings().seconds
    assert {name: spent[name] for name in spent if name == CORE_WAIT} == measured


# --- whatever the numbers -----------------------------------------------------------------------------------

seconds = st.floats(0.0, 1e6)
small = st.integers(1, 64)


@given(seconds, seconds, seconds, seconds, seconds, small, small, small, st.integers(0, 4), st.booleans())
def test_shares_and_gain_are_in_their_ranges_and_the_report_names_the_bottleneck(
    acting, learning, actors_wait, learner_waits, aside, actors, threads, cores, max_lag, serial
):
    runtime = "serial" if serial else "threads"
    topology = {"actors": actors, "learner_threads": threads, "cores": cores, "max_lag": max_lag, "runtime": runtime}
    report = bottleneck(acting, learning, actors_wait, learner_waits, aside, **topology)
    assert (report.bound == "serial") == serial
    for share in (report.actor_wait, report.learner_wait):
        assert (share is None) == serial
        assert share is None or 0.0 <= share <= 1.0
    assert 1.0 - 1e-9 <= report.gain_max <= cores + 1e-9
    assert report.sentence.startswith(LABELS[report.bound])
    assert len(textwrap.wrap(report.sentence, 76, break_on_hyphens=False)) <= 2
