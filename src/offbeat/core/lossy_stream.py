"""A stream for progress and messages: what cannot be written is dropped."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TextIO, cast


def lossy(stream: TextIO) -> TextIO:
    """Return a stream that writes to another one, and drops what that does not take.

    The disk may be full, the terminal closed, or the reader of a pipe gone. None of it is a reason to end a run.
    """
    return cast("TextIO", _LossyStream(stream))


class _LossyStream:
    """See `lossy`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        """Return everything else of the other stream, such as its encoding."""
        return getattr(self._stream, name)
