"""What runs on a node of a cluster, without the cluster: the process of a job, and a check of the disk."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.support.runs import is_alive, wait_until

from offbeat.experiments import node_job
from offbeat.experiments.file_digests import FileDigests, wait_until_equal
from offbeat.experiments.node_job import Launch, NodeJob, reason_against
from offbeat.runtime.ray.cluster import own_versions

WAITS = "import sys, time; print(sys.argv[1:], flush=True); time.sleep(600)"
"""A program in place of a job: it ends when it is killed."""


@pytest.fixture
def files(tmp_path) -> list[Path]:
    return [tmp_path / "status.json", tmp_path / "missing/latest"]


def launch_of(folder: Path, files: list[Path], *arguments: str) -> Launch:
    output = str(folder / "output")
    return Launch(
        list(arguments), str(folder), str(folder / "log"), output, {"OMP_NUM_THREADS": None}, FileDigests.of(files)
    )


@pytest.fixture
def job() -> Iterator[NodeJob]:
    started = NodeJob()
    yield started
    started.signal(signal.SIGKILL)


def run(code: str, job: NodeJob, launch: Launch) -> str:
    with patch.object(node_job, "COMMAND", (sys.executable, "-c", code)):
        return job.start(launch)


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import os, signal; signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)", -signal.SIGTERM),
    ],
)
def test_keeper_ends_as_its_job_does(job, tmp_path, files, code, end):
    assert run(code, job, launch_of(tmp_path, files)) == ""
    assert job.wait().code == end


def test_the_end_of_a_job_comes_with_the_files_that_it_has_left(job, tmp_path, files):
    run(f"open({str(files[0])!r}, 'w').write('finished')", job, launch_of(tmp_path, files))
    ended = job.wait()
    assert ended.files == FileDigests.of(files)
    assert ended.files.differing() == []
    files[0].write_text("running")
    assert ended.files.differing() == [str(files[0])]


def test_a_repeated_start_starts_one_process_and_a_signal_reaches_it(job, tmp_path, files):
    launch = launch_of(tmp_path, files, "train")
    assert [run(WAITS, job, launch) for _ in range(2)] == ["", ""]
    pid = job._pid
    wait_until(lambda: (tmp_path / "output").read_text() != "")
    job.signal(signal.SIGTERM)
    assert job.wait().code == -signal.SIGTERM
    assert not is_alive(pid)
    assert (tmp_path / "output").read_text() == "['train']\n"
    assert (tmp_path / "log").read_text() == f"$ offbeat train  # on {job.host()}\n"


def test_a_killed_job_has_ended_when_kill_returns(job, tmp_path, files):
    run(WAITS, job, launch_of(tmp_path, files))
    assert job.kill()
    assert not is_alive(job._pid)
    assert job.wait().code == -signal.SIGKILL


def test_a_job_that_is_killed_before_its_launch_is_not_launched(job, tmp_path, files):
    def kill_while_waiting_for_files(_: FileDigests) -> list[str]:
        assert job.kill()
        return []

    with patch.object(node_job, "wait_until_equal", kill_while_waiting_for_files):
        assert run(WAITS, job, launch_of(tmp_path, files)) == "it was killed before it started"
    assert run(WAITS, job, launch_of(tmp_path, files)) == "it was killed before it started"
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("timeout_s", [0.0, 30.0])
def test_a_job_that_is_killed_in_its_launch_ends(job, tmp_path, files, timeout_s):
    going = tmp_path / "launched"
    slow = f"import pathlib, time; pathlib.Path({str(going)!r}).touch(); time.sleep(0.5)\n{node_job._KEEPER}"
    starting = threading.Thread(target=run, args=(WAITS, job, launch_of(tmp_path, files)))
    with patch.object(node_job, "_KEEPER", slow):
        starting.start()
        wait_until(going.exists)
        assert job.kill(timeout_s) == (timeout_s > 0)
        starting.join()
    assert job.wait().code == -signal.SIGKILL
    assert not is_alive(job._pid)


def test_killing_a_job_that_does_not_end_returns_within_its_time_limit(job, tmp_path, files):
    run(WAITS, job, launch_of(tmp_path, files))
    assert job._keeper is not None
    threading.Thread(target=job.wait, daemon=True).start()  # as the machine of `offbeat run` does
    job._keeper.send_signal(signal.SIGSTOP)  # it cannot end, as if it waited for a disk
    assert not job.kill(timeout_s=0.1)
    job._keeper.send_signal(signal.SIGCONT)
    assert job.kill()


def test_a_signal_while_a_job_starts_reaches_no_other_process(job, tmp_path, files):
    slow = f"import time; time.sleep(0.5)\n{node_job._KEEPER}"
    starting = threading.Thread(target=run, args=(WAITS, job, launch_of(tmp_path, files)))
    with patch.object(node_job, "_KEEPER", slow), patch.object(os, "kill") as kill:
        starting.start()
        while starting.is_alive():
            job.signal(signal.SIGTERM)
    assert {pid for (pid, _), _ in kill.call_args_list} <= {job._pid}


def test_a_job_gets_the_environment_of_the_launch_and_outlives_its_killed_keeper(job, tmp_path, files):
    ends_at_end_of_file = (
        "import os, sys; print(os.environ.get('OMP_NUM_THREADS'), flush=True); sys.stdin.read(); print('saved')"
    )
    with patch.dict(os.environ, OMP_NUM_THREADS="7"):
        run(ends_at_end_of_file, job, launch_of(tmp_path, files))
    assert job._keeper is not None
    job._keeper.kill()
    assert job.wait().code == -signal.SIGKILL
    assert is_alive(job._pid)
    assert job._keeper.stdin is not None
    job._keeper.stdin.close()
    while "saved" not in (tmp_path / "output").read_text():
        time.sleep(0.01)
    assert (tmp_path / "output").read_text().startswith("None\n")


def test_a_node_that_sees_other_files_does_not_start_the_job(job, tmp_path, files):
    launch = launch_of(tmp_path, files)
    files[0].write_text("another state")
    with patch.object(node_job, "wait_until_equal", lambda files: wait_until_equal(files, 0.0)):
        assert f"does not see {files[0]}" in run(WAITS, job, launch)
    assert not (tmp_path / "log").exists()


def test_waiting_for_files_ends_when_they_are_seen(files):
    files[0].write_text("new")
    digests = FileDigests.of(files)
    files[0].write_text("old")
    threading.Timer(0.1, lambda: files[0].write_text("new")).start()
    assert wait_until_equal(digests) == []


def test_a_node_must_see_the_file_and_its_lock_and_have_the_folder(tmp_path):
    token, versions = tmp_path / "token", own_versions()
    assert "cannot use the folder" in reason_against(str(token), "", str(tmp_path), versions)
    with token.open("w") as file:
        assert "does not see the locks of other machines" in reason_against(str(token), "", str(tmp_path), versions)
        fcntl.flock(file, fcntl.LOCK_EX)
        assert reason_against(str(token), "", str(tmp_path), versions) == ""
        assert "has another file" in reason_against(str(token), "other", str(tmp_path), versions)
        assert "does not have the folder" in reason_against(str(token), "", str(tmp_path / "missing"), versions)


def test_a_node_must_have_the_versions_of_the_machine_that_starts_the_jobs(tmp_path):
    versions = own_versions()
    reason = reason_against(str(tmp_path / "token"), "", str(tmp_path), {**versions, "torch": "1.0"})
    assert reason == f"has other versions than the machine of `offbeat run`: torch {versions['torch']}"
