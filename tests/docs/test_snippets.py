"""What the pages show can be typed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.reference.pages import PAGES, ROOT, Block, blocks, shortened
from tests.reference.registries import registries_kept

import offbeat

OWN = ("my_env", "own_algorithm")
"""Modules of the user's, which pages speak of."""
WITH_CODE = [page for page in PAGES if any(block.runs for block in blocks(page))]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """runs/my-run, which the pages speak of."""
    path: Path = tmp_path_factory.mktemp("runs") / "my-run"
    offbeat.train("ppo", "CartPole-v1", steps=1000, run_dir=path)
    return path


@pytest.mark.parametrize("page", WITH_CODE)
def test_the_code_on_a_page_runs(page, trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path / "runs/my-run", symlinks=True)
    for module in OWN:
        shutil.copy(ROOT / f"examples/{module}.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    with registries_kept(*OWN):
        for block in blocks(page):
            if block.runs and block.language == "python":
                exec(compile(shortened(block.text), page, "exec"), names)
            elif block.runs:
                run_console(block, tmp_path)


def run_console(block: Block, folder: Path) -> None:
    for command, shown in block.commands():
        done = offbeat_shell(command if block.as_shown else shortened(command), folder)
        assert done.returncode == block.exit_code, f"{command}\n{done.stdout}"
        if block.as_shown:
            assert done.stdout == shown


def offbeat_shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Type a command in a folder, with this Python's `offbeat` first on the path."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": search},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )


FILES = [
    (block, block.note.removeprefix("file: ")) for page in PAGES for block in blocks(page) if "file: " in block.note
]


@pytest.mark.parametrize(("block", "path"), FILES, ids=[path for _, path in FILES])
def test_a_file_on_a_page_is_the_file_itself(block, path):
    assert block.text == (ROOT / path).read_text()
