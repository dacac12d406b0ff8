"""A resume that is refused changes nothing, and one that goes on loses nothing."""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import gymnasium as gym
import pytest
from tests.support.replay_runs import small_sac
from tests.support.runs import contents, files_up_to, lines_of, offbeat, small_run, status_of, weights_of
from tests.support.thorough import thorough

from offbeat.api.resume import resume
from offbeat.core.errors import ConfigError, EnvFailed, RunFailed
from offbeat.run_directory.checkpoint import Checkpoint, load
from offbeat.run_directory.directory import RunDirectory
from offbeat.runtime.hogwild.worker_process import WorkerState
from offbeat.runtime.loop.training_loop import TrainingLoop
from offbeat.runtime.serial import SerialActing

# --- a refusal changes nothing ------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def _registry() -> Iterator[None]:
    unsendable: Any = lambda: gym.make("CartPole-v1").unwrapped  # noqa: E731 - no other process finds it
    gym.register("tests/Unsendable-v0", unsendable)
    yield
    del gym.registry["tests/Unsendable-v0"]


@pytest.fixture(scope="module")
def crashed_run(tmp_path_factory, _registry) -> Path:
    """A run with metrics and a best checkpoint beyond its latest one, in an env that no other process can make."""
    path = tmp_path_factory.mktemp("crashed") / "run"
    with killed():
        small_run(
            path, "tests/Unsendable-v0", checkpoint_every=256, eval_every=150, eval_episodes=2,
            callbacks=[raise_at(650)],
        )  # fmt: skip
    return path


@pytest.fixture
def run(crashed_run, tmp_path) -> Path:
    return Path(shutil.copytree(crashed_run, tmp_path / "run", symlinks=True))


def test_a_copy_in_which_links_are_directories_can_be_resumed(run, tmp_path):
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    assert not (copy / "checkpoints/latest").is_symlink()
    assert resume(copy).state == "finished"
    assert (copy / "checkpoints/latest").is_symlink()


@contextmanager
def killed() -> Iterator[None]:
    """In this block `raise_at` ends a run as a kill does: nothing more is saved."""
    with patch.object(TrainingLoop, "salvage"), pytest.raises(KeyboardInterrupt):
        yield


def raise_at(env_steps: int) -> Any:
    """A callback that raises when the run has reached some env steps."""

    def crash(line: dict[str, Any]) -> None:
        if line["env_steps"] >= env_steps:
            raise KeyboardInterrupt

    return crash


def assert_refused(run: Path, error: type[Exception], message: str, **changes: Any) -> None:
    before = contents(run)
    with pytest.raises(error, match=message):
        resume(run, **changes)
    after = contents(run)
    assert {name for name in {*before, *after} if before.get(name) != after.get(name)} <= {"log.txt"}


def test_a_resume_in_processes_of_an_env_that_cannot_be_sent_changes_nothing(run):
    assert_refused(run, ConfigError, "cannot be sent to another process", runtime="processes", steps=9000)
    assert resume(run).state == "finished"


def test_a_resume_of_a_finished_run_without_more_steps_changes_nothing(run):
    assert_refused(run, ConfigError, "nothing is left to do", steps=100)


def test_a_resume_with_a_status_of_the_size_of_a_disk_changes_nothing(run):
    os.truncate(run / "status.json", 1 << 40)  # a file with a hole, which takes no space
    said = offbeat("resume", run)
    assert (said.code, (run / "status.json").stat().st_size) == (2, 1 << 40)
    assert "status.json has 1099511627776 bytes, where at most" in said.err


def test_a_resume_with_a_pipe_in_place_of_a_file_changes_nothing(run):
    os.mkfifo(run / "tracker.json")
    with pytest.raises(ConfigError, match=r"tracker\.json is not a regular file: delete it"):
        resume(run, trust_code=True)


def test_a_resume_without_the_package_of_its_tracker_changes_nothing(run, monkeypatch):
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace('tracker = "none"', 'tracker = "wandb"'))
    monkeypatch.setattr("offbeat.tracking.tracker.is_importable", lambda _name: False)
    assert_refused(run, ConfigError, "which is not installed")


def test_a_resume_whose_envs_fail_at_the_start_changes_nothing(run, monkeypatch):
    def fail(*_: object) -> None:
        raise EnvFailed("no window to draw in")

    monkeypatch.setattr(SerialActing, "start", fail)
    assert_refused(run, EnvFailed, "no window", steps=9000)
    assert "no window to draw in" in (run / "log.txt").read_text()


def test_a_refused_resume_on_a_disk_that_has_become_full_restores_the_status_and_the_tracker(run, monkeypatch):
    tracker = run / "tracker.json"
    tracker.write_text('{"tracker": "wandb"}')
    (run / ".tracker.json.new").mkdir()  # so that it can only be overwritten
    (run / "status.json").unlink()

    def change_and_fail(*_: object) -> None:
        tracker.write_text('{"tracker": "another"}')
        raise EnvFailed("no window")

    monkeypatch.setattr(SerialActing, "start", change_and_fail)
    assert_refused(run, EnvFailed, "no window", steps=9000)


@pytest.mark.parametrize("room", [0, 500, 3000])
def test_a_resume_on_a_full_disk_changes_nothing(run, room):
    with files_up_to(room):
        assert_refused(run, ConfigError, r"raise the limit of file sizes \(`ulimit -f`\)$", steps=9000)
    assert resume(run).state == "finished"


# --- an earlier checkpoint ----------------------------------------------------------------------------------

EARLIER: dict[str, Any] = {"checkpoint_every": 128, "checkpoints_kept": 9, "eval_every": 128, "eval_episodes": 2}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory) -> Path:
    """A run whose best checkpoint is full and older than its latest one."""
    path = tmp_path_factory.mktemp("finished") / "run"
    small_run(path, learning_rate=0.02, steps=256, **EARLIER, evaluator="inline", eval_time_share=1.0)
    resume(path, steps=600, learning_rate=10.0, progress="none")  # from here on the policy is bad
    best, latest = (load(path / "checkpoints" / name) for name in ("best", "latest"))
    assert best.state is not None
    assert best.policy["env_steps"] < latest.policy["env_steps"]
    return path


@pytest.fixture
def finished(finished_run, tmp_path) -> Path:
    return Path(shutil.copytree(finished_run, tmp_path / "run", symlinks=True))


@pytest.mark.parametrize("links", [True, False])
def test_a_run_resumes_from_its_best_checkpoint_as_from_the_same_one_by_its_number(finished, tmp_path, links):
    copy = Path(shutil.copytree(finished, tmp_path / "copy", symlinks=links))
    name = (finished / "checkpoints" / "best").readlink().name
    for run, checkpoint in ((finished, name), (copy, "best")):
        resume(run, checkpoint=checkpoint, learning_rate=0.001, progress="none")
        assert (run / "checkpoints" / "latest").readlink().name != "best"
    for checkpoint in ("best", "latest"):
        assert weights_of(copy, checkpoint) == weights_of(finished, checkpoint)
    assert (copy / "config.toml").read_text() == (finished / "config.toml").read_text()
    if links:
        assert contents(copy / "checkpoints").keys() == contents(finished / "checkpoints").keys()


CHANGED = ["config-2.toml", "config.toml", "latest", "metrics.jsonl"]
"""What a resume from an earlier checkpoint replaces, in this order."""


def call_before_renames(monkeypatch, function: Any) -> None:
    """Call a function with the name of each of `CHANGED` before it is replaced."""
    replace_path = Path.replace

    def replaced(path: Path, target: Path) -> Path:
        if target.name in CHANGED:
            function(target.name)
        return replace_path(path, target)

    monkeypatch.setattr(Path, "replace", replaced)


@pytest.mark.parametrize(("name", "links"), [*((name, True) for name in CHANGED), *((n, False) for n in CHANGED[2:])])
def test_a_resume_from_an_earlier_checkpoint_on_a_failing_disk_changes_nothing(
    finished, tmp_path, monkeypatch, name, links
):
    run = Path(shutil.copytree(finished, tmp_path / "copy", symlinks=links))
    failed: list[str] = []

    def fail_once(target: str) -> None:
        if target == name and not failed:
            failed.append(target)
            raise OSError(errno.EIO, "Input/output error")

    call_before_renames(monkeypatch, fail_once)
    assert_refused(run, ConfigError, "Input/output error", checkpoint="best", learning_rate=0.001)
    assert failed


def test_a_resume_on_a_disk_that_becomes_full_when_the_config_is_replaced_changes_nothing(finished, monkeypatch):
    with ExitStack() as full:

        def fill(target: str) -> None:
            if target == "latest":
                full.enter_context(files_up_to(0))
                raise OSError(errno.ENOSPC, "No space left on device")

        call_before_renames(monkeypatch, fill)
        before = (finished / "config.toml").read_bytes()
        with pytest.raises(ConfigError, match=r"free some disk space$"):
            resume(finished, checkpoint="best", learning_rate=0.001, progress="none")
    assert (finished / "config.toml").read_bytes() == before
    assert not (finished / "config-2.toml").exists()


def test_a_resume_that_is_killed_while_it_replaces_files_has_not_chosen_a_checkpoint_without_its_settings(
    finished, monkeypatch
):
    """The metrics lines are removed last, and by the next resume if this one is killed before."""
    states: dict[str, tuple[int, int, float]] = {}

    def note(target: str) -> None:
        latest = load(finished / "checkpoints" / "latest").policy["env_steps"]
        settings: Any = RunDirectory(finished).read_config().algorithm_settings
        states.setdefault(target, (lines_of(finished)[-1]["env_steps"], latest, settings.learning_rate))
        if target == "metrics.jsonl":
            raise KeyboardInterrupt

    end, best = (load(finished / "checkpoints" / name).policy["env_steps"] for name in ("latest", "best"))
    call_before_renames(monkeypatch, note)
    with pytest.raises(KeyboardInterrupt):
        resume(finished, checkpoint="best", learning_rate=0.001, progress="none")
    assert list(states.values()) == [(end, end, 10.0), (end, end, 10.0), (end, end, 0.001), (end, best, 0.001)]
    assert list(states) == CHANGED


# --- the best -----------------------------------------------------------------------------------------------


def score_of(run: Path) -> float:
    score: float = load(run / "checkpoints" / "best").policy["eval_return_mean"]
    return score


BEST: dict[str, Any] = {"eval_every": 256, "eval_episodes": 3, "learning_rate": 0.02, "steps": 1024}


@pytest.fixture(scope="module")
def crashed_after_its_best(tmp_path_factory) -> Path:
    """A run that crashed when an evaluation had been the best and was saved, before the next full checkpoint."""
    path: Path = tmp_path_factory.mktemp("best") / "run"
    with killed():
        small_run(path, **BEST, callbacks=[raise_at(700)])
    assert load(path / "checkpoints" / "latest").policy["env_steps"] == 0
    assert load(path / "checkpoints" / "best").policy["env_steps"] > 0
    assert score_of(path) == max(line["eval_return_mean"] or 0 for line in lines_of(path))
    return path


def test_the_best_of_a_run_that_crashed_stays_the_best_until_an_evaluation_is_better(crashed_after_its_best, tmp_path):
    run = Path(shutil.copytree(crashed_after_its_best, tmp_path / "run", symlinks=True))
    weights, score = weights_of(run, "best"), score_of(run)
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(re.sub(r"learning_rate = .*", "learning_rate = 1e-30", config))
    resume(run)
    assert all(line["eval_return_mean"] is None or line["eval_return_mean"] < score for line in lines_of(run))
    assert (weights_of(run, "best"), score_of(run)) == (weights, score)


def test_a_crashed_and_resumed_run_has_the_same_best_as_an_uninterrupted_run(crashed_after_its_best, tmp_path):
    run = Path(shutil.copytree(crashed_after_its_best, tmp_path / "run", symlinks=True))
    resume(run)
    small_run(tmp_path / "whole", **BEST)
    assert weights_of(run, "best") == weights_of(tmp_path / "whole", "best")
    assert weights_of(run) == weights_of(tmp_path / "whole")


# --- a crash is told ----------------------------------------------------------------------------------------


def mark_as_crashed(run: Path) -> None:
    """Write the status that a killed process leaves behind."""
    status = status_of(run) | {"state": "running"}
    (run / "status.json").write_text(json.dumps(status))


def test_every_command_that_uses_a_crashed_run_reports_the_crash(tmp_path):
    run = small_run(tmp_path / "run", steps=512, stop_at=256).path
    mark_as_crashed(run)
    for arguments in (("eval", run, "--episodes", 1), ("plot", run), ("resume", run, "--progress", "lines")):
        said = offbeat(*arguments)
        assert said.code == 0
        assert f"{run} has crashed" in said.err
        assert ("continue with `offbeat resume" in said.err) == (arguments[0] != "resume")
    assert "has crashed" in (run / "log.txt").read_text()
    assert status_of(run)["state"] == "finished"
    assert "crashed" not in offbeat("plot", run).err


def test_an_unreadable_status_or_an_invalid_lock_file_is_not_reported_as_a_crash(tmp_path):
    run = RunDirectory(small_run(tmp_path / "run", steps=256).path)
    run.status_file.write_text("[" * 100_000)
    assert run.crash_message() == ""
    run.status_file.write_text('{"state": "running", "updated": "\\u001b[2J"}')
    assert r"(last updated \x1b[2J)" in run.crash_message()
    (run.path / ".lock").unlink()
    os.mkfifo(run.path / ".lock")
    assert not run.is_locked()


def test_a_run_that_is_still_training_is_not_reported_as_crashed(tmp_path):
    run = small_run(tmp_path / "run", steps=64).path
    mark_as_crashed(run)
    directory = RunDirectory.open(run)
    assert directory.crash_message()
    with directory.lock():
        assert not RunDirectory.open(run).crash_message()


# --- damage is told -----------------------------------------------------------------------------------------

STATUS = "{} is damaged, so how the run has ended is not known. The file is written again"
LINES = "{} lacks its lines for learning steps %d to 5. The run continues without them"


@pytest.mark.parametrize(
    ("file", "damage", "says"),
    [
        ("status.json", lambda content: content[:20], STATUS),
        ("status.json", lambda content: b"\xff" * len(content), STATUS),
        ("metrics.jsonl", lambda content: content[:-20], LINES % 4),
        ("metrics.jsonl", lambda content: b"\xff" * len(content), LINES % 1),
        ("metrics.jsonl", lambda _content: b"", LINES % 1),
        ("metrics.jsonl", lambda content: content + b"{", ""),  # beyond the checkpoint, where lines are removed
    ],
)
def test_a_resume_says_what_is_damaged_or_missing_and_what_becomes_of_it(tmp_path, file, damage, says):
    run = small_run(tmp_path / "run", steps=512, stop_at=256, log_every=128).path
    (run / file).write_bytes(damage((run / file).read_bytes()))
    said = offbeat("resume", run, "--progress", "lines")
    assert said.code == 0
    message = says.format(run / file)
    told = [line for line in said.err.splitlines() if "damaged" in line or "lacks" in line]
    assert told == list(filter(None, [message]))
    assert message in (run / "log.txt").read_text()


# --- version 0 ----------------------------------------------------------------------------------------------


def train_small(path: Path, **settings: Any) -> Path:
    train = small_sac if settings.get("algorithm") == "sac" else small_run
    return train(path, **{"steps": 256, "checkpoints_kept": 100, **settings}).path


KINDS: dict[str, dict[str, Any]] = {
    "serial": {"max_lag": 1},
    "threads": {"runtime": "threads", "max_lag": 1, "lag": "exact", "actors": 2},
    "sac": {"algorithm": "sac"},
    "sac without its replay": {"algorithm": "sac", "save_replay": False},
    "one lock-free worker": {"algorithm": "sac", "runtime": "hogwild", "workers": 1},
}


@pytest.mark.parametrize(
    "kind", ["serial", "sac", *thorough("threads", "sac without its replay", "one lock-free worker")]
)
def test_a_run_resumed_from_its_start_has_the_bits_of_an_uninterrupted_run(tmp_path, kind):
    run = train_small(tmp_path / "run", **KINDS[kind])
    whole, latest = weights_of(run), run / "checkpoints" / "latest"
    latest.unlink()
    latest.symlink_to("step-000000000000")
    assert load(latest).policy["learning_step"] == 0
    resume(run)
    assert weights_of(run) == whole
    assert "resumed from the start" in (run / "log.txt").read_text()


def test_a_latest_checkpoint_with_only_weights_is_refused_with_one_from_which_the_run_can_be_resumed(tmp_path):
    run = small_run(tmp_path / "run", steps=1024, stop_at=300)
    store, saved = RunDirectory(run.path).checkpoint_store(), load(run.path / "checkpoints" / "latest")
    store.save(400, replace(saved, state=None), ("latest",))
    with pytest.raises(ConfigError, match=r"no run can continue from it: .* --checkpoint step-\d{12}`$") as refused:
        resume(run)
    checkpoint = str(refused.value).rpartition("--checkpoint ")[2].rstrip("`")
    assert resume(run, checkpoint=checkpoint, progress="none").state == "finished"


@pytest.mark.parametrize(
    ("runtime", "thread", "says"),
    [
        ("serial", "offbeat stop deadline", "the thread 'offbeat stop deadline' cannot be started"),
        ("serial", "offbeat watch", "the thread 'offbeat watch' cannot be started (can't start new thread): raise"),
        (
            "threads",
            "offbeat actor 1",
            "the thread 'offbeat actor 1' cannot be started (can't start new thread): raise",
        ),
        (
            "processes",
            "(_forward_output)",
            "actor 0 could not be started (can't start new thread): raise the limits of",
        ),
    ],
)
def test_a_resume_at_the_limit_of_threads_says_so_and_changes_nothing(tmp_path, monkeypatch, runtime, thread, says):
    path = small_run(tmp_path / "run", steps=128, actors=2, unrolls_per_batch=1, max_lag=1).path
    start = Thread.start

    def start_at_the_limit(started: Thread) -> None:
        if thread in started.name:
            raise RuntimeError("can't start new thread")
        start(started)

    with monkeypatch.context() as limited:
        limited.setattr(Thread, "start", start_at_the_limit)
        assert_refused(path, RunFailed, re.escape(says), steps=256, runtime=runtime)
    assert resume(path, steps=256, runtime=runtime).state == "finished"


# --- memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "steps"), [({"runtime": "serial"}, 1_024), ({"runtime": "hogwild", "workers": 1}, 8_192)], ids=str
)
def test_a_resumed_run_does_not_keep_the_checkpoint_in_memory(tmp_path, settings, steps):
    path = small_run(tmp_path / "run", steps=256, minibatch_size=64, epochs=1, **settings).path
    kept: list[int] = []

    def count(*_: object) -> None:
        gc.collect()
        kept.append(sum(type(each) in (Checkpoint, WorkerState) for each in gc.get_objects()))

    count()
    changes = {"checkpoint_every": 0, "log_every": steps // 3}
    assert resume(path, steps=steps, settings=changes, callbacks=[count]).state == "finished"
    assert (
        min(kept[1:]) == kept[0]
    )  # a line at the start may find those just read, one at the end those of paused workers


def test_an_empty_runtime_of_a_resume_is_refused(tmp_path):
    run = small_run(tmp_path / "run", steps=128).path
    with pytest.raises(ConfigError, match="unknown runtime ''"):
        resume(run, settings={"runtime": ""})
