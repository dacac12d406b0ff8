"""A node of Ray runs this file to start a worker, which is forked from a Python that has loaded torch (warm.py).

A worker with a runtime environment is a fresh Python.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

VARIABLE = "OFFBEAT_TEST_RAY_WORKERS"
"""Environment variable: the path of the socket of the Python that forks."""
CODE = """
import atexit, os, runpy, sys, traceback
sys.argv, code = sys.argv[1:], 0
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    code = end.code or 0
except BaseException:
    traceback.print_exc()
    code = 1
atexit._run_exitfuncs()
os._exit(code)
"""
"""Runs the program of a worker, and ends without freeing one by one what torch has loaded."""
FOR_SETUP = ("--serialized-runtime-env-context=", "--language=")
"""Arguments that are not for the worker's program."""


def main(program: str, *arguments: str) -> None:
    """Start a worker; `program`: its file."""
    if any(argument.startswith(FOR_SETUP[0]) for argument in arguments):
        os.execv(sys.executable, [sys.executable, str(Path(program).with_name("setup_worker.py")), program, *arguments])
    worker = {
        "code": CODE,
        "arguments": [program, *(argument for argument in arguments if not argument.startswith(FOR_SETUP))],
        "flags": ["-P"],
        "folder": str(Path.cwd()),
        "environment": dict(os.environ),
        "node": os.getppid(),
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        asking.connect(os.environ[VARIABLE])
        socket.send_fds(asking, [json.dumps(worker).encode()], [1, 2])


if __name__ == "__main__":
    main(*sys.argv[1:])
