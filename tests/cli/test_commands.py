"""Each command, as typed: what it prints, what it writes and how it exits."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from tests.support.registries import registries_kept
from tests.support.runs import contents, lines_of, offbeat, small_arguments, small_run, status_of, weights_of
from tests.support.thorough import thorough

import offbeat as package
from offbeat.cli import main
from offbeat.cli.bench import _table
from offbeat.cli.eval import scores_text
from offbeat.envs.make import make_envs


class Terminal(io.StringIO):
    """An output, as if it were a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    settings: dict[str, Any] = {"eval_every": 500, "eval_episodes": 3, "steps": 1500}
    return small_run(tmp_path_factory.mktemp("finished") / "run", **settings).path


# --- train and resume ---------------------------------------------------------------------------------------


def test_train_finishes_and_prints_the_next_command(tmp_path):
    said = offbeat(*small_arguments(tmp_path / "run", steps=500))
    assert said.code == 0
    assert said.out.startswith("finished: learned from")
    assert f"offbeat eval {tmp_path / 'run'}" in said.out
    assert "env steps" in said.err
    assert status_of(tmp_path / "run")["state"] == "finished"


@pytest.mark.parametrize(("steps", "verbs"), [(64, ["resume"]), (512, ["resume", "plot"])])
def test_the_next_commands_have_a_plot_only_if_an_episode_has_ended(tmp_path, steps, verbs):
    path = tmp_path / "run"
    said = offbeat(*small_arguments(path, "Pendulum-v1", steps=1024, stop_at=steps, max_episode_steps=100))
    commands = [line.removeprefix("  next:").strip() for line in said.out.splitlines()[1:]]
    assert commands == [f"offbeat {verb} {path}" for verb in verbs]


@pytest.mark.parametrize(
    ("env", "verbs"),
    [
        ("offbeat.envs.testing.games:Nim", ["eval", "match", "plot"]),
        ("offbeat.envs.testing.worlds:CartPoles", ["eval", "plot"]),  # three sides, each with a policy of its own
    ],
)
def test_the_next_commands_of_a_league_have_a_match_if_its_players_can_meet(env, verbs, tmp_path):
    path = tmp_path / "run"
    said = offbeat(*small_arguments(path, env, steps=256, league="true", policies="separate"))
    commands = [line.removeprefix("  next:").strip() for line in said.out.splitlines()[1:]]
    assert commands == [f"offbeat {verb} {path}" for verb in verbs]


def test_the_next_commands_of_a_run_whose_path_has_a_space_can_be_run_as_printed(tmp_path):
    said = offbeat(*small_arguments(tmp_path / "my run", steps=256))
    commands = [shlex.split(line.removeprefix("  next:")) for line in said.out.splitlines()[1:]]
    assert [command[:2] for command in commands] == [["offbeat", "eval"], ["offbeat", "plot"]]
    for _, *arguments in commands:
        done = offbeat(*arguments)
        assert done.code == 0, done.err


def test_flags_and_set_reach_the_same_settings(tmp_path):
    flags = ["--steps", "500", "--seed", "4", "--actors", "2", "--envs-per-actor", "2", "--max-lag", "1"]
    more = ["--eval-every", "0", "--set", "minibatch_size=32", "--set", "epochs=2", "unroll_length=16"]
    said = offbeat("train", "ppo", "CartPole-v1", *flags, *more, "--run-dir", tmp_path / "a", "--progress", "none")
    layout: dict[str, Any] = {"actors": 2, "envs_per_actor": 2, "max_lag": 1, "unroll_length": 16}
    settings: dict[str, Any] = {"steps": 500, "seed": 4, "eval_every": 0, "minibatch_size": 32, "epochs": 2}
    same = package.train("ppo", "CartPole-v1", run_dir=tmp_path / "b", **layout, **settings)
    assert said.code == 0
    assert said.err == ""
    assert weights_of(tmp_path / "a") == weights_of(same.path)


@pytest.mark.parametrize("stop", [["--stop-at", "300"], ["--time", "0.05"]], ids=lambda stop: stop[0])
def test_a_run_stopped_by_a_limit_exits_0_and_prints_the_resume_command(tmp_path, stop):
    path = tmp_path / "run"
    said = offbeat(*small_arguments(path, steps=10**8), *stop)
    assert said.code == 0
    assert said.out.startswith("interrupted: stopped a")
    assert f"offbeat resume {path}" in said.out
    assert status_of(path)["state"] == "interrupted"
    done = lines_of(path)[-1]["env_steps"]
    assert offbeat("resume", path, "--steps", done + 200, "--progress", "none").code == 0
    assert lines_of(path)[-1]["env_steps"] >= done + 200


def test_the_typed_command_is_saved_in_the_run_directory(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["offbeat", "train", "ppo", "a b"])
    path = small_run(tmp_path / "run", steps=64).path
    assert (path / "command.txt").read_text() == "offbeat train ppo 'a b'\n"


@pytest.mark.parametrize(
    "words", [["train", "ppo", "NoSuchEnv-v0"], ["resume", "no-such-run"]], ids=lambda words: words[0]
)
def test_a_command_that_loads_for_seconds_says_on_a_terminal_that_it_starts(monkeypatch, words):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert main.run(words) == 2
    assert "starting" in terminal.getvalue()


# --- eval ---------------------------------------------------------------------------------------------------

EVAL_KEYS = (
    "episodes cut not_begun return_mean return_std return_min return_max length_mean returns lengths "
    "env_steps learning_step updates"
)


def evaluate(*arguments: object) -> dict[str, Any]:
    said = offbeat("eval", *arguments, "--json")
    assert (said.code, said.err) == (0, "")
    figures: dict[str, Any] = json.loads(said.out)
    return figures


def test_eval_json_prints_one_object_with_the_documented_keys(run):
    figures = evaluate(run, "--episodes", 7)
    assert " ".join(figures) == EVAL_KEYS
    assert figures["episodes"] == 7
    assert figures["return_min"] <= figures["return_mean"] <= figures["return_max"]
    assert figures["return_mean"] == figures["length_mean"]  # CartPole pays 1 a step
    last = lines_of(run)[-1]
    assert [figures[name] for name in ("env_steps", "learning_step", "updates")] == [
        last[name] for name in ("env_steps", "learning_step", "updates")
    ]


def test_eval_plays_the_same_episodes_as_a_loaded_policy(run):
    policy, episodes = package.load(run), 6
    envs = make_envs("CartPole-v1", episodes, seed=11, role="eval")
    observation, lengths, playing = envs.reset()["observation"], np.zeros(episodes), np.ones(episodes, bool)
    while playing.any():
        envs.send(policy(observation))
        outcome = envs.recv()
        observation = outcome.observation["observation"]
        lengths += playing
        playing &= ~(outcome.terminated | outcome.truncated)
    envs.close()
    figures = evaluate(run, "--episodes", episodes, "--seed", 11)
    assert (figures["return_mean"], figures["return_min"]) == (lengths.mean(), lengths.min())
    assert figures["returns"] == figures["lengths"] == lengths.tolist()


def test_eval_is_reproducible_and_depends_on_seed_sampling_and_checkpoint(run):
    greedy = evaluate(run)
    assert greedy == evaluate(run)
    others = [evaluate(run, "--seed", 1), evaluate(run, "--sampled")]
    assert all(other["return_mean"] != greedy["return_mean"] for other in others)
    best = evaluate(run, "--checkpoint", "best")
    assert best["env_steps"] == package.load(run, "best").trained.env_steps


def test_eval_without_json_prints_a_sentence_and_changes_no_file(run):
    before = contents(run)
    said = offbeat("eval", run, "--episodes", 3)
    assert said.code == 0
    assert said.out.startswith("CartPole-v1, greedy, 3 episodes: return ")
    assert offbeat("eval", run, "--episodes", 1).out.startswith("CartPole-v1, greedy, 1 episode: return ")
    assert contents(run) == before


def test_eval_prints_no_rounding_error_as_the_deviation_and_the_means_of_numbers_in_infos():
    returns = {"return_mean": -1.5, "return_std": 3.7e-9, "return_min": -1.5, "return_max": -1.5, "length_mean": 30.0}
    text = scores_text({**returns, "info/success": 0.25, "env_steps": 12})
    assert text == "return -1.50 +- 0.0 (from -1.50 to -1.50), length 30.0, info/success 0.250"
    assert "+- 0.0000100 (" in scores_text({**returns, "return_std": 1e-5})


# --- watch and plot -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "magic"), [("episode.mp4", b"ftyp"), *thorough(("episode.gif", b"GIF8"))])
def test_watch_writes_a_video_of_a_whole_episode(run, tmp_path, name, magic):
    for module in ("pygame", "imageio", "imageio_ffmpeg"):
        pytest.importorskip(module)
    said = offbeat("watch", run, "--video", tmp_path / name, "--seed", 3)
    assert said.code == 0
    assert magic in (tmp_path / name).read_bytes()[:12]
    env, policy, length, ended = gymnasium.make("CartPole-v1"), package.load(run), 0, False
    observation, _ = env.reset(seed=3)
    while not ended:
        observation, _, terminated, truncated, _ = env.step(policy(observation))
        length, ended = length + 1, terminated or truncated
    assert f"return {length:.1f} in {length} env steps" in said.out


def test_plot_draws_a_picture_over_the_given_x_axis_and_prints_its_path(run, tmp_path):
    out = tmp_path / "curve.svg"
    said = offbeat("plot", run, "--x", "frames", "--out", out)
    assert said.code == 0
    assert str(out) in said.out
    assert "<!-- frames -->" in out.read_text()


def test_plot_draws_the_moving_average_with_the_average_flag(run, tmp_path):
    out = tmp_path / "curve.svg"
    assert offbeat("plot", run, "--average", "--out", out).code == 0
    assert "average over 100 points" in out.read_text()


def test_plot_draws_metrics_with_a_title_and_labels_of_ones_own(run, tmp_path):
    out = tmp_path / "curve.svg"
    chosen = ("--metric", "return", "--metric", "entropy", "--label", "mine", "--title", "Two panels")
    assert offbeat("plot", run, *chosen, "--out", out).code == 0
    text = out.read_text()
    assert all(f"<!-- {name} -->" in text for name in ("episode return", "entropy", "Two panels", "evaluation, mine"))


# --- bench --------------------------------------------------------------------------------------------------

BENCH_KEYS = (
    "cores c_env_us c_act_us c_learn_us env_wait_us limit_sps layout_limit_sps serial_limit_sps achieved_sps fraction "
    "layout_fraction overlap_gain_max bound_by policy_lag_mean policy_lag_max "
    "other_cores overlap_gain layouts failed_layouts advice"
)


def test_bench_json_prints_one_object_with_the_documented_keys_and_consistent_values(monkeypatch):
    monkeypatch.setattr("offbeat.tuning.bench.SECONDS", 0.05)
    # A short measurement on a busy machine may well be wrong, and says so; here only what is printed is judged.
    monkeypatch.setattr("offbeat.tuning.bench.MAX_FRACTION", 1000.0)
    small = ["--seconds", "0.1", "--max-lag", "2", "--set", "unroll_length=16", "minibatch_size=64"]
    said = offbeat("bench", "ppo", "CartPole-v1", "--json", *small)
    assert said.code == 0
    figures = json.loads(said.out)
    assert " ".join(figures) == BENCH_KEYS
    total = sum(figures[f"c_{part}_us"] for part in ("env", "act", "learn"))
    assert figures["serial_limit_sps"] == figures["layout_limit_sps"] == pytest.approx(1e6 / total)
    assert figures["limit_sps"] == pytest.approx(1e6 * figures["cores"] / total)
    assert figures["fraction"] == pytest.approx(figures["achieved_sps"] / figures["limit_sps"])
    assert figures["policy_lag_max"] == 2
    assert figures["bound_by"] in ("actors", "learner")
    serial, processes = figures["layouts"]
    assert [layout["runtime"] for layout in figures["layouts"]] == ["serial", "processes"]
    assert serial["achieved_sps"] == figures["achieved_sps"]
    assert figures["overlap_gain"] == pytest.approx(processes["achieved_sps"] / serial["achieved_sps"])
    assert min(layout["predicted_sps"] for layout in figures["layouts"]) > 0
    shown = _table(figures).splitlines()
    assert any(re.fullmatch(r"  serial, 1 actor x 8 envs +[\d,]+ +[\d,]+ +\d+%", line) for line in shown)
    assert any(re.fullmatch(r"  processes, \d actors? x \d envs? +[\d,]+ +[\d,]+ +\d+%", line) for line in shown)
    assert figures["advice"] in shown
    assert 1 <= figures["overlap_gain_max"] <= 2


def test_bench_act_only_measures_acting_alone(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    said = offbeat("bench", "ppo", "CartPole-v1", "--act-only", "--seconds", "0.1", "--json")
    assert said.code == 0
    assert json.loads(said.out)["act_only_sps"] > 0
    assert not any(tmp_path.iterdir())


# --- the rest -----------------------------------------------------------------------------------------------


def test_check_passes_a_sound_env_and_fails_a_broken_one():
    assert offbeat("check", "CartPole-v1").code == 0
    said = offbeat("check", "zoo/NaNReward-v0", "--import", "tests.sample_envs.env_zoo")
    assert said.code == 1
    assert "error: the reward is NaN" in said.out


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("envs", ["CartPole-v1", "offbeat/OneStep-v0"]),
        ("algorithms", ["ppo", "impala", "a2c"]),
        ("presets", ["ppo-cartpole-v1", "ppo-halfcheetah-v5"]),
    ],
)
def test_list_shows_the_available_names(what, names):
    said = offbeat("list", what)
    assert said.code == 0
    listed = [line.split()[0] for line in said.out.splitlines()]
    assert [name for name in names if name not in listed] == []


def test_list_settings_prints_a_line_of_tab_separated_texts_for_each_setting():
    said = offbeat("list", "settings", "ppo", "--env", "CartPole-v1")
    assert (said.code, said.err) == (0, "")
    names, *rows = (line.split("\t") for line in said.out.splitlines())
    assert names == ["table", "key", "takes", "default", "preset", "meaning"]
    assert {len(row) for row in rows} == {len(names)}
    (gamma,) = (row for row in rows if row[1] == "gamma")
    meaning = "Discount per env step; in envs with rows without a decision, per decision."
    assert gamma == ["ppo", "gamma", "a number at least 0 and at most 1", "0.99", "0.98", meaning]


@pytest.mark.parametrize("width", [80, 200])
def test_list_settings_fits_the_terminal(monkeypatch, width):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    assert main.run(["list", "settings", "sac", "--env", "Pendulum-v1"]) == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    assert {"[sac]", "[runtime]", "[env]", "[run]", "[league]"} <= set(lines)
    assert any(line.startswith("  warmup = 5000   preset: ") for line in lines)
    assert "The preset of Pendulum-v1 is sac-pendulum-v1." in lines


def test_list_settings_shows_those_of_an_algorithm_that_an_imported_module_registers():
    own = "tests.support.own_names"
    with registries_kept(own):
        said = offbeat("list", "settings", "careful", "--import", own)
    (line,) = [line for line in said.out.splitlines() if line.startswith("careful\tdoubt\t")]
    assert line.endswith("\t0.25\t\tShare of each target that is not believed.")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["settings"], "offbeat list settings ppo"),
        (["settings", "pppo"], "'ppo'"),
        (["envs", "ppo"], "only settings are listed"),
        (["presets", "--env", "CartPole-v1"], "leave it out"),
    ],
)
def test_list_refuses_what_it_cannot_list(arguments, says):
    said = offbeat("list", *arguments)
    assert said.code == 2
    assert says in said.err


def test_doctor_reports_installed_packages():
    said = offbeat("doctor")
    assert said.code == 0
    for word in ("python", "cores", "torch", "gymnasium", "mujoco", "gpu"):
        assert word in said.out


def test_help_lists_every_command_and_each_command_has_help():
    from offbeat.cli.main import COMMANDS

    said = offbeat("--help")
    assert said.code == 0
    assert [command for command in COMMANDS if command not in said.out] == []
    for command in COMMANDS:
        helped = offbeat(command, "--help")
        assert helped.code == 0
        assert helped.out.startswith(f"usage: offbeat {command} ")
        assert not re.search(r"\bdocs/|\w\.md\b", helped.out), "pip does not install the documentation"


@pytest.mark.parametrize(
    ("stream", "arguments"),
    [
        ("stderr", ["eval", "RUN", "--episodes", "x"]),
        ("stdout", ["eval", "RUN", "--episodes", "1"]),
        ("stdout", ["--help"]),
    ],
)
def test_messages_and_results_on_a_terminal_have_no_break_within_a_word(run, stream, arguments, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, stream, terminal)
    main.run([str(run) if word == "RUN" else word for word in arguments])
    lines = terminal.getvalue().splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 80 for line in lines)


def test_the_version_flag_prints_the_version():
    assert offbeat("--version").out.strip() == f"offbeat {package.__version__}"


def test_python_m_offbeat_is_the_same_command():
    command = [sys.executable, "-m", "offbeat", "eval", "no/such/run"]
    refused = subprocess.run(command, check=False, capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr.startswith("offbeat: ")


def test_progress_is_written_in_lines_where_there_is_no_terminal(run, monkeypatch):
    monkeypatch.setattr("offbeat.cli.output.LINE_EVERY_S", 0.0)
    assert "episodes: 3 of 3" in offbeat("eval", run, "--episodes", "3").err
    assert "episodes:" not in offbeat("eval", run, "--episodes", "3", "--json").err


def test_watch_without_a_display_is_refused_at_once(run, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    said = offbeat("watch", str(run))
    assert said.code == 2
    assert "no window can be opened" in said.err
    assert "--video" in said.err


def test_watch_of_an_env_without_pictures_does_not_propose_a_video(tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    path = small_run(tmp_path / "run", "offbeat.envs.testing.games:Nim", steps=256).path
    said = offbeat("watch", path)
    assert said.code == 2
    assert "cannot be rendered here" in said.err
    assert "--video" not in said.err
