"""Runs that have no record yet: they are made one after the other, and appended to a file of records."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from benchmarks.records import Record, append_record, find_record, read_records

Job = tuple[Record, Callable[[], Record]]
"""What identifies a run, and a function that makes it and returns what was measured."""


def make_missing(path: Path, jobs: Iterable[Job], said: Callable[[Record], str]) -> None:
    """Make the runs that have no record, and append one for each, with the revision of the library.

    Args:
        path: the file of records. Other commands may append to it at the same time.
        jobs: in the order in which they are made.
        said: returns what is printed of a record.
    """
    for what, make in jobs:
        if find_record(what, read_records(path)) is None:
            record = {**what, **make(), "revision": revision()}
            append_record(path, record)
            print(said(record), flush=True)


def require_python(parser: argparse.ArgumentParser, python: Path) -> None:
    """Refuse the command line if the interpreter of a peer is not there."""
    if not python.exists():
        parser.error(f"{python} does not exist: benchmarks/README.md says how to install the peer")


@cache
def revision() -> str:
    """Return the last commit that changed the library, with a + if files of the library differ from it."""
    git = ("git", "log", "-1", "--format=%h", "--", "src"), ("git", "status", "--short", "--", "src")
    commit, changes = (subprocess.run(each, capture_output=True, text=True, check=False).stdout.strip() for each in git)
    return commit + "+" * bool(changes)
