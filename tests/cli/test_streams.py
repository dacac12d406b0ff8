"""Commands whose standard streams are closed, full, or cannot show all characters; each in a process of its own.

It is a fresh Python where the point is how that finds its streams.
"""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.runs import OFFBEAT, Started, small_arguments, small_run, status_of
from tests.support.thorough import thorough
from tests.support.warm import REPOSITORY, warm_python

from offbeat.cli.output import changing_spinner, progress_bar, spinner
from offbeat.core.lossy_stream import lossy
from offbeat.core.printing import print_text

COMMAND = [sys.executable, "-c", OFFBEAT]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])}
ENVIRONMENT.pop("PYTHONUNBUFFERED", None)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return small_run(tmp_path_factory.mktemp("runs") / "rün", steps=64).path


def shell(command: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command of a shell, in which "$@" is offbeat with these arguments."""
    words = ["bash", "-c", command, "bash", *COMMAND, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, check=False)


FULL = Path("/dev/full")
OF_A_PIPE = f"import sys; sys.stdout, sys.stderr = (open(file, 'w', closefd=False) for file in (1, 2))\n{OFFBEAT}"
"""Runs `offbeat` in a forked process, whose streams are those of a file, where it writes into a pipe or a terminal."""

IN_ASCII = f"import sys; [stream.reconfigure(encoding='ascii') for stream in (sys.stdout, sys.stderr)]\n{OFFBEAT}"
"""Runs `offbeat` in a process whose streams are those of a terminal without other characters."""


def code_of(out: Path, err: Path, *arguments: object, folder: Path) -> int:
    """Run a command in a forked process (warm.py) that writes into these files, and return its exit code."""
    words = list(map(str, arguments))
    with out.open("w") as stdout, err.open("w") as stderr:
        return warm_python().start(OFFBEAT, words, folder, ENVIRONMENT, (stdout, stderr)).wait(120)


@pytest.mark.parametrize("closed", [">&-", *thorough("2>&-", "<&- >&- 2>&-")])
def test_a_command_runs_with_closed_streams(run, closed):
    said = shell(f'"$@" {closed}', "eval", run, "--episodes", 1)
    assert said.returncode == 0
    assert "Traceback" not in said.stderr
    assert said.stdout.startswith("CartPole-v1") == (closed == "2>&-")


NOT_WRITTEN = "offbeat: the output could not be written (No space left on device)"


def test_a_command_whose_output_cannot_be_written_fails_with_a_message(run, tmp_path):
    err = tmp_path / "err"
    assert code_of(FULL, err, "eval", run, "--episodes", 1, "--json", folder=tmp_path) == 1
    assert err.read_text().splitlines()[-1:] == [NOT_WRITTEN]


@pytest.mark.parametrize("words", ["list envs", "--version", *thorough("--help", "train --help")])
def test_output_without_a_run_that_cannot_be_written_fails_with_a_message(words):
    said = shell('"$@" > /dev/full', *words.split())
    assert (said.returncode, said.stderr) == (1, f"{NOT_WRITTEN}\n")


def test_a_run_whose_report_cannot_be_written_has_the_exit_code_of_its_end(tmp_path):
    err = tmp_path / "err"
    assert code_of(FULL, err, *small_arguments(tmp_path / "run", steps=64), folder=tmp_path) == 0
    assert err.read_text().splitlines()[-1:] == [NOT_WRITTEN]


def test_a_warning_that_cannot_be_written_does_not_end_a_run(tmp_path):
    """A replay of 64 transitions is smaller than the warm-up. The second run is refused: its directory exists."""
    arguments = ["train", "dqn", "CartPole-v1", "--run-dir", tmp_path / "run", "--progress", "none", "--steps", 64]
    assert code_of(tmp_path / "out", FULL, *arguments, folder=tmp_path) == 0
    assert status_of(tmp_path / "run")["state"] == "finished"
    assert code_of(tmp_path / "out", FULL, *arguments, folder=tmp_path) == 2


def test_progress_is_not_redrawn_in_a_file_even_if_color_is_forced(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with spinner("starting"), progress_bar("episodes", shown=True) as update:
        update(1, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("lines", [True, False])
def test_texts_of_a_spinner_are_lines_where_it_cannot_be_drawn(lines, capsys):
    with changing_spinner(lines=lines) as show:
        show("measuring the run")
        show("measuring other layouts")
    assert capsys.readouterr().err.splitlines() == ["measuring the run", "measuring other layouts"] * lines


def test_a_lossy_stream_drops_what_a_closed_stream_does_not_take():
    stream = io.StringIO()
    stream.close()
    print_text("lost", lossy(stream))


class ClosedWindow(io.StringIO):
    """A stream of a program that shows messages in a window, which was closed."""

    def write(self, text: str) -> int:  # noqa: ARG002
        raise RuntimeError("the window was closed")


class Logged:
    """A stream that passes lines to a logger, and has only what `print` needs."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("stream", [ClosedWindow(), Logged()])
def test_a_run_continues_where_the_stream_of_the_caller_fails_or_lacks_methods(tmp_path, monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    assert small_run(tmp_path / "run", steps=64, progress="lines").state == "finished"


def test_a_path_that_the_encoding_of_the_terminal_does_not_have_is_shown_with_escapes(tmp_path):
    said = Started(small_arguments(tmp_path / "rün", steps=64), tmp_path, IN_ASCII).end()
    assert said.code == 0, said.err
    assert r"next: offbeat eval" in said.out
    assert r"r\xfcn" in said.out


def test_a_run_continues_after_the_reader_of_its_progress_has_closed_the_pipe(tmp_path):
    """Without a reader the first line would fail: it is closed before the run starts."""
    reader, pipe = os.pipe()
    os.close(reader)
    words = small_arguments(tmp_path / "run", steps=64)
    with os.fdopen(pipe, "w") as closed:
        assert warm_python().start(OF_A_PIPE, words, tmp_path, ENVIRONMENT, (closed, closed)).wait(120) == 0
    assert status_of(tmp_path / "run")["state"] == "finished"


def test_a_run_continues_after_its_terminal_was_closed(tmp_path):
    """As after `disown`: the signal that says so is ignored."""
    held = small_arguments(tmp_path / "run", "runs/Held-v0", imports=("tests.sample_envs.run_envs",))
    arguments = [word for word in held if word != "lines"]
    arguments[arguments.index("--progress")] = "--progress=dashboard"
    terminal, end = pty.openpty()
    environment = {**ENVIRONMENT, "TERM": "xterm-256color"}
    code = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{OF_A_PIPE}"
    with os.fdopen(end, "w") as shows:
        process = warm_python().start(code, arguments, tmp_path, environment, (shows, shows))
    shown = b""
    while b"env steps" not in shown:
        shown += os.read(terminal, 4096)
    os.close(terminal)
    (tmp_path / "GO").touch()
    assert process.wait(120) == 0
    assert status_of(tmp_path / "run")["state"] == "finished"
