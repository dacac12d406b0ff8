"""`offbeat` as a child process of `offbeat run`. It stops when its parent ends, even if the parent was killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import NoReturn

from offbeat.cli import entry


def main() -> NoReturn:
    """Run the `offbeat` command. Stop, as by SIGTERM, when standard input reaches its end: the parent has ended."""
    sys.argv[0] = "offbeat"
    threading.Thread(target=_stop_at_end_of_file, daemon=True).start()
    entry.main()


def _stop_at_end_of_file() -> None:
    with suppress(OSError):
        while os.read(0, 1):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
