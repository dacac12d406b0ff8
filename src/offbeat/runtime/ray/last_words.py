"""Says that a run has ended if Ray ends its process, in which no more code runs then.

Ray does that when its own process on this machine ends while something is put into the object store. So a watchdog
waits for the end of a pipe.
"""

from __future__ import annotations

import os

from offbeat.core.argument_notation import as_shown
from offbeat.run_directory.directory import RunDirectory
from offbeat.runtime.children.watchdog_process import end_watchdog, start_watchdog

_WATCHDOG = """
import json, os, sys
path, process, reason, text = sys.argv[1:]
sys.stdin.read()
try:
    with open(path) as file:
        status = json.load(file)
    main = {"role": "main", "index": 0, "pid": int(process)}
    if status["state"] == "running" and main in status["processes"]:  # else another process has resumed the run
        sys.stderr.write(text)
        with open(path + ".new", "w") as file:
            json.dump({**status, "state": "failed", "reason": reason, "phase": None}, file, indent=1)
        os.replace(path + ".new", path)
except (OSError, ValueError, KeyError):
    pass
"""
_REASON = "its process was killed, or ended by Ray, which does that when Ray itself was killed on this machine"


class LastWords:
    """If this process ends before `end`, a message on stderr and the status of the run say so."""

    def __init__(self, directory: RunDirectory) -> None:
        """Start the watchdog; the run, in this directory, may start later."""
        resume = as_shown(f"`{directory.next_command('resume')}` resumes from its latest checkpoint")
        text = f"\noffbeat: the run has ended: {_REASON}. {resume}\n"
        arguments = [str(directory.status_file.absolute()), str(os.getpid()), _REASON, text]
        self._watchdog = start_watchdog(_WATCHDOG, *arguments, stderr=None)

    def end(self) -> None:
        """End the watchdog: this process tells the end of the run itself."""
        end_watchdog(self._watchdog)
