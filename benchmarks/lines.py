"""The lines of JSON that another program writes to a file, as they come."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

POLL_EVERY_S = 0.01


def follow(path: Path, writer: subprocess.Popen[Any]) -> Iterator[dict[str, Any]]:
    """Yield each line of a file as soon as it is whole, until the program that writes it has ended."""
    while not path.exists():
        if writer.poll() is not None:
            return
        time.sleep(POLL_EVERY_S)
    with path.open() as file:
        while True:
            has_ended = writer.poll() is not None  # before the file is read: what is read then is all there is
            yield from _new_lines(file)
            if has_ended:
                return
            time.sleep(POLL_EVERY_S)


def _new_lines(file: TextIO) -> list[dict[str, Any]]:
    """Return the whole lines since the last call."""
    start = file.tell()
    text = file.read()
    whole = text[: text.rfind("\n") + 1]
    file.seek(start + len(whole))
    return [json.loads(line) for line in whole.splitlines()]
