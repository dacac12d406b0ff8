"""The entry points of the `offbeat` command: `main` for users, `session` for child processes of `offbeat run`.

Both install their signal handler before they import any slow module.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from offbeat.cli.streams import is_output_written, make_streams_usable
from offbeat.core.process.stop_signals import STOP_SIGNALS, replaceable_handlers

SESSION_END_S = 300.0
"""Seconds that a session gets to end after its parent has ended. A large checkpoint may take minutes to save."""


def main() -> NoReturn:
    """Run the command and exit: 0 done, 1 the run failed, 2 bad arguments or config, 130 interrupted."""
    try:
        for number in replaceable_handlers():
            signal.signal(number, _interrupt)
        make_streams_usable()
        from offbeat.cli.main import run
        from offbeat.core.process.threads import declare_own_process

        declare_own_process()
        code = run(sys.argv[1:])
        _ignore_signals()
        code = code if is_output_written() else code or 1
    except KeyboardInterrupt:
        _ignore_signals()
        sys.stderr.write("offbeat: interrupted\n")
        code = 130
    from offbeat.core.process.process_exit import exit_process

    exit_process(code)


def session() -> NoReturn:
    """Run the command as a child of `offbeat run`. When the parent ends, or is killed, stop as after SIGTERM.

    A session whose main thread hangs in a library does not stop, so it is killed later: it would keep its run locked.
    The end of the parent closes standard input, which is a pipe. SIGTERM comes only from the parent or from this
    process, so it stops the command also where the parent ignores it, as its child would too.
    """
    sys.argv[0] = "offbeat"
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_stop_at_end_of_file, daemon=True).start()
    main()


def _stop_at_end_of_file() -> None:
    with suppress(OSError):
        while os.read(0, 1):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SESSION_END_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    """Ignore signals from now on: during exit they could only cause a traceback or another exit code."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
