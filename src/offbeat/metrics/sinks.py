"""Sinks receive the lines of metrics: a JSON Lines file, TensorBoard, or your own sink (trackers: tracking/)."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from offbeat.core.errors import ConfigError
from offbeat.core.files import GivenPath, user_path
from offbeat.metrics.names import tag_of

Line = dict[str, float | None]
"""One line of metrics: name -> value; None if the value is not known yet."""


class Sink(Protocol):
    """Receives the lines of metrics."""

    def write(self, line: Line) -> None:
        """Write one line."""
        ...

    def close(self) -> None:
        """Write buffered lines, and release all resources."""
        ...


class WholeWrites:
    """A file to which each `write` appends all of its bytes or none, so that a full disk leaves no part of a record."""

    def __init__(self, path: Path) -> None:
        """Open a file, which is created if it does not exist."""
        self._file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            OSError: they could not be written.
        """
        end, rest = self._file.seek(0, os.SEEK_END), memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(end)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class JsonLines:
    """Appends one JSON object per line to a file. Another program can read each line as soon as it is written."""

    def __init__(self, path: Path) -> None:
        self._file = WholeWrites(path)

    def write(self, line: Line) -> None:
        """Append ``line``; unknown values are null, as strict JSON has no NaN."""
        self._file.write((json.dumps(line, allow_nan=False) + "\n").encode())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """Writes an event file for TensorBoard, over env steps, with one section for each group of metrics.

    It does not use TensorBoard's writer, which writes in a thread: there a full disk causes a traceback.

    Args:
        directory: Folder of the event files. It is created if it does not exist.
        resumed_at: Env steps at which the run is resumed; None for a new run. TensorBoard leaves out the later points
            of earlier files.
    """

    def __init__(self, directory: Path, resumed_at: int | None = None) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        directory.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns():020d}.{socket.gethostname()}.{os.getpid()}"
        self._file = WholeWrites(directory / name)
        self._records = RecordWriter(self._file)
        self._write(file_version="brain.Event:2")
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)  # TensorBoard ignores the first one of a run
        self._write(step=0 if resumed_at is None else resumed_at + 1, session_log=start)

    def write(self, line: Line) -> None:
        """Write all metrics that are known, at this line's env_steps."""
        values = [
            self._summary.Value(tag=tag_of(name), simple_value=value)
            for name, value in line.items()
            if value is not None
        ]
        self._write(step=int(line["env_steps"] or 0), summary=self._summary(value=values))

    def _write(self, **content: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: GivenPath, wanted: Callable[[str], bool] | None = None) -> list[dict[str, Any]]:
    """Read a JSON Lines file. That of a run has no lines as long as it does not exist.

    An incomplete last line (the writer was killed, or is still writing) is left out.

    Args:
        path: path of the file, or of the run directory in which it is; or a `Run`.
        wanted: whether a metric of this name is kept; None: all are. A long run has too many values for the memory.

    Raises:
        ConfigError: there is no such file, another line is not a JSON object, or the last ones are longer than any
            metrics line.
    """
    file = user_path(path)
    if file.is_dir():
        file /= "metrics.jsonl"
    if not (file.exists() or (file.name == "metrics.jsonl" and (file.parent / "config.toml").is_file())):
        raise ConfigError(f"{file} does not exist: pass a run directory, or the metrics.jsonl in it")
    lines = metrics_from_end(file)
    if wanted is not None:
        lines = ({name: value for name, value in line.items() if wanted(name)} for line in lines)
    return list(lines)[::-1]


def metrics_from_end(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a JSON Lines file from the last to the first, read in pieces; none if there is no such file.

    Raises:
        ConfigError: a line is not a JSON object, or the last ones are longer than any metrics line.
    """
    return (line for line, _ in _lines_from_end(path))


_PIECE = 1 << 16
"""Bytes that are read at once."""
_LONGEST = 1 << 24
"""Largest number of bytes in a line. A thousand policies need less than a tenth of them."""


def _lines_from_end(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each line with the place at which it ends, before its line break."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, (text, end) in enumerate(_texts_from_end(path, file)):
            try:
                record = json.loads(text.decode(), parse_constant=_refuse)
                if not isinstance(record, dict):
                    raise TypeError  # noqa: TRY301 - handled below, like the errors of json.loads
            except (ValueError, TypeError, RecursionError) as error:
                if number == 0:
                    continue
                shown = repr(text[:60].decode(errors="replace"))
                raise ConfigError(
                    f"line {_number(file, end)} of {path} is not a JSON object: {shown}. The file was changed by "
                    "another program: remove that line, or restore the file"
                ) from error
            yield record, end


def _texts_from_end(path: Path, file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield the text of each line, from the last to the first, with the place at which it ends."""
    start = end = size = file.seek(0, os.SEEK_END)
    later: list[bytes] = []
    """The pieces of the line that ends at `end`, from the last to the first."""
    while start > 0:
        start, stop = max(0, start - _PIECE), start
        file.seek(start)
        first, *others = file.read(stop - start).split(b"\n")
        for text in reversed(others):
            whole = b"".join([text, *reversed(later)])
            if whole or end < size:  # nothing follows the last line break
                yield whole, end
            end -= len(whole) + 1
            later = []
        later.append(first)
        if end - start > _LONGEST:
            raise ConfigError(
                f"{path} has a line of more than {_LONGEST >> 20} MiB, but lines of metrics are shorter: the file was "
                "changed by another program. Restore it"
            )
    if end:
        yield b"".join(reversed(later)), end


def _number(file: BinaryIO, end: int) -> int:
    """Return the number of the line that ends at a place."""
    file.seek(0)
    return 1 + sum(file.read(min(_PIECE, end - place)).count(b"\n") for place in range(0, end, _PIECE))


def _refuse(constant: str) -> None:
    """Refuse NaN and infinities, which metrics lines never have."""
    raise ValueError(constant)


def last_line_up_to(path: Path, learning_step: int) -> tuple[int, int]:
    """Return the last line of a JSON Lines file up to ``learning_step``, from which a run is resumed.

    Returns:
        Its learning step, and the bytes of the file up to its end; 0 and 0 if there is no such line.

    Raises:
        ConfigError: a later line was changed by another program.
    """
    for line, end in _lines_from_end(path):
        if not isinstance(line.get("learning_step"), int):
            raise ConfigError(f"{path} has a line without a learning_step: the file was changed by another program")
        if line["learning_step"] <= learning_step:
            return line["learning_step"], end + 1
    return 0, 0


def first_lines(path: Path, size: int) -> Iterator[bytes]:
    """Yield the lines in the first `size` bytes of a file, in pieces. The last one gets a line break if it has none."""
    with path.open("rb") as file:
        for place in range(0, size - 1, _PIECE):
            yield file.read(min(_PIECE, size - 1 - place))
    if size:
        yield b"\n"


class LateSink:
    """A sink that is created after the run has started. If it cannot write, the line is lost; the run continues."""

    def __init__(self, make: Callable[[], Sink], warn: Callable[[str], None]) -> None:
        self._make, self._warn = make, warn
        self._sink: Sink | None = None

    def open(self) -> None:
        """Create the sink. If this fails, the next line tries again."""
        try:
            self._sink = self._make()
        except OSError as error:
            self._warn(f"metrics cannot be written ({error}): the run continues")

    def write(self, line: Line) -> None:
        if self._sink is None:
            self.open()
        if self._sink is not None:
            try:
                self._sink.write(line)
            except OSError as error:
                self._warn(f"a metrics line could not be written ({error}): the run continues")

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()
