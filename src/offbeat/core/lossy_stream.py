"""A stream for progress and messages: what cannot be written is dropped."""

from __future__ import annotations

from typing import Any, TextIO, cast


def lossy(stream: TextIO) -> TextIO:
    """Return a stream that writes to another one, and drops what that does not take.

    The disk may be full, the terminal or the stream closed, or the reader of a pipe gone. The stream may be an object
    of the caller, which raises any exception. None of it is a reason to end a run.
    """
    return cast("TextIO", _LossyStream(stream))


def first_error(stream: TextIO) -> Exception | None:
    """Return why a stream of `lossy` has first dropped something. None: it has not, or is another stream."""
    return stream.error if isinstance(stream, _LossyStream) else None


class _LossyStream:
    """See `lossy`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: Exception | None = None

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except Exception as error:  # noqa: BLE001
            self.error = self.error or error
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except Exception as error:  # noqa: BLE001
            self.error = self.error or error

    def isatty(self) -> bool:
        """Whether it is a terminal. A stream that is closed is none, nor is an object without this method."""
        try:
            return bool(self._stream.isatty())
        except Exception:  # noqa: BLE001
            return False

    def __getattr__(self, name: str) -> Any:
        """Return everything else of the other stream, such as its encoding."""
        return getattr(self._stream, name)
