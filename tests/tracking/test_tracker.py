"""A tracker is told all, and can do a run no harm: runs with one, real or fake, end as they do without."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.soak.processes import descendants
from tests.support.process_state import open_descriptors
from tests.support.runs import (
    GROUP,
    HURRIED,
    OFFBEAT,
    Started,
    is_alive,
    lines_of,
    offbeat,
    small_arguments,
    small_run,
    status_of,
    wait_until,
    weights_of,
)
from tests.support.thorough import thorough
from tests.support.wandb_files import written_in
from tests.support.wandb_server import wandb_server
from tests.support.warm import REPOSITORY

from offbeat import ConfigError, resume
from offbeat.config.resolve import resolve
from offbeat.metrics.names import tag_of
from offbeat.run_directory.directory import RunDirectory
from offbeat.tracking import follower, tracker
from offbeat.tracking.follower import NEW_LINE, STATES
from offbeat.tracking.starters import StartedRun, TrackerLaunch
from offbeat.tracking.tracker_file import TrackerFile

FAKES = str(REPOSITORY / "tests/support/fake_trackers")
SHORT: dict[str, Any] = {"steps": 640}
FOR_EVER: dict[str, Any] = {
    "env": "runs/Unhurried-v0",
    "imports": ("tests.sample_envs.run_envs",),
    "steps": 500_000,
    "log_every": 250,
}
"""Longer than any test waits; most of the time it sleeps."""


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """W&B as on a machine without a network, and without an account."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)


@pytest.fixture
def fake_tracker(monkeypatch, tmp_path):
    """A stand-in for Trackio; returns the folder of what it was told."""
    monkeypatch.syspath_prepend(FAKES)
    monkeypatch.setenv("STRANGE_TRACKER_FOLDER", str(tmp_path))
    monkeypatch.delenv("TRACKIO_PROJECT", raising=False)
    return tmp_path


def tracked_lines(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def tagged(line: dict[str, Any]) -> dict[str, float]:
    """What a tracker is to be told of a metrics line."""
    return {tag_of(name): value for name, value in line.items() if value is not None}


def by_step(lines: list[dict[str, Any]]) -> list[tuple[int, dict[str, float]]]:
    """What W&B makes of lines: those of one step become one."""
    history: dict[int, dict[str, float]] = {}
    for line in lines:
        history.setdefault(line["env_steps"], {}).update(tagged(line))
    return list(history.items())


def logged(path: Path) -> str:
    return (path / "log.txt").read_text()


# --- Weights & Biases, for real -----------------------------------------------------------------------------


@pytest.mark.usefixtures("offline")
def test_wandb_receives_each_line_and_all_settings_and_a_resume_continues_the_same_run(tmp_path, monkeypatch, capfd):
    path = tmp_path / "run"
    with monkeypatch.context() as patches:
        for name in [name for name in sys.modules if name.partition(".")[0] == "wandb"]:
            patches.delitem(sys.modules, name)
        mine = state_of_process()
        small_run(path, steps=640, stop_at=320, tracker="wandb")
        before = len(lines_of(path))
        resume(path, steps=960, progress="none")
        assert state_of_process() == mine
    assert capfd.readouterr() == ("", "")
    first, second = written_in(path)
    lines = lines_of(path)
    assert first.history == by_step(lines[:before])
    assert second.history == by_step(lines[before:])
    assert first.history[-1][0] < second.history[0][0]
    assert (first.exit_code, second.exit_code) == (0, 0)  # stop_at was reached, finished
    assert first[:3] == second[:3] == (first.id, "run", "offbeat")
    assert first.config["ppo"]["learning_rate_schedule"] == "linear"
    assert (first.config["run"]["steps"], second.config["run"]["steps"]) == (640, 960)


@pytest.mark.usefixtures("offline")
def test_disabled_wandb_writes_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    run = small_run(tmp_path / "run", **SHORT, tracker="wandb")
    assert run.state == "finished"
    assert not (run.path / "wandb").exists()


@pytest.mark.usefixtures("offline")
def test_wandb_without_an_account_is_refused_with_a_message_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    said = offbeat(*small_arguments(tmp_path / "run", **SHORT, tracker="wandb"))
    assert said.code == 2
    assert "wandb login" in said.err
    assert "WANDB_MODE=offline" in said.err
    assert not (tmp_path / "run").exists()


def state_of_process() -> list[Any]:
    """Return what W&B changes in a process that it is used in."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGWINCH)]
    return [*handlers, sys.excepthook, sys.exit, sys.stdout, sys.stderr, "wandb" in sys.modules]


@pytest.mark.usefixtures("offline", "fresh_children")
def test_ctrl_c_ends_the_wandb_run_of_the_project_and_name_of_the_environment_as_interrupted(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "walking")
    monkeypatch.setenv("WANDB_NAME", "first steps")
    path = tmp_path / "run"
    started = Started(small_arguments(path, **FOR_EVER, tracker="wandb"), tmp_path, GROUP)
    started.wait_until(lambda: len(lines_of(path)) > 0)
    children = descendants(started.process.pid)
    assert len(children) >= 2  # the process that follows the run, and W&B's own
    os.killpg(started.process.pid, signal.SIGINT)
    said = started.end()
    assert said.code == 130
    assert "Traceback" not in said.err
    wait_until(lambda: not any(map(is_alive, children)), 30)
    (written,) = written_in(path)
    assert (written.project, written.name, written.exit_code) == ("walking", "first steps", 255)
    assert written.history == by_step(lines_of(path))


@pytest.mark.usefixtures("offline")
def test_no_process_of_wandb_outlives_a_killed_run(tmp_path):
    path = tmp_path / "run"
    started = Started(small_arguments(path, **FOR_EVER, tracker="wandb"), tmp_path)
    started.wait_until(lambda: len(lines_of(path)) > 0)
    children = descendants(started.process.pid)
    started.end(signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, children)), 30)


@pytest.mark.parametrize("victim", ["follower", *thorough("wandb-core")])
@pytest.mark.usefixtures("offline", "fresh_children")
def test_a_run_continues_after_the_processes_of_wandb_are_killed(tmp_path, victim):
    path = tmp_path / "run"
    started = Started(small_arguments(path, **FOR_EVER, tracker="wandb"), tmp_path)
    started.wait_until(lambda: len(lines_of(path)) > 0)
    children = descendants(started.process.pid)
    (found,) = [pid for pid in children if victim in Path(f"/proc/{pid}/cmdline").read_text().split("\0--")[0]]
    os.kill(found, signal.SIGKILL)
    since = len(lines_of(path))
    started.wait_until(lambda: len(lines_of(path)) > since + 1)
    said = started.end(signal.SIGINT)
    assert said.code == 130
    assert said.err.count("wandb has failed") == 1
    wait_until(lambda: not any(map(is_alive, children)), 30)


@pytest.mark.thorough
@pytest.mark.usefixtures("offline")
def test_a_run_continues_after_the_network_fails(tmp_path, monkeypatch):
    path = tmp_path / "run"
    with wandb_server() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        started = Started(small_arguments(path, **FOR_EVER, tracker="wandb"), tmp_path)
        started.wait_until(lambda: len(lines_of(path)) > 0)
    assert "tracked by wandb: http://127.0.0.1" in logged(path)
    children, since = descendants(started.process.pid), len(lines_of(path))
    started.wait_until(lambda: len(lines_of(path)) > since + 1)
    said = started.end(signal.SIGINT)
    assert said.code == 130
    assert said.err.count("wandb has not sent all lines") == 1
    wait_until(lambda: not any(map(is_alive, children)), 30)


# --- Trackio, for real where it is installed ----------------------------------------------------------------


def test_trackio_is_given_all_lines(tmp_path, monkeypatch):
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    run = small_run(tmp_path / "run", **SHORT, tracker="trackio")
    assert "failed" not in logged(run.path)
    kept = json.loads((run.path / "tracker.json").read_text())
    assert (kept["project"], kept["name"]) == ("offbeat", "run")
    assert kept["position"] == (run.path / "metrics.jsonl").stat().st_size


@pytest.mark.skipif(importlib.util.find_spec("trackio") is not None, reason="trackio is installed")
def test_a_tracker_that_is_not_installed_is_refused_before_the_run_starts(tmp_path, monkeypatch):
    (tmp_path / "trackio").mkdir()  # a folder of that name is no package
    monkeypatch.syspath_prepend(tmp_path)
    said = offbeat(*small_arguments(tmp_path / "run", tracker="trackio"))
    assert said.code == 2
    assert 'pip install "offbeat[trackio]"' in said.err
    assert not (tmp_path / "run").exists()


# --- a fake tracker -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layout",
    [
        {"runtime": "processes", "actors": 2, "max_lag": 1},
        *thorough(
            {"runtime": "threads", "actors": 2, "max_lag": 1},
            {"algorithm": "a2c", "runtime": "hogwild", "workers": 2},
        ),
    ],
    ids=lambda layout: layout["runtime"],
)
def test_a_tracker_receives_each_line_and_the_final_state_in_each_runtime(tmp_path, fake_tracker, layout):
    path = tmp_path / "run"
    small_run(path, **SHORT, **layout, tracker="trackio")
    began, *lines, ended = tracked_lines(fake_tracker, "run")
    assert (began["project"], began["resume"]) == ("offbeat", "never")
    assert began["config"]["runtime"]["runtime"] == layout["runtime"]
    assert lines == [{"step": line["env_steps"], **tagged(line)} for line in lines_of(path)]
    assert ended == {"finished": True}


def test_a_tracker_does_not_get_the_environment_variables_of_the_actors(tmp_path, fake_tracker):
    secret = {"ray_address": "10.0.0.1:6379", "ray_runtime_env": '{"env_vars": {"KEY": "SECRET"}}'}
    config = resolve("ppo", "CartPole-v1", flags={"tracker": "trackio", "runtime": "ray", "actors": 3, **secret})
    directory = RunDirectory.create(tmp_path / "run", config)
    begun = tracker.start_tracker(config, directory, lambda _text: None, 0)
    assert begun is not None
    begun.close()
    received = tracked_lines(fake_tracker, "run")[0]["config"]["runtime"]
    assert (received["actors"], received["ray_address"], received["ray_runtime_env"]) == (3, "none", "none")


def test_a_tracker_continues_its_own_run_but_not_another_run_of_the_same_name(tmp_path, fake_tracker):
    small_run(tmp_path / "a/run", **SHORT, tracker="trackio")
    small_run(tmp_path / "b/run", **SHORT, tracker="trackio")
    resume(tmp_path / "b/run", steps=1280)
    assert [line["resume"] for line in tracked_lines(fake_tracker, "run") if "resume" in line] == ["never"]
    assert [line["resume"] for line in tracked_lines(fake_tracker, "run-2") if "resume" in line] == ["never", "allow"]
    assert [line["step"] for line in tracked_lines(fake_tracker, "run-2") if "step" in line] == [
        line["env_steps"] for line in lines_of(tmp_path / "b/run")
    ]


def test_a_file_of_a_run_gives_its_tracker_no_other_arguments_than_project_name_and_id(tmp_path, fake_tracker):
    path = tmp_path / "run"
    small_run(path, **SHORT, tracker="trackio")
    saved = json.loads((path / "tracker.json").read_text())
    (path / "tracker.json").write_text(json.dumps({**saved, "space_id": "stranger/space"}))
    resume(path, steps=1280)
    assert [line["resume"] for line in tracked_lines(fake_tracker, "run") if "resume" in line] == ["never", "allow"]


def test_a_tracker_added_at_a_resume_receives_all_lines(tmp_path, fake_tracker):
    path = tmp_path / "run"
    small_run(path, **SHORT)
    resume(path, steps=1280, tracker="trackio")
    steps = [line["step"] for line in tracked_lines(fake_tracker, "run") if "step" in line]
    assert steps == [line["env_steps"] for line in lines_of(path)]


def test_a_tracker_that_was_left_out_of_a_resume_receives_its_lines_at_the_next(tmp_path, fake_tracker):
    path = tmp_path / "run"
    small_run(path, steps=1280, stop_at=640, tracker="trackio")
    resume(path, stop_at=960, tracker="none")
    before = len(tracked_lines(fake_tracker, "run"))
    resume(path, tracker="trackio")
    said = tracked_lines(fake_tracker, "run")
    assert said[before]["resume"] == "allow"
    assert [line["step"] for line in said if "step" in line] == [line["env_steps"] for line in lines_of(path)]


def test_a_tracker_that_a_resume_from_an_earlier_checkpoint_leaves_out_receives_the_new_lines_at_the_next(
    tmp_path, fake_tracker
):
    path = tmp_path / "run"
    small_run(path, steps=1280, stop_at=960, checkpoint_every=320, tracker="trackio")
    first = min((path / "checkpoints").glob("step-*"))
    resume(path, checkpoint=first.name, stop_at=640, tracker="none")
    before = len(tracked_lines(fake_tracker, "run"))
    kept = TrackerFile.read(path / "tracker.json", "trackio").position
    resume(path, tracker="trackio")
    steps = [line["step"] for line in tracked_lines(fake_tracker, "run")[before:] if "step" in line]
    assert steps == [
        json.loads(line)["env_steps"] for line in (path / "metrics.jsonl").read_bytes()[kept:].splitlines()
    ]


def test_a_resume_sends_the_lines_that_a_failed_tracker_has_not_logged(tmp_path, fake_tracker, monkeypatch):
    path = tmp_path / "run"
    monkeypatch.setenv("STRANGE_TRACKER", "raise in log")
    small_run(path, steps=1280, stop_at=640, tracker="trackio")
    monkeypatch.delenv("STRANGE_TRACKER")
    assert not [line for line in tracked_lines(fake_tracker, "run") if "step" in line]
    resume(path)
    steps = [line["step"] for line in tracked_lines(fake_tracker, "run") if "step" in line]
    assert steps == [line["env_steps"] for line in lines_of(path)]


@pytest.mark.parametrize(
    "how", ["raise in log", "hang in finish", *thorough("die in log", "hang in log", "raise in finish")]
)
@pytest.mark.usefixtures("fake_tracker")
def test_a_failing_tracker_is_reported_once_and_does_not_affect_the_run(tmp_path, monkeypatch, how):
    monkeypatch.setenv("STRANGE_TRACKER", how)
    monkeypatch.setitem(tracker.END_S, "finished", 1.0)
    small_run(tmp_path / "without", **SHORT)
    run = small_run(tmp_path / "run", **SHORT, tracker="trackio")
    assert run.state == "finished"
    assert weights_of(run.path) == weights_of(tmp_path / "without")
    assert status_of(run.path)["state"] == "finished"
    failures = [line for line in logged(run.path).splitlines() if "trackio has" in line]
    assert len(failures) == 1
    if how.startswith("raise"):
        assert "ConnectionError: the network is gone" in failures[0]
    assert not followers().intersection(descendants())


@pytest.mark.usefixtures("fake_tracker")
def test_a_hanging_tracker_does_not_delay_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("STRANGE_TRACKER", "hang in log")
    monkeypatch.setitem(tracker.END_S, "failed", 0.5)
    config = resolve("ppo", "CartPole-v1", flags={"tracker": "trackio"})
    directory = RunDirectory.create(tmp_path / "run", config)
    begun = tracker.start_tracker(config, directory, print, 0)
    assert begun is not None
    directory.metrics_file.write_text('{"env_steps": 1}\n')
    fcntl.fcntl(begun._pipe, fcntl.F_SETPIPE_SZ, 4096)  # full at once

    def write() -> None:
        for _ in range(10_000):
            begun.write({})

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    writing.join(60)
    assert not writing.is_alive()
    begun.close()


def test_a_run_is_named_with_its_experiment_and_trial_or_with_its_population(tmp_path):
    for record in ("search/experiment.json", "search/trial-000/trial.toml", "population/experiment.json"):
        (tmp_path / record).parent.mkdir(exist_ok=True)
        (tmp_path / record).touch()
    names = ["search/trial-000/seed-1", "population/member-000", "alone"]
    assert [tracker._name_of(tmp_path / name) for name in names] == names


def test_a_tracker_whose_pipe_is_full_is_still_told_how_the_run_has_ended():
    reader, pipe = os.pipe()
    os.set_blocking(pipe, False)
    child: Any = SimpleNamespace(
        exits_within=lambda _seconds: True, kill=lambda: None, process=SimpleNamespace(returncode=0)
    )
    begun = tracker.Tracker("trackio", child, pipe, print)
    begun.state = "finished"
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, bytes([NEW_LINE]) * 4096)
    received = list[bytes]()
    reading = threading.Timer(0.2, lambda: received.extend(iter(partial(os.read, reader, 4096), b"")))
    reading.start()
    begun.close()
    reading.join(60)
    os.close(reader)
    assert received[-1][-1] == STATES.index("finished")


def followers() -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            if b"offbeat.tracking" in path.read_bytes():
                found.add(int(path.parent.name))
    return found


@pytest.mark.parametrize("how", ["raise in init", *thorough("die in init", "hang in init")])
@pytest.mark.usefixtures("fake_tracker")
def test_a_run_is_refused_if_its_tracker_cannot_start(tmp_path, monkeypatch, how):
    monkeypatch.setenv("STRANGE_TRACKER", how)
    monkeypatch.setattr(tracker, "START_S", 5.0)
    with pytest.raises(ConfigError, match="tracker is trackio, which could not start"):
        small_run(tmp_path / "run", **SHORT, tracker="trackio")
    assert not (tmp_path / "run").exists()
    assert not followers().intersection(descendants())


@pytest.mark.usefixtures("fake_tracker")
def test_a_tracker_whose_id_cannot_be_saved_is_refused_and_ended(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.tracker_file.mkdir(parents=True)  # as on a full disk, it cannot be written
    config = resolve("ppo", "CartPole-v1", flags={"tracker": "trackio"})
    with pytest.raises(ConfigError, match=r"tracker.json cannot be written \(Is a directory\), so the run"):
        tracker.start_tracker(config, directory, lambda _text: None, 0)
    assert not followers().intersection(descendants())


def test_a_tracker_logs_again_what_follows_the_lines_that_a_resume_keeps(tmp_path, monkeypatch):
    launched = list[TrackerLaunch]()

    def start_child(_main: str, launch: TrackerLaunch, *_arguments: Any, **_named: Any) -> None:
        launched.append(launch)
        raise OSError("it is not needed")

    monkeypatch.setattr(tracker, "start_child", start_child)
    directory = RunDirectory(tmp_path)
    TrackerFile("trackio", {}, position=500).write(directory.tracker_file)
    with pytest.raises(OSError, match="not needed"):
        tracker.start_tracker(resolve("ppo", "CartPole-v1", flags={"tracker": "trackio"}), directory, print, 300)
    assert launched[0].before.position == 300


@pytest.mark.parametrize(("last", "state"), [(NEW_LINE, "failed"), (STATES.index("finished"), "finished")])
def test_a_run_that_does_not_say_how_it_ends_has_failed(tmp_path, last, state):
    reader, pipe = os.pipe()
    os.write(pipe, bytes([NEW_LINE, last]))
    os.close(pipe)
    launch = TrackerLaunch(1, tmp_path, "run", {}, TrackerFile("trackio"), reader)
    assert follower._follow(launch, StartedRun(None, {}, "")) == (state, 0)
    os.close(reader)


def test_a_tracker_whose_process_cannot_be_started_leaves_no_file_open(tmp_path, monkeypatch):
    def start_child(*_arguments: Any, **_named: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(tracker, "start_child", start_child)
    config = resolve("ppo", "CartPole-v1", flags={"tracker": "trackio"})
    before = open_descriptors()
    with pytest.raises(OSError, match="Too many open files"):
        tracker.start_tracker(config, RunDirectory(tmp_path), lambda _text: None, 0)
    assert open_descriptors() == before


@pytest.mark.usefixtures("fake_tracker")
def test_a_signal_while_a_tracker_starts_ends_the_run_and_the_tracker(tmp_path, monkeypatch):
    monkeypatch.setenv("STRANGE_TRACKER", "hang in init")
    path = tmp_path / "run"
    code = f"import sys; sys.path.insert(0, {FAKES!r}); {HURRIED}{OFFBEAT}"
    started = Started(small_arguments(path, **FOR_EVER, tracker="trackio"), tmp_path, code)
    started.wait_until((tmp_path / "run.jsonl").exists)
    children = descendants(started.process.pid)
    said = started.end(signal.SIGINT, seconds=30)
    assert said.code == 130
    assert not path.exists()  # nothing had begun
    assert "Traceback" not in said.err
    wait_until(lambda: not any(map(is_alive, children)), 30)


@pytest.mark.usefixtures("fake_tracker")
def test_the_output_of_a_tracker_is_written_to_a_file(tmp_path):
    said = Started(
        small_arguments(tmp_path / "run", **SHORT, tracker="trackio"),
        tmp_path,
        f"import sys; sys.path.insert(0, {FAKES!r}); {OFFBEAT}",
    ).end()
    assert said.code == 0
    assert "printed" not in said.out + said.err
    assert "printed in log" in (tmp_path / "run/tracker.log").read_text()
