"""`offbeat` as a child of `offbeat run`: it ends with the process that started it, however that one ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import NoReturn

from offbeat.cli import entry


def main() -> NoReturn:
    """Be `offbeat`; once the standard input ends, which nothing is written to, stop as if by SIGTERM."""
    sys.argv[0] = "offbeat"
    threading.Thread(target=_stop_at_end_of_file, daemon=True).start()
    entry.main()


def _stop_at_end_of_file() -> None:
    with suppress(OSError):
        while os.read(0, 1):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
