"""Records of runs in a file, one JSON object a line: an interrupted command continues where its file ends."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from benchmarks.common import describe, machine, publish

Record = dict[str, Any]


def read_records(path: Path) -> list[Record]:
    """Return the records that are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append_record(path: Path, record: Record) -> None:
    """Append a record to a file, which is created if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def find_record(what: Mapping[str, Any], records: Sequence[Record]) -> Record | None:
    """Return the last record that has all of `what`, None if there is none."""
    return next((record for record in reversed(records) if all(record.get(key) == what[key] for key in what)), None)


class Unfinished:
    """The runs that a command has made so far, in a file beside its results, which are replaced only at its end.

    An interrupted command continues if it is given again, with equal options, code and machine; otherwise it begins
    anew.
    """

    def __init__(self, out: Path, name: str, **given: Any) -> None:
        """Read the runs of an earlier call.

        Args:
            out: folder of the results.
            name: of the results.
            given: what else decides them.
        """
        self._out, self._name = out, name
        self._path = out / f"{name}.unfinished.jsonl"
        head = as_json({"given": given, "code": _digest_of_code(), "machine": describe(machine())})
        self._records = read_records(self._path)
        if self._records[:1] != [head]:
            self._path.unlink(missing_ok=True)
            self._records = []
            self._append(head)

    def run(self, what: Record, make: Callable[[], Mapping[str, Any]]) -> Record:
        """Return the record of a run, which is made if it is not there; `what` identifies it."""
        return self.find(what) or self.add({**what, **make()})

    def find(self, what: Record) -> Record | None:
        """Return the record of a run; None if it was not made yet."""
        return find_record(as_json(what), self._records[1:])

    def add(self, record: Record) -> Record:
        """Keep the record of a run, and return it as it is read again."""
        return self._append(as_json(record))

    def _append(self, record: Record) -> Record:
        append_record(self._path, record)
        self._records.append(record)
        return record

    def publish(self, record: object, *paragraphs: str) -> None:
        """Write the results of all runs, and print the page."""
        publish(self._out, self._name, record, *paragraphs)
        self.forget()

    def forget(self) -> None:
        """Delete the file of the runs."""
        self._path.unlink()


def as_json(record: Record) -> Record:
    """Return a record as it is read again."""
    read: Record = json.loads(json.dumps(record, default=str))
    return read


def _digest_of_code() -> str:
    digest, root = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted([*(root / "benchmarks").rglob("*.py"), *(root / "src").rglob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


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
