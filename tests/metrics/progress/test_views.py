from __future__ import annotations

import io
import os
import pty
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from tests.support.progress import ABOUT, Clock, status
from tests.support.runs import small_run

from offbeat.config.runtimes import RUNTIMES
from offbeat.metrics.progress.dashboard import Dashboard, make_view
from offbeat.metrics.progress.notebook import NotebookLines, show_picture
from offbeat.metrics.progress.rates import Rates
from offbeat.metrics.progress.screen import History, Screen, sparkline
from offbeat.metrics.progress.status import About, FirstBatch, PolicyStatus, Status
from offbeat.metrics.progress.views import Lines, Silent
from offbeat.runtime.loop import run_metrics

WAITS: dict[str, Any] = {
    "actor_wait_fraction": 0.71,
    "learner_wait_fraction": 0.02,
    "slots_filled": 0.5,
    "env_stall_max_s": 0.3123,
    "actor_restarts": 2,
    "bottleneck": "learner-bound: actors wait 71% of the time; more actors or a larger --max-lag will not help; "
    "overlap gains at most 1.59x over serial",
}


def picture(
    width: int,
    state: Status,
    encoding: str = "utf-8",
    rates: Rates | None = None,
    about: About = ABOUT,
    height: int = 25,
) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, height=height, force_terminal=True, color_system=None)
    returns = History()
    for value in range(20):
        returns.add(float(value))
    console.print(Screen(about, state, rates or Rates(), returns))
    file.seek(0)
    return file.read()


# --- rates --------------------------------------------------------------------------------------------------


def test_rates_are_computed_over_each_window():
    rates = Rates()
    for second in range(401):
        rates.add(float(second), 10 * second + (90 * (second - 390) if second > 390 else 0), second)
    assert rates.over(10.0) == (100.0, 1.0)
    assert rates.over(60.0) == ((600 + 900) / 60, 1.0)
    assert rates.over(300.0) == ((3000 + 900) / 300, 1.0)


def test_a_window_longer_than_the_run_starts_with_the_run():
    rates = Rates()
    rates.add(0.0, 5000, 50)
    rates.add(2.0, 5100, 60)
    assert rates.over(300.0) == (50.0, 5.0)
    assert rates.eta_s(6100) == 20.0


def test_a_gap_between_samples_longer_than_a_window_is_included():
    rates = Rates()
    rates.add(0.0, 0, 0)
    rates.add(40.0, 80, 0)
    assert rates.over(10.0) == (2.0, 0.0)


def test_long_learning_steps_count_though_nothing_is_shown_meanwhile():
    rates = Rates()
    for cycle in range(5):  # a second of acting, then a learning step of 20 seconds
        for tenth in range(11):
            rates.add(21.0 * cycle + tenth / 10, 2100 * cycle, cycle)
    rates.add(105.0, 10_500, 5)
    assert rates.elapsed_s == 105.0
    assert rates.over(300.0) == (100.0, 5 / 105)


def test_a_run_whose_learning_steps_become_long_is_slow():
    rates = Rates()
    for quarter in range(41):  # ten seconds of warm-up
        rates.add(quarter / 4, 500 * quarter, 0)
    for step in range(1, 101):  # each collects for 0.3 seconds and learns for 3.2 seconds
        rates.add(10 + 3.5 * step - 3.2, 20_000 + 64 * (step - 1), 64 * (step - 1))
        rates.add(10 + 3.5 * step, 20_000 + 64 * step, 64 * step)
    assert rates.over(60.0) == pytest.approx((64 / 3.5, 64 / 3.5), rel=0.1)
    assert rates.eta_s(26_400 + 640) == pytest.approx(35, rel=0.1)


def test_learning_steps_longer_than_the_window_give_the_same_rates_at_any_time():
    rates = Rates()
    for second in range(40 * 5 + 1):  # each learning step takes 40 seconds
        rates.add(float(second), 1000 * (second // 40), 10 * (second // 40))
        if second >= 40:
            assert rates.over(10.0) == (25.0, 0.25)
            assert rates.eta_s(10_000) == (10_000 - 1000 * (second // 40)) / 25


def test_the_rates_of_a_run_that_hangs_decrease():
    rates = Rates()
    for second in range(101):
        rates.add(float(second), 1000 * min(second, 80), min(second, 80))
    assert rates.over(10.0) == (1000 / 20, 1 / 20)


def test_rates_are_none_before_two_samples():
    rates = Rates()
    assert rates.over(10.0) == (None, None)
    rates.add(0.0, 0, 0)
    assert rates.over(10.0) == (None, None)
    assert rates.eta_s(100) is None


# --- what the dashboard shows -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", range(56, 66))
def test_the_phase_is_apart_from_the_topology(width):
    first = next(line for line in picture(width, status(10, phase="saving")).splitlines() if "saving" in line)
    assert first.endswith("  saving │")


@pytest.mark.parametrize("width", [80, 120])
def test_the_dashboard_fits_the_terminal_and_shows_the_run(width):
    rates = Rates()
    rates.add(0.0, 0, 0)
    rates.add(20.0, 42_000, 4200)
    figures = {"episode_return_mean": 213.4, "eval_return_mean": 480.2, "best_eval_return_mean": 500.0}
    figures |= {"episode_return_min": -8.0, "episode_return_max": 2500.0, "memory_main_mb": 312.0}
    figures |= {"memory_children_mb": 1234.5}
    lag = {"policy_lag_min": 0, "policy_lag_mean": 0.8, "policy_lag_max": 1}
    shown = picture(width, status(42_000, updates_refused=3, **figures, **lag, **WAITS), rates=rates)
    assert len(shown.splitlines()) <= 24
    assert {len(line) for line in shown.splitlines()} == {width}
    parts = [
        "ppo on CartPole-v1 (preset ppo-cartpole-v1)",
        "processes, 4 actors x 16 envs, max_lag 1, cpu",
        "runs/ppo-CartPole-v1",
    ]
    parts += ["42%", "42k / 100k", "ETA 0:28", "213.4", "480.2", "best 500.0", "0/0.8/1", "2.1k", "3 refused"]
    parts += ["-8.00 to 2,500", "312M + 1.23G children"]
    parts += ["act", "25.0%", "update", "50.0%", "other work", "training", "so far"]
    for part in parts:
        assert part in shown
    assert "publish" not in shown, "its share is 0"


@pytest.mark.parametrize("width", [1, 5, 20, 40, 60])
def test_narrow_terminals_are_drawn_without_a_crash(width):
    assert max(len(line) for line in picture(width, status(5)).splitlines()) <= max(width, 2)


def test_a_run_of_no_steps_is_drawn():
    assert "0%" in picture(80, Status(env_steps=0, steps=0))


def test_a_terminal_without_unicode_gets_ascii():
    assert picture(80, status(50_000), encoding="ascii").isascii()


def test_a_sparkline_rises_with_its_points():
    assert sparkline([0.0, 1.0, 2.0, 3.0], ascii_only=False) == "▁▁▃▃▃▃▆▆▆▆██"
    assert sparkline([5.0, 5.0], ascii_only=True) == 12 * "."
    assert sparkline([5.0], ascii_only=False) == ""


def test_a_history_thins_out_evenly_and_keeps_the_first_point():
    history = History(max_points=8)
    for value in range(100):
        history.add(float(value))
    history.add(None)
    assert len(history.points) < 8
    assert history.points[0] == 0.0
    assert len({b - a for a, b in zip(history.points, history.points[1:], strict=False)}) == 1


@pytest.mark.parametrize(
    ("width", "figures"),
    [
        (80, "waiting  actors 71%  learner 2%  slots 50%  env stall 0.31 s  restarts 2 "),
        (120, "waiting   actors 71%   learner 2%   slots filled 50%   longest env stall 0.31 s   restarts 2 "),
    ],
)
def test_the_dashboard_shows_waits_above_the_bottleneck_report(width, figures):
    lines = picture(width, status(42_000, **WAITS)).splitlines()
    (row,) = (row for row, line in enumerate(lines) if "waiting" in line)
    assert figures in lines[row]
    assert " ".join(line[1:-1].strip() for line in lines[row + 1 : -1]) == WAITS["bottleneck"]


@pytest.mark.parametrize(("restarts", "red"), [(0, False), (1, True)])
def test_restarts_are_shown_in_red(restarts, red):
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system="standard")
    console.print(Screen(ABOUT, status(10, actor_restarts=restarts), Rates(), History()))
    assert ("\x1b[1;31m" in file.getvalue()) == red


def test_serial_shows_no_waits_but_a_bottleneck_report():
    shown = picture(80, status(10, bottleneck="serial: a word"), about=replace(ABOUT, runtime=RUNTIMES["serial"]))
    assert "serial: a word" in shown
    assert "waiting" not in shown


@pytest.mark.parametrize(
    ("lag", "text"),
    [
        ((0, 0, 0), "policy lag 0 learning steps"),
        ((1, 1, 1), "policy lag 1 learning steps"),
        ((0, 0.8, 2), "policy lag 0 to 2 (mean 0.8) learning steps"),
    ],
)
def test_lines_explain_the_policy_lag(lag, text):
    names = ("policy_lag_min", "policy_lag_mean", "policy_lag_max")
    assert line_of(status(10, **dict(zip(names, lag, strict=True)))).rstrip().endswith(text)


def test_lines_say_nothing_of_a_lag_that_is_not_known():
    assert "lag" not in line_of(status(10))


def test_lines_name_the_warm_up_in_place_of_a_policy_lag():
    lag: dict[str, Any] = {"policy_lag_min": 0, "policy_lag_mean": 0, "policy_lag_max": 0}
    assert line_of(status(10, replay_size=1280.0, **lag)).rstrip().endswith("warm-up: 1.28k transitions")


def test_the_dashboard_names_the_warm_up_in_place_of_a_policy_lag():
    lag: dict[str, Any] = {"policy_lag_min": 0, "policy_lag_mean": 0, "policy_lag_max": 0}
    words = picture(80, status(10, replay_size=1280.0, **lag)).split()
    assert words[words.index("warm-up") + 1 :][:2] == ["1.28k", "transitions"]
    shown = picture(80, status(10, policies=(PolicyStatus("red", replay_size=640.0, **lag),)))
    assert "sample age" in shown
    assert "0/0/0" not in shown


def test_lines_count_updates_per_agent_step_if_there_are_several_agents():
    assert "0.50 updates per agent step" in line_of(status(10, utd_ratio=0.5, agent_steps=40))


def test_lines_explain_the_update_ratio_the_sample_age_and_the_gradient_staleness():
    ages = {"sample_age_min": 0, "sample_age_mean": 40, "sample_age_max": 90}
    stale = {"gradient_staleness_min": 0, "gradient_staleness_mean": 1.5, "gradient_staleness_max": 3}
    text = line_of(status(10, utd_ratio=0.5, **ages, **stale))
    assert "0.50 updates per env step  sample age 0 to 90 (mean 40) updates" in text
    assert "gradient staleness 0 to 3 (mean 1.5) updates" in text


def test_return_evaluation_and_time_left_are_in_the_first_80_columns_of_a_line():
    clock, file = Clock(), io.StringIO()
    lines = Lines(file, clock=clock)
    for steps in (33_000, 33_900):
        clock.now += 10
        lines.update(status(steps, episode_return_mean=-205.6, eval_return_mean=223.0, best_eval_return_mean=223.0))
    beginning = file.getvalue().splitlines()[-1][:80]
    assert beginning.startswith(" 34% 33.9k/100k env steps  return -205.6  eval 223.0 (best 223.0)  ETA 12:14")


@pytest.mark.parametrize(
    ("value", "shown_value"), [(0.52, "0.52"), (5.278e-07, "5.28e-07"), (-5.278e-107, "-5.28e-107")]
)
@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_dashboard_shows_losses_kl_entropy_and_the_infos_that_are_logged(width, value, shown_value):
    learning = {"losses": {"policy": -0.0123, "value": value}, "approx_kl": 0.00521, "entropy": 0.612}
    shown = picture(width, status(42_000, **learning, infos={"success": 0.75, "distance": None}, **WAITS))
    assert len(shown.splitlines()) <= 25
    assert f"policy loss    -0.0123     value {shown_value} " in shown
    assert "KL             0.00521     entropy 0.612" in shown
    assert "success        0.75" in shown
    assert "distance       -" in shown
    assert WAITS["bottleneck"][-15:] in shown


def test_the_dashboard_counts_the_infos_for_which_a_low_terminal_has_no_room():
    shown = picture(
        80, status(42_000, infos={f"number_{index}": float(index) for index in range(40)}, **WAITS), height=24
    )
    assert len(shown.splitlines()) <= 24
    left_out = 40 - shown.count("number_")
    assert 0 < left_out < 40
    assert f"and {left_out} more" in shown
    assert "at most 1.59x over serial" in shown


def test_the_dashboard_shows_the_entropy_of_an_algorithm_without_a_kl_divergence():
    shown = picture(80, status(10, losses={"critic": 3.25}, entropy=1.5))
    assert "critic loss    3.25" in shown
    assert "entropy        1.5" in shown
    assert "KL" not in shown


# --- several agents and policies -----------------------------------------------------------------------------


def policies(number: int, **figures: Any) -> tuple[PolicyStatus, ...]:
    """Policies with the returns 0, -1, -2, ... and names that have the same length."""
    usual = {"policy_lag_min": 0, "policy_lag_mean": 0.5, "policy_lag_max": 1, "learning_rate": 3e-4}
    usual |= {"policy_loss": -0.0123, "agent_steps": 50_000}
    return tuple(
        PolicyStatus(f"team_{index:02}", episode_return_mean=0.0 - index, **{**usual, **figures})
        for index in range(number)
    )


def test_agent_steps_are_shown_beside_env_steps():
    world = status(50_000, agent_steps=150_000)
    assert "50k / 100k env steps, 150k agent steps" in picture(80, world)
    assert "agent steps" not in picture(80, status(50_000))
    assert "50k/100k env steps, 150k agent steps" in line_of(world)
    assert "agent steps" not in line_of(status(50_000))


def line_of(state: Status) -> str:
    file = io.StringIO()
    Lines(file).update(state)
    return file.getvalue()


@pytest.mark.parametrize(
    ("width", "header", "row"),
    [
        (
            80,
            "policies return agent steps     lag     lr   loss  Elo snapshots",
            "team_01   -1.00         50k 0/0.5/1 0.0003 -0.012 1216        12",
        ),
        (
            120,
            "policies  return  agent steps      lag  learning rate    loss   Elo  snapshots",
            "team_01    -1.00          50k  0/0.5/1         0.0003  -0.012  1216         12",
        ),
    ],
)
def test_the_dashboard_has_a_row_for_each_policy(width, header, row):
    shown = picture(width, status(10, policies=policies(3, elo=1215.7, snapshots=12.0), **WAITS), height=24)
    lines = [line[2:-2].rstrip() for line in shown.splitlines()]
    assert len(lines) <= 24
    assert {header, row, row.replace("_01", "_02").replace("-1.00", "-2.00")} <= set(lines)


def test_a_policy_with_a_replay_shows_its_sample_age_and_one_that_does_not_learn_that_it_is_fixed():
    ages: dict[str, Any] = {"sample_age_min": 0, "sample_age_mean": 40, "sample_age_max": 90}
    learns = PolicyStatus("learns", replay_size=1000.0, critic_loss=0.25, **ages)
    shown = picture(100, status(10, policies=(PolicyStatus("old", trained=False), learns)))
    cells = {line.split()[1]: line.split()[2:-1] for line in shown.splitlines() if len(line.split()) > 5}
    assert cells["policies"] == ["return", "agent", "steps", "sample", "age", "learning", "rate", "loss"]
    assert cells["learns"] == ["-", "-", "0/40/90", "-", "0.25"]
    assert cells["old"] == ["-", "-", "fixed", "-", "-"]


@pytest.mark.parametrize(("height", "in_one_row"), [(24, 3), (50, 1)])
@pytest.mark.parametrize("width", [80, 120])
def test_twenty_policies_fit_the_screen(width, height, in_one_row):
    shown = picture(width, status(10, policies=policies(20), **WAITS), height=height)
    lines = shown.splitlines()
    assert len(lines) <= height
    assert {len(line) for line in lines} == {width}
    assert WAITS["bottleneck"][:40] in shown
    assert max(line.count("team_") for line in lines) >= in_one_row
    assert shown.count("team_") == 20


@pytest.mark.parametrize("width", [80, 120])
def test_policies_that_do_not_fit_the_screen_are_counted(width):
    shown = picture(width, status(10, policies=policies(90), **WAITS), height=24)
    assert len(shown.splitlines()) <= 24
    assert WAITS["bottleneck"][:40] in shown
    hidden = 90 - shown.count("team_")
    assert 0 < hidden < 80
    assert f"and {hidden} more: see metrics.jsonl" in shown


@pytest.mark.parametrize("number", [1, 2, 3, 40])
@pytest.mark.parametrize("width", [5, 20, 40])
def test_policies_on_a_narrow_or_low_terminal_are_drawn_without_a_crash(width, number):
    shown = picture(width, status(5, policies=policies(number)), height=5)
    assert max(len(line) for line in shown.splitlines()) <= width


def test_lines_name_the_return_of_each_policy_and_of_many_the_lowest_and_the_highest():
    assert "return 1.50 (team_00 0.00, team_01 -1.00)  " in line_of(
        status(10, episode_return_mean=1.5, policies=policies(2))
    )
    assert "(team_19 -19.0, team_00 0.00)  " in line_of(status(10, policies=policies(20)))
    assert "return -  " in line_of(status(10, policies=tuple(PolicyStatus(f"new_{index}") for index in range(20))))


def test_a_league_of_one_policy_shows_its_rating():
    assert "Elo            1216        12 snapshots" in picture(80, status(10, elo=1215.7, snapshots=12.0))
    assert "  Elo 1216" in line_of(status(10, elo=1215.7))


# --- when it is drawn ---------------------------------------------------------------------------------------


def test_the_dashboard_is_redrawn_at_most_once_per_interval_and_at_the_end():
    clock, file = Clock(), io.StringIO()
    dashboard = Dashboard(Console(file=file, force_terminal=True, width=80), clock=clock)
    dashboard.start(ABOUT)
    dashboard.update(status(10_000))
    drawn = file.tell()
    dashboard.update(status(20_000))
    assert file.tell() == drawn
    clock.now += 0.3
    dashboard.update(status(30_000))
    assert "30%" in file.getvalue()[drawn:]
    dashboard.update(status(99_000))
    dashboard.message("actor 1 was started again")
    drawn = file.tell()
    dashboard.close("finished: 99,000 env steps")
    shown = file.getvalue()
    assert "20%" not in shown
    assert "99%" in shown[drawn:]
    assert "ended" in shown[drawn:]  # not the phase of the last update
    assert "training" not in shown[drawn:]
    assert "actor 1 was started again" in shown
    assert shown.rstrip().endswith("finished: 99,000 env steps")


def test_lines_are_printed_every_few_seconds_and_at_the_end():
    clock, file = Clock(), io.StringIO()
    lines = Lines(file, clock=clock)
    lines.start(ABOUT)
    for second in range(8):
        clock.now = 100.0 + second
        lines.update(status(1000 * second, phase="evaluating", updates_refused=2))
    lines.message("a word")
    lines.close("finished")
    told = file.getvalue().splitlines()
    topology = "processes, 4 actors x 16 envs, max_lag 1, cpu"
    assert told[0] == f"ppo on CartPole-v1 (preset ppo-cartpole-v1): {topology}, runs/ppo-CartPole-v1"
    assert [line.split()[0] for line in told[1:]] == ["0%", "5%", "a", "7%", "finished"]
    assert "SPS 1k UPS 100" in told[2]
    assert "ETA 1:35" in told[2]
    assert told[2].endswith("2 updates refused  evaluating")


def test_the_time_left_is_at_most_that_of_the_limit_in_seconds():
    rates, clock, file = Rates(), Clock(), io.StringIO()
    lines = Lines(file, every_s=0.0, clock=clock)
    for second in range(6):
        clock.now = float(second)
        rates.add(clock.now, 1000 * second, 0)
        lines.update(status(1000 * second, limit_s=30.0))
    assert file.getvalue().count("ETA 0:30") == 6, "also before the SPS is known"
    assert "ETA 0:30" in picture(100, status(5000, limit_s=30.0), rates=rates)
    assert "ETA 1:35" in picture(100, status(5000, limit_s=300.0), rates=rates)


@pytest.mark.parametrize(
    ("env_steps", "shown"), [(99_400, "99%"), (99_999, "99%"), (100_000, "100%"), (100_500, "100%")]
)
def test_a_run_is_shown_as_complete_only_at_its_end(env_steps, shown):
    assert line_of(status(env_steps)).lstrip().startswith(f"{shown} ")
    assert f"{shown}  " in picture(80, status(env_steps))


def test_the_summary_follows_the_dashboard_on_a_line_of_its_own_where_there_is_no_terminal():
    file = io.StringIO()
    dashboard = Dashboard(Console(file=file, width=80))
    dashboard.start(ABOUT)
    dashboard.update(status(5000))
    dashboard.close("finished: learned from 5000 env steps")
    assert file.getvalue().splitlines()[-1] == "finished: learned from 5000 env steps"


@pytest.mark.parametrize(("stop_at", "eta"), [(None, "1:35"), (50_000, "0:45"), (200_000, "1:35")])
def test_the_time_left_is_that_until_the_part_of_the_run_ends(stop_at, eta):
    clock, file, rates = Clock(), io.StringIO(), Rates()
    lines = Lines(file, clock=clock)
    for second in (0, 5):
        clock.now = 100.0 + second
        rates.add(clock.now, 1000 * second, 0)
        lines.update(status(1000 * second, stop_at=stop_at))
    assert f"ETA {eta}" in file.getvalue()
    assert f"ETA {eta}" in picture(100, status(5000, stop_at=stop_at), rates=rates)


def test_lines_show_waits_and_at_the_end_the_bottleneck_report():
    file = io.StringIO()
    lines = Lines(file)
    lines.start(ABOUT)
    lines.update(status(1000, **WAITS))
    lines.update(status(2000, **{**WAITS, "bottleneck": "lag-bound: another word"}))
    lines.close("finished")
    told = file.getvalue().splitlines()
    assert told[1].endswith("waits actors 71% learner 2%  2 restarts")
    assert told[-2:] == ["lag-bound: another word", "finished"]


def test_lines_can_be_written_in_any_encoding():
    file = io.StringIO()
    lines = Lines(file)
    lines.start(ABOUT)
    lines.update(status(1000))
    lines.close("")
    assert file.getvalue().isascii()


def test_a_view_that_never_started_can_be_closed():
    file = io.StringIO()
    Dashboard(Console(file=file)).close("refused")
    assert file.getvalue().strip() == "refused"


# --- which one, and how it leaves the terminal --------------------------------------------------------------


def test_progress_lines_are_used_without_a_terminal():
    assert isinstance(make_view(None, io.StringIO()), Lines)
    assert isinstance(make_view("none", io.StringIO()), Silent)
    assert isinstance(make_view("dashboard", io.StringIO()), Dashboard)


@pytest.mark.parametrize("kind", [None, "lines", "dashboard"])
def test_a_process_without_standard_error_is_shown_no_progress(kind):
    assert isinstance(make_view(kind, None), Silent)


def test_the_dashboard_is_used_on_a_terminal_that_can_redraw(monkeypatch):
    _, inner = pty.openpty()
    with os.fdopen(inner, "w") as terminal:
        monkeypatch.setenv("TERM", "xterm")
        assert isinstance(make_view(None, terminal), Dashboard)
        monkeypatch.setenv("TERM", "dumb")
        assert isinstance(make_view(None, terminal), Lines)


DIES = """
import sys
from tests.support.progress import ABOUT, status
from offbeat.metrics.progress.dashboard import make_view
view = make_view("dashboard", sys.stdout)
view.start(ABOUT)
view.update(status(5000))
{death}
"""


@pytest.mark.parametrize("death", ["1 / 0", "raise KeyboardInterrupt", "import os, signal; os.kill(os.getpid(), 2)"])
def test_a_failed_run_shows_the_cursor_again(death):
    shown = run_in_terminal(DIES.format(death=death))
    assert "ppo on CartPole-v1" in shown
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l") >= 0
    assert "Error" in shown or "KeyboardInterrupt" in shown


IN_BACKGROUND = """
import os, subprocess, sys
program = '''
import os, sys
from tests.support.progress import ABOUT, status
from offbeat.metrics.progress.dashboard import make_view
view = make_view("dashboard", sys.stdout)
{before}
view.start(ABOUT)
view.update(status(5000))
{after}
view.close("finished")
'''
child = subprocess.Popen([sys.executable, "-c", program])
_, ended = os.waitpid(child.pid, os.WUNTRACED)
child.kill()
print("stopped by the terminal" if os.WIFSTOPPED(ended) else "ended")
"""
"""A shell that starts a program and keeps the terminal in its own foreground."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_dashboard_in_the_background_is_not_stopped_by_the_terminal(when):
    """A program is in the background from the start with `&`, and from later on with Ctrl-Z and `bg`."""
    leave = {"before": "", "after": "", when: "os.setpgid(0, 0)"}
    assert run_in_terminal(IN_BACKGROUND.format(**leave)).rstrip().endswith("ended")


def run_in_terminal(program: str) -> str:
    """Run a Python program in a terminal of its own; return all that it wrote there."""
    child, terminal = pty.fork()
    if child == 0:
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
        os.execve(sys.executable, [sys.executable, "-c", program], environment)
    shown = b""
    try:
        while data := os.read(terminal, 4096):
            shown += data
    except OSError:  # a terminal that nobody holds any more
        pass
    os.waitpid(child, 0)
    os.close(terminal)
    return shown.decode()


# --- notebooks ------------------------------------------------------------------------------------------------


def test_in_a_notebook_the_last_line_is_replaced_and_messages_stay():
    shown: list[str] = []
    clock = Clock()
    view = NotebookLines(shown.append, clock=clock)
    view.start(ABOUT)
    view.update(status(1000))
    clock.now += 10
    view.update(status(2000))
    view.message("a message")
    title, *rest = shown[-1].splitlines()
    assert title.startswith("ppo on CartPole-v1")
    assert rest[0] == "a message"
    assert rest[-1].lstrip().startswith("2%")
    assert shown[-1].count("env steps") == 1
    assert len(shown) == 4


def test_in_a_notebook_the_end_of_a_run_is_below_its_last_line_which_has_no_phase():
    shown: list[str] = []
    view = NotebookLines(shown.append)
    view.start(ABOUT)
    view.update(replace(status(2000), phase="saving", bottleneck="serial: slow"))
    assert shown[-1].endswith("saving")
    view.close("the end")
    *_, line, bottleneck, end = shown[-1].splitlines()
    assert line.lstrip().startswith("2%")
    assert "saving" not in shown[-1]
    assert (bottleneck, end) == ("serial: slow", "the end")


def test_the_last_line_of_a_run_has_no_phase():
    stream = io.StringIO()
    view = Lines(stream, clock=Clock())
    view.update(status(1000))
    view.update(replace(status(2000), phase="saving"))
    view.close("")
    assert "saving" not in stream.getvalue()


class OnlyIPython:
    """The functions of IPython that are used, without IPython: what is displayed, and how often it is replaced."""

    def __init__(self, *, has_kernel: bool) -> None:
        self.shown: list[str] = []
        self.cells = 0
        shell = SimpleNamespace(kernel=None) if has_kernel else SimpleNamespace()
        self.get_ipython = lambda: shell
        self.display = SimpleNamespace(display=self._display)

    def _display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> OnlyIPython:
        assert raw
        assert display_id
        self.cells += 1
        self.update(data, raw=raw)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(data["text/plain"])


def test_in_a_kernel_lines_are_displayed_once_and_then_replaced(monkeypatch):
    ipython = OnlyIPython(has_kernel=True)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    stream = io.StringIO()
    view = make_view("lines", stream)
    view.start(ABOUT)
    view.update(status(1000))
    view.message("a message")
    assert stream.getvalue() == ""
    assert (ipython.cells, len(ipython.shown)) == (1, 3)
    assert ipython.shown[-1].startswith("ppo on CartPole-v1")


def test_a_notebook_which_has_no_terminal_shows_lines_in_place_of_a_dashboard(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", OnlyIPython(has_kernel=True))
    assert isinstance(make_view("dashboard", io.StringIO()), NotebookLines)


@pytest.mark.parametrize(
    ("name", "shown"), [("a.png", ["Image a.png"]), ("a.SVG", ["SVG a.SVG"]), ("a.pdf", [])], ids=lambda value: value
)
def test_a_notebook_shows_the_pictures_that_a_browser_can_show(monkeypatch, name, shown):
    displayed: list[str] = []
    display = SimpleNamespace(
        display=displayed.append,
        Image=lambda filename: f"Image {filename}",
        SVG=lambda filename: f"SVG {filename}",
    )
    shell = SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=display))
    show_picture(Path(name))
    assert displayed == shown


def test_a_program_without_a_kernel_shows_no_pictures(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", OnlyIPython(has_kernel=False))
    show_picture(Path("there_is_no_such_file.png"))


@pytest.mark.parametrize("ipython", [None, OnlyIPython(has_kernel=False)], ids=["no IPython", "IPython in a terminal"])
def test_a_program_without_a_kernel_has_lines(monkeypatch, ipython):
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert type(make_view("lines", io.StringIO())) is Lines


def test_the_views_say_what_is_collected_before_a_run_learns_from_anything():
    says = "collecting the first batch of up to 2,048 env steps (1 of 2 unrolls)"
    first = status(0, first_batch=FirstBatch(1, 2, 2048))
    stream = io.StringIO()
    Lines(stream).update(first)
    assert says in stream.getvalue()
    assert says in picture(100, first)
    assert "collecting" not in picture(100, status(2048))


def test_a_run_shows_how_much_of_its_first_batch_is_collected(tmp_path, monkeypatch):
    shown: list[Status] = []
    monkeypatch.setattr(run_metrics, "SHOW_EVERY_S", 0.0)
    monkeypatch.setattr(Lines, "update", lambda _self, status: shown.append(status))
    batch = 3 * 16 * 4
    small_run(tmp_path / "run", runtime="serial", actors=3, progress="lines", steps=3 * batch, stop_at=2 * batch)
    batches = [status.first_batch for status in shown if status.first_batch]
    assert batches == [FirstBatch(acted, 3, batch) for acted in (0, 1, 2)]
    assert shown[-1].first_batch is None
    assert shown[-1].ends_at == 2 * batch
