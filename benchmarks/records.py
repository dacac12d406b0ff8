"""Records of runs in a file, one JSON object a line: an interrupted command continues where its file ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read_records(path: Path) -> list[Record]:
    """Return the records that are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append_record(path: Path, record: Record) -> None:
    """Append a record to a file, which is created if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def find_record(what: Mapping[str, Any], records: list[Record]) -> Record | None:
    """Return the last record that has all of `what`, None if there is none."""
    return next((record for record in reversed(records) if all(record.get(key) == what[key] for key in what)), None)
