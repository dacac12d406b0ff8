"""What the pages and the examples show can be typed; tests/support/pages.py says what is run, and how much of it."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from select import select

import pytest
from tests.support.pages import LANGUAGES, PAGES, ROOT, SHELL, Block, blocks, shortened
from tests.support.registries import registries_kept
from tests.support.runs import offbeat as offbeat_here
from tests.support.runs import run_python, run_script, small_run
from tests.support.thorough import thorough

import offbeat
from offbeat.cli import main
from offbeat.cli.train import RunArguments
from offbeat.config.config import Config
from offbeat.metrics.bottleneck import LABELS
from offbeat.runtime.evaluation import schedule
from offbeat.runtime.evaluation.evaluators import Evaluator, InlineEvaluator
from offbeat.runtime.evaluation.plan import EvaluationPlan
from offbeat.runtime.main_thread import MainThreadWatch
from offbeat.runtime.reporting import Reporting

OWN = ("my_env", "own_algorithm", "own_replay_algorithm", "own_encoder")
"""Modules of the user's, which pages speak of."""
SCRIPTS = Path(sys.executable).parent
"""The folder with this Python's `offbeat`."""
WITH_CODE = [page for page in PAGES if any(block.runs for block in blocks(page))]


def each(belongs: str) -> list[tuple[str, Block]]:
    """Return all blocks of which a property is true, with their pages."""
    return [(page, block) for page in PAGES for block in blocks(page) if getattr(block, belongs)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """runs/my-run, which the pages speak of."""
    path: Path = tmp_path_factory.mktemp("runs") / "my-run"
    offbeat.train("ppo", "CartPole-v1", steps=1000, stop_at=500, run_dir=path)
    return path


# --- what is run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", WITH_CODE)
def test_the_code_on_a_page_runs(page, trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path / "runs/my-run", symlinks=True)
    for module in OWN:
        shutil.copy(ROOT / f"examples/{module}.py", tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(schedule, "make_evaluator", evaluator_here)
    names: dict[str, object] = {"__name__": "page"}
    with registries_kept(*OWN):
        for block in blocks(page):
            if block.runs and block.language == "python":
                exec(compile(shortened(block.text), page, "exec"), names)
            elif block.runs:
                run_commands(block, tmp_path)


def test_the_runtime_of_the_page_about_extensions_trains(tmp_path, monkeypatch, capsys):
    (block,) = [block for block in blocks("docs/reference/extending.md") if "RUNTIME = " in block.text]
    (tmp_path / "my_runtime.py").write_text(block.text)
    monkeypatch.syspath_prepend(tmp_path)
    with registries_kept("my_runtime"):
        small_run(tmp_path / "run", runtime="announced", actors=2, imports=("my_runtime",))
    assert "starting 2 actor threads" in capsys.readouterr().out


def evaluator_here(
    plan: EvaluationPlan,
    _config: Config,
    reporting: Reporting,
    main_thread: MainThreadWatch,
    on_endless: Callable[[int], None],
    **_: object,
) -> Evaluator:
    """Evaluate two episodes, as with evaluator=inline: each evaluator process takes half a second to start."""
    plan = replace(plan, run=replace(plan.run, eval_episodes=2))
    return InlineEvaluator(plan, main_thread.env_calls(reporting.notify), on_endless)


def run_commands(block: Block, folder: Path) -> None:
    for command, shown in block.commands():
        code, said = run_command(command if block.as_shown else shortened(command), folder)
        assert code == block.exit_code, f"{command}\n{said}"
        if block.as_shown:
            assert said == shown
        elif shown:
            assert kinds_of(said) == kinds_of(shown), command


def kinds_of(said: str) -> set[str]:
    """Return the kinds of lines: the first two words of each, without numbers, of which a short run has others.

    A run so short may end with another bottleneck than the one shown, skips no evaluation, and may have quick ones.
    """
    lines = (re.sub(r"\d[\d.,]*[kM]?", "N", line) for line in said.splitlines())
    kinds = {" ".join(line.split()[:2]) for line in lines if line.strip()}
    bounds = {f"{label}:" for label in LABELS.values()}
    kinds = {"bottleneck" if kind.split()[0] in bounds else kind for kind in kinds}
    return kinds - {"an evaluation", "evaluations took", "auto layout"}


def run_command(command: str, folder: Path) -> tuple[int, str]:
    """Type a command in a folder, which is the current one; return its exit code, and what it says.

    What it calls `offbeat` with is run in this process: it takes seconds to load torch in one of its own. With
    --trust-code it is run in a process that is forked, as this process has imported what a user's would only then; so
    are scripts, and commands with a variable.
    """
    if variable := re.match(r"(\w+)=(\S+) ", command):
        command = command.removeprefix(variable[0])
    if command.startswith("python ") or "--trust-code" in command or variable:
        program, *arguments = shlex.split(command.removeprefix("python "))
        script = SCRIPTS / program if program == "offbeat" else Path(program)
        environment = {**os.environ, **({variable[1]: variable[2]} if variable else {})}
        said = run_script(script, *arguments, folder=folder, environment=environment)
        return said.code, said.out + said.err
    programs = Path(tempfile.mkdtemp(dir=folder))
    with fifo(programs / "asked") as asked, fifo(programs / "answered") as answered:
        (programs / "offbeat").write_text(ASKS.format(programs))
        (programs / "offbeat").chmod(0o755)
        with typing(command, folder, programs) as typed:
            while typed.poll() is None:
                if select([asked], [], [], 0.02)[0]:
                    said = offbeat_here(*os.read(asked, 65536).decode().split("\x1f")[:-1])
                    (programs / "said").write_text(said.out + said.err)
                    os.write(answered, f"{said.code}\n".encode())
            assert typed.stdout
            return typed.returncode, typed.stdout.read()


ASKS = """#!/bin/bash
printf '%s\\x1f' "$@" >{0}/asked
read -r code <{0}/answered
cat {0}/said
exit $code
"""
"""A program that lets this process do what it is called for."""


@contextmanager
def fifo(path: Path) -> Iterator[int]:
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR)  # so that neither side waits for the other one to open it
    yield descriptor
    os.close(descriptor)


def shell(command: str, folder: Path, first: Path = SCRIPTS) -> subprocess.CompletedProcess[str]:
    """Type a command to its end; see `typing`."""
    with typing(command, folder, first) as typed:
        out, _ = typed.communicate(timeout=120)
    return subprocess.CompletedProcess(command, typed.returncode, out)


def typing(command: str, folder: Path, first: Path) -> subprocess.Popen[str]:
    """Type a command in a folder, with the programs of a folder, this Python's `offbeat` among them, before others."""
    search = os.pathsep.join([str(first), os.environ["PATH"]])
    return subprocess.Popen(
        ["bash", "-e", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": search},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(("page", "block"), each("is_file"), ids=lambda part: getattr(part, "note", part))
def test_a_file_shown_on_a_page_equals_the_file(page, block):
    assert block.text == (ROOT / block.note.removeprefix("file: ")).read_text(), page


# --- what is only checked ---------------------------------------------------------------------------------------

PROGRAMS = ("offbeat", "make", "pip", "python", "ray", "srun")
GPU_SCRIPT = Path("benchmarks/gpu.sh")
SAYS = """#!/bin/bash
printf '%s\\x1f' "${0##*/}" "$@" >>typed
echo >>typed
"""


@pytest.mark.parametrize(("page", "block"), each("only_checked"), ids=lambda part: getattr(part, "note", part))
def test_code_that_tests_cannot_run_parses(page, block, tmp_path, monkeypatch):
    if block.language == "python":
        ast.parse(block.text)
        return
    assert block.language in SHELL
    monkeypatch.chdir(tmp_path)
    commands = list(typed(block, tmp_path))
    assert commands, page
    for program, *arguments in commands:
        check(program, arguments)


def typed(block: Block, folder: Path) -> Iterator[list[str]]:
    """Type a block where programs do nothing but write down how they were called; yield what they wrote."""
    programs = folder / "programs"
    for program in (*(programs / name for name in PROGRAMS), folder / GPU_SCRIPT):
        program.parent.mkdir(exist_ok=True)
        program.write_text(SAYS)
        program.chmod(0o755)
    for command, _ in block.commands():
        done = shell(command, folder, programs)
        assert done.returncode == 0, done.stdout
    for line in (folder / "typed").read_text().splitlines():
        yield line.split("\x1f")[:-1]


HELP_OF_A_MODULE = """
import runpy, sys
module, sys.argv[1:] = sys.argv[1], ["--help"]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def check(program: str, arguments: list[str]) -> None:
    """Check that a program takes these arguments."""
    if program == "offbeat":
        check_offbeat(arguments)
    elif program == "make":
        targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert targets
        assert {word for word in arguments if "=" not in word} <= set(targets[1].split())
    elif program == "pip":
        assert arguments[0] == "install"
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(re.findall(r"\w+", " ".join(re.findall(r"\[.*?\]", arguments[1])))) <= extras.keys()
    elif program == GPU_SCRIPT.name:
        listed = subprocess.run([ROOT / GPU_SCRIPT, "--list"], check=True, capture_output=True, text=True).stdout
        parts = {line.split()[0] for line in listed.splitlines()}
        assert {word for word in arguments if not word.startswith("--")} <= parts
    elif program == "srun":
        check(arguments[0], arguments[1:])
    elif program == "ray":
        check_ray(arguments)
    elif program == "python" and arguments[0] == "-c":
        ast.parse(arguments[1])
    elif program == "python":
        assert arguments[0] == "-m"
        told = run_python(HELP_OF_A_MODULE, arguments[1], folder=ROOT)
        assert {flag for flag in arguments if flag.startswith("--")} <= set(re.findall(r"--[\w-]+", told.out)), told


def check_offbeat(arguments: list[str]) -> None:
    """Check that the command line takes these arguments, and that a config or an experiment comes of them."""
    command = main._parse(arguments)
    if isinstance(command, RunArguments):
        command.config()
    elif arguments[0] == "run":
        flags = list(here(arguments[2:]))
        said = offbeat_here("run", ROOT / arguments[1], *flags, *{"--dry-run"} - set(flags))
        assert said.code == 0, said.err


def check_ray(arguments: list[str]) -> None:
    """Check that Ray has this command with these flags, and check the program that it starts."""
    if "--" in arguments:
        end = arguments.index("--")
        arguments, (program, *of_program) = arguments[:end], arguments[end + 1 :]
        check(program, of_program)
    scripts = pytest.importorskip("ray.scripts.scripts", reason="Ray is not installed")
    options = [option for name in (arguments[0], "start") for option in scripts.cli.commands[name].params]
    known = {flag for option in options for flag in option.opts}
    assert {word.split("=")[0] for word in arguments[1:] if word.startswith("-")} <= known


def here(arguments: list[str]) -> Iterator[str]:
    """Yield the arguments without those of a cluster, which does not exist."""
    words = iter(arguments)
    for word in words:
        if word in ("--on", "--ray-address", "--cpus", "--gpus", "--resources"):
            next(words)
        else:
            yield word


def test_every_code_block_is_run_checked_or_loaded():
    for page in PAGES:
        for block in blocks(page):
            taken = block.runs or block.is_file or block.only_checked or block.note == "part of a spec"
            assert taken == (block.language in LANGUAGES), f"{page}: {block.text}"
            if block.language not in LANGUAGES:
                assert not re.search(r"^(\$ |offbeat |python |import )", block.text, re.MULTILINE), page


# --- specs and examples -----------------------------------------------------------------------------------------

REST_OF_A_SPEC = 'algorithm = "ppo"\nenv = "CartPole-v1"\nseeds = [1]\n[search]\nmethod = "random"\ntrials = 2\n'


def test_a_partial_spec_on_a_page_is_valid_in_a_complete_spec(tmp_path):
    (block,) = [block for page in PAGES for block in blocks(page) if block.note == "part of a spec"]
    spec = tmp_path / "spec.toml"
    spec.write_text(REST_OF_A_SPEC + block.text)
    said = offbeat_here("run", spec, "--dry-run", "--dir", tmp_path / "experiment")
    assert said.code == 0, said.err


SPECS = sorted((ROOT / "examples/specs").glob("*.toml"))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_an_example_spec_is_valid(spec, tmp_path):
    said = offbeat_here("run", spec, "--dry-run", "--dir", tmp_path / "experiment")
    assert said.code == 0, said.err
    assert not any(tmp_path.iterdir())
    assert f"offbeat run {spec.relative_to(ROOT)}" in spec.read_text().partition("\n")[0]


DOCUMENTED = {
    path: re.findall(r"^    (offbeat .+)$", path.read_text().partition('"""\n\n')[0], re.MULTILINE)
    for path in sorted((ROOT / "examples").glob("*.py"))
}


NEEDS_UNITY = "unity_env.py"
"""An example that needs a Unity build. The tests of the adapter run what it does, with another program as the build."""


def test_every_example_documents_its_command_or_is_run_by_test_examples():
    others = (Path(__file__).parent / "test_examples.py").read_text() + NEEDS_UNITY
    assert [path.name for path, commands in DOCUMENTED.items() if not commands and path.name not in others] == []


ON_A_PAGE = ("own_algorithm.py", "own_replay_algorithm.py", "own_encoder.py")
"""Examples whose commands, or the same with other settings, are on a page too."""


@pytest.mark.parametrize(
    "path",
    [
        *(path for path in DOCUMENTED if DOCUMENTED[path] and path.name not in ON_A_PAGE),
        *thorough(*(path for path in DOCUMENTED if path.name in ON_A_PAGE)),
    ],
    ids=lambda path: path.name,
)
def test_the_documented_command_of_an_example_runs(path, tmp_path, monkeypatch):
    shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    with registries_kept(path.stem):
        for command in DOCUMENTED[path]:
            said = offbeat_here(*shortened(command).split()[1:])
            assert said.code == 0, f"{command}\n{said.err}"


def test_the_demo_script_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said = run_command(shortened((ROOT / "examples/demo.sh").read_text()), tmp_path)
    assert code == 0, said
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "return.png").exists()
    proposed = re.findall(r"^  offbeat (.+)$", said, re.MULTILINE)
    assert len(proposed) == 5
    for arguments in proposed:
        if arguments != "--help":
            check_offbeat(arguments.split())
