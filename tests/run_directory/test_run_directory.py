"""What a run directory says is true and on the disk, also when the disk is full."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs import contents, files_up_to, offbeat, small_arguments, small_run, status_of

from offbeat.api.plot import plot
from offbeat.api.resume import resume
from offbeat.config.resolve import resolve
from offbeat.core import files
from offbeat.core.errors import ConfigError
from offbeat.core.strict_json import LARGEST_RECORD
from offbeat.run_directory import directory
from offbeat.run_directory.checkpoint import load
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.links import require_inside
from offbeat.run_directory.lock import is_locked, locked

# --- on the disk --------------------------------------------------------------------------------------------


def test_files_needed_for_a_resume_are_synced(tmp_path, monkeypatch):
    synced, fsync = set(), os.fsync

    def note(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    small_run(tmp_path / "new" / "run", steps=64)
    run = tmp_path / "new" / "run"
    assert {tmp_path, tmp_path / "new", run, run / "checkpoints", run / "metrics.jsonl"} <= synced
    assert {run / ".config.toml.new", run / ".status.json.new"} <= synced  # before they were renamed
    assert not list(run.glob(".*.new"))


def test_a_failed_replacement_keeps_the_file_and_leaves_no_temporary_file(tmp_path):
    (tmp_path / "file").write_text("old")
    with files_up_to(2), pytest.raises(OSError, match="too large"):
        files.replace_file(tmp_path / "file", b"new and long")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):  # the new file is complete, but cannot be renamed
        files.replace_file(tmp_path / "folder", b"new")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}
    assert (tmp_path / "file").read_text() == "old"


ASCII = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
"""Environment variables with which Python opens text files as ASCII, if it is not told otherwise."""
WITH_NAMES = r"""
import locale, sys
from pathlib import Path
from offbeat.config.resolve import resolve
from offbeat.plots.runs import read_settings
from offbeat.run_directory.directory import RunDirectory
assert locale.getencoding() != "utf-8"
config = resolve("ppo", "CartPole-v1", assignments={"env.kwargs.name": "gr\xfcn"})
sys.argv = ["train.py", "gr\xfcn", "\udcff"]
directory = RunDirectory.create(Path(sys.orig_argv[-1]), config)
directory.append_to_log("gr\xfcn \udcff")
assert read_settings(directory.path)["env.kwargs.name"] == "gr\xfcn"
"""


def test_text_files_of_a_run_are_utf_8_in_every_locale(tmp_path):
    run = tmp_path / "run"
    code = [sys.executable, "-c", WITH_NAMES, str(run)]
    done = subprocess.run(code, env={**os.environ, **ASCII}, check=False, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert (run / "command.txt").read_bytes() == "train.py 'grün' '\udcff'\n".encode(errors="surrogateescape")
    assert (run / "log.txt").read_text(encoding="utf-8").endswith(" grün \\udcff\n")


# --- a new directory ----------------------------------------------------------------------------------------


def test_a_run_uses_an_empty_directory_and_refuses_one_with_a_file(tmp_path):
    config = resolve("ppo", "CartPole-v1")
    empty, used = tmp_path / "empty", tmp_path / "used"
    for folder in (empty, used):
        folder.mkdir()
    (used / "notes.txt").write_text("mine")
    RunDirectory.create(empty, config)
    assert (empty / "config.toml").is_file()
    with pytest.raises(ConfigError, match="used exists: pass another"):
        RunDirectory.create(used, config)
    assert contents(used).keys() == {"notes.txt"}


def test_of_two_runs_that_start_in_an_empty_directory_one_is_refused_and_deletes_nothing(tmp_path, monkeypatch):
    config = resolve("ppo", "CartPole-v1")
    RunDirectory.create(tmp_path / "run", config)
    before = contents(tmp_path)
    monkeypatch.setattr(RunDirectory, "refuse_existing", lambda _: None)  # both have looked before one has created it
    with pytest.raises(ConfigError, match="run exists: pass another"):
        RunDirectory.create(tmp_path / "run", config)
    assert contents(tmp_path) == before


def test_of_two_runs_that_start_in_the_same_second_without_a_path_each_gets_a_directory(tmp_path, monkeypatch):
    config = resolve("ppo", "CartPole-v1")
    monkeypatch.chdir(tmp_path)
    first = RunDirectory.create_default(config)
    looked_up = iter([first.path, Path("runs/second")])
    monkeypatch.setattr(directory, "default_path", lambda _: next(looked_up))  # the first one did not exist then
    assert RunDirectory.create_default(config).path == Path("runs/second")


def test_a_default_directory_below_something_else_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").symlink_to("nowhere")
    with pytest.raises(ConfigError, match=r"the run directory runs/ppo-CartPole-v1-s0-[-0-9]+ exists: pass another"):
        RunDirectory.create_default(resolve("ppo", "CartPole-v1"))


def test_the_default_directory_of_an_env_with_a_long_id_has_a_name_that_a_disk_allows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory = RunDirectory.create_default(resolve("ppo", f"{'mö' * 120}:MyEnv"))
    assert directory.config_file.is_file()
    assert len(directory.path.name.encode()) < 200


def test_a_run_that_fails_leaves_an_empty_directory_as_it_was(tmp_path):
    run = Path(tempfile.mkdtemp(dir=tmp_path))
    before = run.stat()
    RunDirectory.create(run, resolve("ppo", "CartPole-v1")).discard()
    assert (run.stat().st_ino, run.stat().st_mode) == (before.st_ino, before.st_mode)
    assert not list(run.iterdir())


def test_a_directory_that_cannot_be_created_leaves_no_parents(tmp_path):
    with pytest.raises(ConfigError, match="cannot be created"):
        RunDirectory.create(tmp_path / "new" / ("x" * 300) / "run", resolve("ppo", "CartPole-v1"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("env", ["Wanders", "WandersInReset"])
def test_an_env_that_changes_the_working_directory_does_not_move_the_run(tmp_path, monkeypatch, env):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    settings = {"imports": ("tests.sample_envs.run_envs",), "runtime": "serial", "checkpoint_every": 64}
    stopped = small_run(Path("run"), f"runs/{env}-v0", **settings, stop_at=128)
    assert stopped.path == Path("run")
    assert Path.cwd() == tmp_path
    assert resume(stopped.path, steps=256, trust_code=True).state == "finished"
    assert status_of(tmp_path / "run")["state"] == "finished"
    assert load(tmp_path / "run" / "checkpoints" / "latest").policy["env_steps"] >= 256
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_config_that_does_not_fit_into_memory_is_refused_unread(tmp_path):
    run = RunDirectory.create(tmp_path / "run", resolve("ppo", "CartPole-v1"))
    os.truncate(run.config_file, 1 << 40)  # the disk stores no zeros
    with pytest.raises(ConfigError, match=r"config\.toml has 1099511627776 bytes, but at most 4194304 are expected: "):
        run.read_run()


def test_a_run_whose_config_could_not_be_read_again_is_refused_before_it_starts(tmp_path):
    with pytest.raises(ConfigError, match="at most 1048576 are expected: let the env read large data from a file"):
        small_run(tmp_path / "run", env_kwargs={"text": "x" * 1_100_000})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("run", ["first", "trial-000/seed-1"])
def test_a_folder_of_runs_is_refused_with_the_path_of_a_run_in_it(tmp_path, run):
    (tmp_path / "my runs" / run).mkdir(parents=True)
    (tmp_path / "my runs" / run / "config.toml").touch()
    with pytest.raises(ConfigError, match=rf"my runs is not a run directory .* such as '{tmp_path}/my runs/{run}'$"):
        RunDirectory.open(tmp_path / "my runs")


def test_the_files_that_push_uploads_are_no_run(tmp_path):
    pushed = tmp_path / "run" / "hub"
    pushed.mkdir(parents=True)
    (pushed / "config.toml").touch()
    (pushed / "manifest.json").touch()
    with pytest.raises(ConfigError, match=r"\(it has no config\.toml\): pass one that `offbeat train` has created"):
        RunDirectory.open(tmp_path / "run")
    for refused in (RunDirectory.open, plot):
        with pytest.raises(ConfigError, match="hub has the files that `offbeat push` uploads, but a run is expected: "):
            refused(pushed)
    (tmp_path / "run" / "config.toml").touch()
    with pytest.raises(ConfigError, match=f"is expected: pass {tmp_path / 'run'}$"):
        RunDirectory.open(pushed)


def test_a_directory_that_cannot_be_listed_is_refused(tmp_path, monkeypatch):
    config = resolve("ppo", "CartPole-v1")
    (tmp_path / "run").mkdir()

    def refuse(_: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)  # root can list all folders
    with pytest.raises(ConfigError, match="run exists: pass another"):
        RunDirectory.create(tmp_path / "run", config)


def test_a_directory_below_a_file_is_refused_without_advice_on_disk_space(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"\(Not a directory\): pass another"):
        RunDirectory.create(tmp_path / "file" / "run", resolve("ppo", "CartPole-v1"))


# --- a full disk --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 1000, 6000])
def test_a_full_disk_at_the_start_is_one_message_and_leaves_no_files(tmp_path, room):
    with files_up_to(room):
        said = offbeat(*small_arguments(tmp_path / "mine" / "run", hidden_sizes=(64, 64)))
    assert said.code == 2
    assert "raise the limit of file sizes" in said.err
    assert "Traceback" not in said.err
    assert not any(tmp_path.iterdir())


def test_the_status_is_overwritten_in_place_on_a_full_disk(tmp_path):
    directory = RunDirectory.create(tmp_path / "run", resolve("ppo", "CartPole-v1"))
    directory.write_status(
        "running", "a reason that is longer than the other one", children={"actor": {0: 1, 1: 2, 2: 3}}
    )
    (directory.path / ".status.json.new").mkdir()  # so that none can be written
    directory.write_status("failed", "no room")
    assert (status_of(directory.path)["state"], status_of(directory.path)["reason"]) == ("failed", "no room")


def test_a_reason_of_many_megabytes_is_truncated_so_that_the_status_can_be_read(tmp_path):
    directory = RunDirectory.create(tmp_path / "run", resolve("ppo", "CartPole-v1"))
    directory.write_status("failed", "long " * (LARGEST_RECORD // 4))
    assert directory.status_damage() == ""
    assert re.fullmatch(r"(long ){2000}\.{3}", directory.read_status()["reason"])


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A disk of 3 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("this process may not mount a disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_run_on_a_disk_that_fills_warns_once_ends_as_failed_and_resumes_when_there_is_room(small_disk, capsys):
    run, ballast = small_disk / "run", small_disk / "ballast"

    def fill(line: dict[str, Any]) -> None:
        if line["env_steps"] >= 256 and not ballast.exists():
            try:
                with ballast.open("wb") as file:
                    while True:
                        file.write(bytes(4096))
                        file.flush()
            except OSError:
                return

    with pytest.raises(Exception, match="could not be saved"):
        small_run(run, progress="lines", callbacks=[fill], checkpoint_every=128, hidden_sizes=(64, 64))
    told = capsys.readouterr().err
    assert told.count("could not be written") == 1
    assert status_of(run)["state"] == "failed"
    assert load(run / "checkpoints" / "latest").state is not None
    ballast.unlink()
    assert offbeat("resume", run, "--progress", "none").code == 0


def test_a_checkpoint_that_is_deleted_while_links_are_looked_for_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "checkpoint").mkdir()
    gone = [(str(tmp_path), ["checkpoint", "deleted"], ["config.toml"])]
    monkeypatch.setattr(os, "walk", lambda _folder: iter(gone))
    require_inside(tmp_path)


# --- locks --------------------------------------------------------------------------------------------------


def test_a_disk_without_locks_is_refused_with_the_reason_and_leaves_no_directory(tmp_path, monkeypatch):
    def flock(*_arguments: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(ConfigError, match=r"\.lock cannot be locked \(Function not implemented\).*a disk with locks"):
        small_run(tmp_path / "run")
    assert not any(tmp_path.iterdir())


def test_a_forked_process_has_no_lock_of_its_parent(tmp_path):
    run = RunDirectory(tmp_path)
    with run.lock():
        if not (child := os.fork()):
            os._exit(tmp_path / ".lock" in {entry.resolve() for entry in Path("/proc/self/fd").iterdir()})
        assert os.waitpid(child, 0)[1] == 0
        assert run.is_locked()


def test_a_lock_can_be_taken_although_a_process_asks_for_a_moment_whether_it_is_locked(tmp_path, monkeypatch):
    with (tmp_path / ".lock").open("a") as file, (tmp_path / ".lock").open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        monkeypatch.setattr(time, "sleep", lambda _seconds: fcntl.flock(asking, fcntl.LOCK_UN))
        with locked(file, "in use"):
            assert is_locked(tmp_path / ".lock")


def test_a_lock_ends_for_all_processes_that_share_it(tmp_path):
    path = tmp_path / ".lock"
    with path.open("a") as file:
        with locked(file, "in use"):
            shared = os.dup(file.fileno())  # as in a process that a library has forked
            assert is_locked(path)
        assert not is_locked(path)
    os.close(shared)
