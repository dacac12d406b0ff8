"""Starts the programs of a run: `offbeat` as users start it, forks of it, and runs beside the one that is tested."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.common import OFFBEAT
from benchmarks.soak.files import RunFiles
from benchmarks.soak.forks import Forked, offbeat
from benchmarks.soak.plan import Plan

Program = Forked | subprocess.Popen[bytes]
ASIDE_S = 240.0
"""After which a run beside the one that is tested is taken to hang."""


@contextmanager
def started(plan: Plan, files: RunFiles, arguments: list[str], runtime: str) -> Iterator[Program]:
    """Start `offbeat`. What it prints goes to files, as what outlives a run would keep a pipe open.

    It is forked, unless the mishap comes while it starts: then it is a fresh Python.
    """
    environment = files.environment(plan, runtime)
    files.begin_part()
    child: Program
    if plan.moment == "starting":
        command = [OFFBEAT, *arguments]
        with files.stdout.open("wb") as out, files.stderr.open("ab") as err:
            child = subprocess.Popen(
                command, cwd=files.folder, env=environment, stdout=out, stderr=err, start_new_session=True
            )
    else:
        child = Forked(offbeat(arguments), files.folder, environment, files.stdout, files.stderr)
    with child:
        try:
            yield child
        finally:
            child.kill()


def run_aside(program: Callable[[], None], folder: Path, environment: Mapping[str, str]) -> None:
    """Run a program that is not tested itself, to its end.

    Raises:
        ValueError: it failed, or took too long.
    """
    out = folder / "output.txt"
    child = Forked(program, folder, environment, out, out)
    try:
        code = child.wait(ASIDE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        raise ValueError(f"the run in {folder} takes too long") from None
    if code:
        raise ValueError(f"the run in {folder} ended with {code}: {out.read_text(errors='replace')[-1000:]}")
