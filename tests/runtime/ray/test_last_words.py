"""What is said of a run whose process ends at once, as Ray may end it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.runs import status_of

STARTS = """
import os
from pathlib import Path
from offbeat.run_directory.directory import RunDirectory
from offbeat.runtime.ray.last_words import LastWords
run = RunDirectory(Path("run"))
words = LastWords(run)
run.write_status("running")
"""


def said_after(code: str, folder: Path) -> str:
    """Run code after the start of a run, and return what was printed until also the watchdog had ended."""
    (folder / "run").mkdir()
    command = [sys.executable, "-c", STARTS + code]
    return subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True, timeout=120, check=False).stderr


@pytest.mark.parametrize("code", ["os._exit(1)", "os.kill(os.getpid(), 9)"])
def test_a_run_whose_process_is_ended_at_once_has_failed_and_its_user_reads_how_to_resume_it(tmp_path, code):
    said = said_after(code, tmp_path)
    assert "its process was killed, or ended by Ray" in said
    assert '`offbeat.resume("run")` resumes from its latest checkpoint' in said
    status = status_of(tmp_path / "run")
    assert (status["state"], status["phase"]) == ("failed", None)
    assert status["reason"].startswith("its process was killed")


@pytest.mark.parametrize(
    "code",
    [
        "words.end()",
        "os.kill(words._watchdog.pid, 19); words.end()",  # a stopped watchdog does not answer
        "run.write_status('finished'); os._exit(1)",
    ],
)
def test_a_run_that_ends_in_order_or_has_ended_before_gets_no_last_words(tmp_path, code):
    assert said_after(code, tmp_path) == ""
    assert status_of(tmp_path / "run")["state"] != "failed"


def test_the_status_of_a_run_that_another_process_has_resumed_is_not_changed(tmp_path):
    resumed = "if os.fork() == 0: run.write_status('running'); os._exit(0)"
    assert said_after(f"{resumed}\nos.wait(); os._exit(1)", tmp_path) == ""
    assert status_of(tmp_path / "run")["state"] == "running"
