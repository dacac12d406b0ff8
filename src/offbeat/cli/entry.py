"""Where the `offbeat` command begins: it can be interrupted before anything else is imported."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> NoReturn:
    """Run the command that was typed and exit: 0 done, 1 the run failed, 2 bad arguments or config, 130 interrupted."""
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        from offbeat.cli.main import run

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.stderr.write("offbeat: interrupted\n")
        sys.exit(130)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
