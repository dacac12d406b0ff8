"""A stream for progress and messages: what cannot be written is dropped."""

from __future__ import annotations

from typing import Any, TextIO, cast


def lossy(stream: TextIO) -> TextIO:
    """Return a stream that writes to another one, and drops what that does not take.

    The disk may be full, the terminal or the stream closed, or the reader of a pipe gone. None of it is a reason to end
    a run.
    """
    return cast("TextIO", _LossyStream(stream))


def first_error(stream: TextIO) -> OSError | ValueError | None:
    """Return why a stream of `lossy` has first dropped something. None: it has not, or is another stream."""
    return stream.error if isinstance(stream, _LossyStream) else None


class _LossyStream:
    """See `lossy`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | ValueError | None = None

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except (OSError, ValueError) as error:  # ValueError: it is closed, or its encoding lacks a character
            self.error = self.error or error
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self.error = self.error or error

    def __getattr__(self, name: str) -> Any:
        """Return everything else of the other stream, such as its encoding."""
        return getattr(self._stream, name)
