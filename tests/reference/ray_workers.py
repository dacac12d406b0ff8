"""Workers of Ray that are forked in `make test`, without the two seconds that it takes to load torch.

Ray starts each worker by a script that prepares its environment. On the nodes of tests this file is that script: it
asks a Python that was itself forked from the warm one (warm.py) to fork, and ends. The forked process runs the program
of Ray's workers, with the arguments, environment and files that Ray gave it. A worker with a runtime environment is
started by Ray's own script. Sessions of experiments are forked too, by their keepers, which workers start.

    python tests/reference/ray_workers.py PROGRAM ARGUMENT...    what Ray types
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ADDRESS = "OFFBEAT_TEST_RAY_WORKERS"
"""Environment variable of nodes: path of the socket of the Python that forks."""
CONTEXT = "--serialized-runtime-env-context="
"""Argument with the runtime environment of a worker, as JSON."""
LARGEST = 1 << 17
"""Bytes of a message."""
LOADED = (
    *(
        "requests",
        "jsonschema",
        "google.protobuf.json_format",
        "tqdm.auto",
        "unittest.mock",
        "colorama",
        "click",
        "pdb",
    ),
    "offbeat.experiments.node_session",
)
"""What workers import. Ray itself is not loaded before the fork: it reads the environment then."""
SERVES = "import sys; from tests.reference.ray_workers import serve; exec(*serve(sys.argv[1]))"
RUNS = "import runpy, sys; runpy.run_path(sys.argv[0], run_name='__main__')"


@contextmanager
def forked_workers() -> Iterator[dict[str, Any]]:
    """Start the Python that forks, and end it afterwards; not in `make test-all`, where Ray starts its workers itself.

    Yields:
        Arguments of a node of `ray.cluster_utils.Cluster`.
    """
    from tests.reference import thorough
    from tests.reference.warm import REPOSITORY, warm_python

    if thorough.THOROUGH or sys.platform != "linux":
        yield {}
        return
    with TemporaryDirectory(prefix="offbeat-") as folder, (Path(folder) / "printed").open("w") as printed:
        address = f"{folder}/socket"
        search = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
        environment = os.environ | {"PYTHONPATH": search}
        python = warm_python().start(SERVES, [address], REPOSITORY, environment, (printed, printed))
        os.environ[ADDRESS] = address
        try:
            while not Path(address).exists():
                assert python.poll() is None, Path(printed.name).read_text()
                time.sleep(0.01)
            yield {"setup_worker_path": __file__}
        finally:
            del os.environ[ADDRESS]
            python.kill()
            python.wait()


# --- in the process that Ray starts -------------------------------------------------------------------------


def ask(command: Sequence[str]) -> None:
    """Ask for a worker; with a runtime environment, become Ray's own script instead."""
    contexts = [word.removeprefix(CONTEXT) for word in command if word.startswith(CONTEXT)]
    if any(context not in ("", "{}") for context in contexts):
        own = next(Path(word).parent for word in command if word.endswith("default_worker.py")) / "setup_worker.py"
        os.execv(sys.executable, [sys.executable, str(own), *command])
    message = {"command": list(command), "environment": dict(os.environ), "folder": str(Path.cwd())}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        asking.connect(os.environ[ADDRESS])
        socket.send_fds(asking, [json.dumps(message).encode()], [1, 2])


# --- in the Python that forks -------------------------------------------------------------------------------


def serve(address: str) -> Any:
    """Fork for each worker that is asked for; return only in a worker, with the code that it is to run."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as requests:
        requests.bind(address)
        for module in LOADED:
            import_module(module)
        own = os.environ["PYTHONPATH"].split(os.pathsep)
        sys.path[:] = [path for path in sys.path if path and path not in own]
        gc.freeze()
        while True:
            message, files, _, _ = socket.recv_fds(requests, LARGEST, 2)
            if os.fork() == 0:
                break
            for file in files:
                os.close(file)
    return _worker(json.loads(message), *files)


def _worker(worker: dict[str, Any], out: int, err: int) -> Any:
    from tests.reference import warm

    from offbeat.experiments import node_session

    os.setpgid(0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.chdir(worker["folder"])
    if code := warm.fork_for_children():
        return code
    vars(node_session).update(subprocess=warm.FORKING, _KEEPER=FORKS_ITS_SESSION + vars(node_session)["_KEEPER"])
    words = [word for word in worker["command"] if not word.startswith((CONTEXT, "--language="))]
    code = warm.begin({**worker, "code": RUNS, "arguments": words, "flags": ["-P"]})
    sys.argv = words
    return code


# --- in the keeper of a session -----------------------------------------------------------------------------

FORKS_ITS_SESSION = """
import sys
from types import SimpleNamespace
from tests.reference.ray_workers import Session
sys.modules["subprocess"] = SimpleNamespace(Popen=Session)
"""
"""What a keeper runs first."""


class Session:
    """A session that is forked from its keeper: stands for `subprocess.Popen` there."""

    def __init__(self, command: Sequence[str]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            self._run(command)

    @staticmethod
    def _run(command: Sequence[str]) -> None:
        """Let this process be as one that `python -P -c` has just begun, until its end."""
        sys.modules["subprocess"] = subprocess
        os.close(int(sys.argv[1]))  # the pipe of the keeper
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        sys.path[:] = filter(None, sys.path)
        place = command.index("-c")
        sys.argv = ["-c", *command[place + 2 :]]
        exec(command[place + 1], {"__name__": "__main__"})
        sys.exit()

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


if __name__ == "__main__":
    ask(sys.argv[1:])
