"""offbeat is used from a script, `python -c`, a debugger, a trace function, pytest and a notebook.

No process of the caller is changed, in any runtime.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from tests.support.process_state import RUNTIMES, changed_by
from tests.support.runs import run_script
from tests.support.thorough import THOROUGH, thorough
from tests.support.warm import warm_python

import offbeat

REPOSITORY = Path(__file__).parents[2]
USE = """
import json, sys
from pathlib import Path
from tests.support.process_state import changed_by
found = changed_by(sys.argv[-1].split(), Path("runs"))
print("FOUND", json.dumps(found))
"""
TRACED = f"""
import sys
calls = []
def trace(frame, event, argument):
    calls.append(1)
sys.settrace(trace)
{USE}
assert sys.gettrace() is trace and len(calls) > 1000
"""
ALL = [*RUNTIMES, "resume", "evaluate", "load", "plot", "export", "watch"]
IN_PYTEST = ["threads", "hogwild"]
"""Runtimes whose processes take seconds to start, unless they are forked, as they are in pytest."""
OTHERS = [name for name in ALL if name not in IN_PYTEST]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(offbeat.__file__).parents[1]), str(REPOSITORY)])}


def found_by(command: list[str], names: list[str], folder: Path) -> dict[str, list[str]]:
    """Return what a command found, which gets the names of functions as its last argument."""
    done = subprocess.run(
        [*command, " ".join(names)], check=False, capture_output=True, text=True, cwd=folder, env=environment()
    )
    assert "FOUND" in done.stdout, done.stdout + done.stderr
    return found_in(done.stdout)


def found_in(printed: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(printed.partition("FOUND ")[2].splitlines()[0])
    return found


def script(folder: Path, code: str) -> str:
    file = folder / "script.py"
    file.write_text(code)
    return str(file)


WAYS: dict[str, tuple[Callable[[Path], list[str]], list[str]]] = {
    "a script": (lambda folder: [sys.executable, script(folder, USE)], ALL),
    "python -c": (lambda _: [sys.executable, "-c", USE], ["processes"]),
    "a debugger": (lambda folder: [sys.executable, "-m", "pdb", "-c", "continue", script(folder, USE)], ["threads"]),
    "a trace function": (lambda folder: [sys.executable, script(folder, TRACED)], ["serial", "load"]),
}
"""Name -> the command, in a fresh Python, and the functions that are used."""


@pytest.mark.parametrize("way", thorough(*WAYS))
def test_no_function_changes_the_process_of_its_caller(tmp_path, way):
    command, names = WAYS[way]
    assert found_by(command(tmp_path), names, tmp_path) == {name: [] for name in names}


@pytest.mark.parametrize(
    ("code", "names"), [(USE, OTHERS), (TRACED, ["serial", "load"])], ids=["a script", "a trace function"]
)
def test_no_function_changes_the_process_of_a_script_that_has_loaded_torch(tmp_path, monkeypatch, code, names):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    said = run_script(script(tmp_path, code), " ".join(names), folder=tmp_path)
    assert "FOUND" in said.out, said.out + said.err
    assert found_in(said.out) == {name: [] for name in names}


def test_pytest_finds_its_process_as_it_was(tmp_path, capsys):
    warm_python()  # from which processes of runs are forked here
    assert changed_by(IN_PYTEST, tmp_path / "runs") == {runtime: [] for runtime in IN_PYTEST}
    assert "env steps" not in capsys.readouterr().out


NOTEBOOK = """
import offbeat
settings = dict(steps=64, envs_per_actor=2, unroll_length=16, minibatch_size=16)
offbeat.train("ppo", "CartPole-v1", run_dir="shown", **settings)
"""


def test_a_notebook_shows_the_run_in_place_and_its_kernel_is_not_changed(tmp_path, monkeypatch):
    """Start a real kernel of Jupyter."""
    nbformat, nbclient = import_module("nbformat"), import_module("nbclient")
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    names = ["processes" if THOROUGH else "threads"]  # a process of a run takes a second to start there
    cells = [NOTEBOOK, f"import sys\nsys.argv = ['', '{' '.join(names)}']\n{USE}"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    by_kind = {each.output_type: each for each in notebook.cells[0].outputs}
    text = by_kind["display_data"].data["text/plain"]
    assert text.startswith("ppo on CartPole-v1")
    assert text.count(" env steps  return ") == 1
    assert by_kind["execute_result"].data["text/plain"].startswith("Run('shown', 'finished', env_steps=")
    assert "stream" not in by_kind
    printed = "".join(each.text for each in notebook.cells[1].outputs if each.output_type == "stream")
    # The kernel's own threads may open and close sockets at any time.
    changed = {name: set(looks) - {"pipes, sockets and shared memory"} for name, looks in found_in(printed).items()}
    assert changed == {name: set() for name in names}
