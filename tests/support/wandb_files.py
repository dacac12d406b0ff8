"""What W&B wrote on the disk, read back: records of its protocol in the log format of LevelDB."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

_BLOCK = 32768
_HEAD = struct.Struct("<IHB")
"""CRC, length and kind (1: whole; 2, 3, 4: first, middle, last piece) of a piece."""


class Written(NamedTuple):
    """One offline run."""

    id: str
    name: str
    project: str
    config: dict[str, Any]
    history: list[tuple[int, dict[str, float]]]
    """(step, figures), without W&B's own."""
    exit_code: int | None


def written_in(run: Path) -> list[Written]:
    """Return what W&B has written in a run directory, oldest first."""
    return [_written(file) for file in sorted(run.glob("wandb/offline-run-*/run-*.wandb"))]


def _written(file: Path) -> Written:
    protocol: Any = import_module("wandb.proto.wandb_internal_pb2")
    run, history, exit_code = None, [], None
    config: dict[str, Any] = {}
    for data in _records(file.read_bytes()):
        record = protocol.Record.FromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            config |= {item.key: json.loads(item.value_json) for item in run.config.update}
        elif kind == "config":
            config |= {item.key: json.loads(item.value_json) for item in record.config.update}
        elif kind == "history":
            figures = {
                "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
            }
            own = {name: value for name, value in figures.items() if not name.startswith("_")}
            history.append((int(figures["_step"]), own))
        elif kind == "exit":
            exit_code = record.exit.exit_code
    assert run is not None
    return Written(run.run_id, run.display_name, run.project, config, history, exit_code)


def _records(data: bytes) -> Iterator[bytes]:
    assert data[:4] == b":W&B"
    position, pieces = 7, b""
    while position + _HEAD.size <= len(data):
        if _BLOCK - position % _BLOCK < _HEAD.size:  # no piece begins in what is left of the block
            position += _BLOCK - position % _BLOCK
            continue
        _, length, kind = _HEAD.unpack_from(data, position)
        if kind == 0:
            return
        position += _HEAD.size
        pieces += data[position : position + length]
        position += length
        if kind in (1, 4):
            yield pieces
            pieces = b""
