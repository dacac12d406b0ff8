"""Records of runs in a file, one JSON object a line: an interrupted command continues where its file ends."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

Record = dict[str, Any]


def read_records(path: Path) -> list[Record]:
    """Return the records that are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append_record(path: Path, record: Record) -> None:
    """Append a record to a file, which is created if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


class Named(Protocol):
    """A part of a benchmark."""

    @property
    def name(self) -> str: ...


Part = TypeVar("Part", bound=Named)


def read_parts(
    parser: argparse.ArgumentParser, parts: Sequence[Part], seeds: Sequence[int] | None
) -> tuple[argparse.Namespace, list[Part]]:
    """Read the options of a parser, and which parts are run: none if only the page is written.

    Args:
        parser: has the other options.
        parts: what can be run.
        seeds: the seeds that are run by default; None: each part has its own.
    """
    names = [part.name for part in parts]
    usual = "those of each part" if seeds is None else " ".join(map(str, seeds))
    parser.add_argument("parts", nargs="*", metavar="NAME", help=f"of {'; '.join(names)}; default: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=seeds, help=f"default: {usual}")
    parser.add_argument("--only-page", action="store_true", help="run nothing")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(names):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    chosen = [] if options.only_page else options.parts or names
    return options, [part for part in parts if part.name in chosen]


def find_record(what: Mapping[str, Any], records: list[Record]) -> Record | None:
    """Return the last record that has all of `what`, None if there is none."""
    return next((record for record in reversed(records) if all(record.get(key) == what[key] for key in what)), None)
