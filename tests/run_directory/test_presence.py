"""A run whose directory is deleted, moved or replaced ends."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs import small_run

from offbeat.cli.main import run as run_command
from offbeat.config.resolve import resolve
from offbeat.run_directory import presence
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.presence import RunDirectoryGone


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the directory of a finished run."""
    return small_run(tmp_path_factory.mktemp("finished") / "run", steps=64).path


@pytest.mark.parametrize(
    "settings",
    [{}, {"checkpoint_every": 64}, {"runtime": "processes", "actors": 2}, {"eval_every": 128, "eval_episodes": 10**6}],
    ids=["serial", "about to save", "processes", "evaluating"],
)
def test_a_run_whose_directory_is_deleted_ends_with_one_message(tmp_path, monkeypatch, capsys, settings):
    run = tmp_path / "run"
    monkeypatch.setattr(presence, "POLL_EVERY_S", 0.05)

    def delete(_line: dict[str, Any]) -> None:
        shutil.rmtree(run, ignore_errors=True)

    with pytest.raises(RunDirectoryGone, match="deleted or moved during the run") as gone:
        small_run(run, steps=10_000, progress="lines", callbacks=[delete], **settings)
    assert not getattr(gone.value, "__notes__", [])
    assert "could not" not in capsys.readouterr().err
    assert not run.exists()


@pytest.mark.parametrize("moment", ["write_status", "presence", "checkpoint_store"])
def test_a_run_directory_that_is_deleted_before_the_first_checkpoint_ends_the_run_in_the_same_way(
    tmp_path, monkeypatch, moment
):
    run, called = tmp_path / "run", getattr(RunDirectory, moment)

    def delete_first(self: RunDirectory, *arguments: Any, **named: Any) -> Any:
        shutil.rmtree(run, ignore_errors=True)
        return called(self, *arguments, **named)

    monkeypatch.setattr(RunDirectory, moment, delete_first)
    with pytest.raises(RunDirectoryGone, match="deleted or moved during the run"):
        small_run(run, steps=64)
    assert not run.exists()


@pytest.mark.parametrize(
    "moment",
    ["lock", "require_code", "read_checkpoint", "read_config", "checkpoint_store", "next_old_config", "write_status"],
)
def test_a_run_directory_that_vanishes_while_a_resume_starts_ends_it_with_one_message(
    tmp_path, monkeypatch, capsys, finished, moment
):
    run, called = tmp_path / "run", getattr(RunDirectory, moment)
    shutil.copytree(finished, run, symlinks=True)

    def delete_first(self: RunDirectory, *arguments: Any, **named: Any) -> Any:
        shutil.rmtree(run, ignore_errors=True)
        return called(self, *arguments, **named)

    monkeypatch.setattr(RunDirectory, moment, delete_first)
    code = run_command(["resume", str(run), "--steps", "128", "--set", "learning_rate=0.1", "--progress", "none"])
    assert code == RunDirectoryGone.exit_code
    (message,) = capsys.readouterr().err.splitlines()
    assert "deleted or moved" in message
    assert not run.exists()


def test_a_run_directory_that_is_replaced_by_another_counts_as_deleted(tmp_path):
    directory = RunDirectory.create(tmp_path / "run", resolve("ppo", "CartPole-v1"))
    presence = directory.presence()
    presence.require()
    (tmp_path / "run").rename(tmp_path / "moved")
    (tmp_path / "run").mkdir()
    with pytest.raises(RunDirectoryGone, match="If it was moved, `offbeat resume NEW_PATH` continues it"):
        presence.require(at_once=True)


@pytest.mark.parametrize(("error", "gone"), [(errno.EIO, False), (errno.EACCES, False), (errno.ESTALE, True)])
def test_a_disk_that_does_not_answer_for_a_while_does_not_end_a_run(tmp_path, monkeypatch, error, gone):
    presence = RunDirectory.create(tmp_path / "run", resolve("ppo", "CartPole-v1")).presence()

    def stat(path: Path) -> None:
        raise OSError(error, os.strerror(error), str(path))

    with monkeypatch.context() as patched, pytest.raises(RunDirectoryGone) if gone else nullcontext():
        patched.setattr(Path, "stat", stat)
        presence.require(at_once=True)
    presence.require(at_once=True)
