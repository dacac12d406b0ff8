"""Says that a run has ended if Ray ends its process, in which no more code runs then.

Ray does that when its own process on this machine ends while something is put into the object store. So a helper
process waits for the end of a pipe, as the watchdog of `watchdog.py` does.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

from offbeat.core.argument_notation import as_shown
from offbeat.run_directory.directory import RunDirectory

_HELPER = """
import json, os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
path, reason, text = sys.argv[1:]
if sys.stdin.read() != "goodbye":
    try:
        with open(path) as file:
            status = json.load(file)
        if status["state"] == "running":
            sys.stderr.write(text)
            with open(path + ".new", "w") as file:
                json.dump({**status, "state": "failed", "reason": reason, "phase": None}, file, indent=1)
            os.replace(path + ".new", path)
    except (OSError, ValueError):
        pass
"""
_REASON = "its process was killed, or ended by Ray, which does that when Ray itself was killed on this machine"


class LastWords:
    """If this process ends before `end`, a message on stderr and the status of the run say so."""

    def __init__(self, directory: RunDirectory) -> None:
        """Start the helper; the run, in this directory, may start later."""
        resume = as_shown(f"`{directory.next_command('resume')}` resumes from its latest checkpoint")
        arguments = [str(directory.status.absolute()), _REASON, f"\noffbeat: the run has ended: {_REASON}. {resume}\n"]
        self._helper = subprocess.Popen(  # noqa: S603 - our own code, in the same Python, without slow imports
            [sys.executable, "-I", "-S", "-c", _HELPER, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def end(self) -> None:
        """End the helper: this process tells the end of the run itself."""
        with suppress(OSError):  # the helper was killed
            self._helper.communicate("goodbye")
