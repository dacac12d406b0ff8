from __future__ import annotations

import json
import os
import stat
import subprocess
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
from tests.support.runs import contents, files_up_to, small_run

from offbeat.api.resume import resume
from offbeat.run_directory import versions

TORCH = version("torch")
"""As pip names it: torch.__version__ has the CUDA build too, in the package from PyPI."""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in git with a file whose changes are not committed; it is the working directory."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    _git("init", "-q")
    (folder / "agent.py").write_text("rate = 1\n")
    _git("add", ".")
    _git("-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", "begin")
    (folder / "agent.py").write_text("rate = 2\n")
    return folder


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def _git_that(does: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a `git` of this kind in the place of the one that is installed."""
    folder.mkdir()
    script = folder / "git"
    script.write_text(f"#!/bin/sh\n{does}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def _versions_of(run: Path, name: str = "versions.json") -> dict[str, Any]:
    read: dict[str, Any] = json.loads((run / name).read_text())
    return read


def test_a_run_directory_records_packages_machine_commit_and_diff_of_the_working_directory(repository):
    run = small_run(repository / "run", steps=128).path
    recorded = _versions_of(run)
    assert (recorded["packages"]["torch"], recorded["packages"]["numpy"]) == (TORCH, np.__version__)
    assert recorded["git"] == {"commit": _git("rev-parse", "HEAD"), "dirty": True}
    assert recorded["machine"].keys() == {"system", "processor", "cores", "usable_cores", "memory_gb", "gpus"}
    assert recorded["machine"]["memory_gb"] > 0
    assert "-rate = 1\n+rate = 2\n" in (run / "git.diff").read_text()


def test_a_run_outside_of_git_records_versions_and_no_diff(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = small_run(tmp_path / "run", steps=128).path
    assert _versions_of(run)["git"] is None
    assert not (run / "git.diff").exists()


def test_a_resume_adds_a_record_of_versions_and_logs_the_differences(repository):
    run = small_run(repository / "run", stop_at=200).path
    recorded = _versions_of(run)
    recorded["packages"]["torch"], recorded["python"] = "2.12.0", "3.12\x1b[2K"
    (run / "versions.json").write_text(json.dumps(recorded))
    (repository / "agent.py").write_text("rate = 3\n")
    resume(run)
    log = (run / "log.txt").read_text()
    assert f"torch 2.12.0 before, {TORCH} now" in log
    assert r"python 3.12\x1b[2K before" in log
    assert "git.diff" in log
    assert _versions_of(run)["packages"]["torch"] == TORCH
    assert _versions_of(run, "versions-1.json") == recorded
    assert "+rate = 3" in (run / "git.diff").read_text()
    assert "+rate = 2" in (run / "git-1.diff").read_text()


def test_a_resume_with_the_same_versions_logs_nothing_and_adds_no_record(repository):
    run = small_run(repository / "run", stop_at=200).path
    resume(run)
    assert "there," not in (run / "log.txt").read_text()
    assert not (run / "versions-1.json").exists()


def test_the_record_of_an_earlier_start_survives_a_full_disk(repository):
    versions.write_versions(repository)
    before = contents(repository)
    with files_up_to(100), pytest.raises(OSError, match="File too large"):
        versions.write_versions(repository)
    assert contents(repository) == before


def test_a_recorded_diff_that_does_not_fit_into_memory_is_kept_unread(tmp_path):
    versions.write_versions(tmp_path)
    with (tmp_path / "git.diff").open("wb") as diff:
        diff.truncate(1 << 40)  # the disk stores no zeros
    assert "the uncommitted changes in git.diff differ" in versions.write_versions(tmp_path)
    assert (tmp_path / "git-1.diff").stat().st_size == 1 << 40


def test_a_huge_diff_is_truncated_with_a_note(repository):
    (repository / "agent.py").write_text("rate = 2\n" * 1_000_000)
    diff = versions.git_diff(repository)
    assert len(diff) < versions.DIFF_BYTES + 100
    assert diff.endswith(b"+rate = 2\n\n[cut: offbeat keeps the first 2,000,000 bytes of a diff]\n")


def test_a_hanging_git_is_killed_with_its_children_and_records_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "GIT_S", 0.1)
    _git_that("sleep 60", tmp_path / "bin", monkeypatch)
    begun = monotonic()
    assert versions.git_state(tmp_path) is None
    assert versions.git_diff(tmp_path) == b""
    assert monotonic() - begun < 30


def test_without_git_no_commit_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert versions.git_state(tmp_path) is None
    assert versions.current_versions()["packages"]["offbeat"]


def test_a_deleted_working_directory_only_omits_the_git_record(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert versions.current_versions()["git"] is None


def test_recording_versions_starts_no_program_of_the_repository(repository):
    """A repository's own settings may name programs that git starts by itself."""
    (repository / "watch.sh").write_text("#!/bin/sh\ntouch STARTED\n")
    (repository / "watch.sh").chmod(0o755)
    _git("config", "core.fsmonitor", str(repository / "watch.sh"))
    _git("config", "diff.external", str(repository / "watch.sh"))
    assert versions.git_state(repository) is not None
    assert b"+rate = 2" in versions.git_diff(repository)
    assert not (repository / "STARTED").exists()


@pytest.mark.parametrize("git_names_scopes", [True, False])
def test_a_repository_with_content_filters_has_its_commit_recorded_without_a_diff(
    repository: Path, monkeypatch: pytest.MonkeyPatch, git_names_scopes: bool
) -> None:
    if not git_names_scopes:  # as before version 2.26
        old = repository / "old-git"
        old.write_text('#!/bin/sh\ncase "$*" in *--show-scope*) exit 129;; esac\nexec git "$@"\n')
        old.chmod(0o755)
        monkeypatch.setattr(versions, "_GIT", (str(old), *versions._GIT[1:]))
    (repository / ".gitattributes").write_text("*.py filter=own\n")
    _git("config", "filter.own.clean", f"touch {repository / 'STARTED'}; cat")
    state = versions.git_state(repository)
    assert state is not None
    assert len(state["commit"]) == 40
    assert versions.git_diff(repository) == b""
    assert not (repository / "STARTED").exists()


def test_missing_objects_of_a_partial_clone_are_not_fetched(repository):
    program = repository / "fetch.sh"
    program.write_text(f"#!/bin/sh\ntouch {repository / 'STARTED'}\nexit 1\n")
    program.chmod(0o755)
    origin = {"url": repository, "promisor": "true", "uploadpack": program}
    settings = {"core.repositoryformatversion": 1, "extensions.partialClone": "origin"}
    for key, value in {**settings, **{f"remote.origin.{name}": each for name, each in origin.items()}}.items():
        _git("config", key, str(value))
    blob = _git("rev-parse", "HEAD:agent.py")
    (repository / ".git/objects" / blob[:2] / blob[2:]).unlink()
    (repository / "agent.py").write_text("rate = 3\n")
    assert versions.git_diff(repository) == b""
    assert not (repository / "STARTED").exists()
