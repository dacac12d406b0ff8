"""Processes that tests start, without the two seconds that it takes to load torch.

A Python that has loaded torch and offbeat, and has done nothing else, waits beside each test process, and one more
beside the cluster of Ray. It forks for each process, which has the environment, working directory, files and arguments
that it is given, the default signal handlers and the usual end of an interpreter: signals, kills and exit codes are
real. There are three kinds:

- Programs that a test starts (`Forks.start`).
- Workers of the Ray cluster that tests share (ray_worker.py).
- Children of a run, such as actors (`popen`), in the test process or in one of its programs, in `make test`; in
  `make test-all` these are fresh Pythons. A child is a child of the process with the run, as that expects, not of the
  Python that was forked.

Where the start of an interpreter is itself the point, a test starts a fresh one. Forked processes do not sync files to
the disk: only a crash of the system would show it.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import io
import json
import os
import random
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

from threadpoolctl import threadpool_info

REPOSITORY = Path(__file__).parents[2]
LOADED = (
    *("torch", "gymnasium", "torch.utils.tensorboard", "offbeat.cli.main", "offbeat.api.train", "offbeat.api.evaluate"),
    *("offbeat.runtime.serial", "offbeat.runtime.threads", "offbeat.runtime.processes", "offbeat.runtime.hogwild.loop"),
    *("offbeat.algorithms.ppo", "offbeat.algorithms.sac", "offbeat.fastpath.registrations"),
    *("offbeat.envs.adapters.gymnasium.adapter", "gymnasium.envs.classic_control"),
    *("offbeat.runtime.actor_process", "offbeat.runtime.inference.worker_process"),
    *("offbeat.runtime.evaluation.evaluator_process", "offbeat.runtime.hogwild.worker_process"),
    *("offbeat.runtime.learners.learner_process", "offbeat.experiments.running", "offbeat.runtime.ray.connecting"),
)
"""What a process finds loaded."""
STARTING = ("offbeat.runtime.children.child", "offbeat.experiments.launching", "offbeat.runtime.ray.connecting")
"""Modules that start the children of runs and of experiments, and the process that asks for an answer of Ray."""
Files = tuple[IO[Any], IO[Any]]
"""What a program prints: stdout and stderr."""
LARGEST = 1 << 20
"""Bytes of a message: code, arguments and environment of a process."""
MOST_FILES = 64
"""Files that a process can be given."""
LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
"""Resource limits that tests change."""
PR_SET_PDEATHSIG = 1
"""Option of prctl(2): the kernel sends this process a signal when its parent dies."""
PR_SET_CHILD_SUBREAPER = 36
"""Option of prctl(2): orphans among the descendants of this process become its children."""


class ForkedProcess:
    """A program that was started. It has the methods of `subprocess.Popen` that tests use."""

    def __init__(self, status: int) -> None:
        """Follow a program by the pipe on which its number and then its end are reported."""
        number = os.read(status, 8)
        assert number, "the Python that forks has ended"
        self._status, self.pid = status, int.from_bytes(number, "little")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._end_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return the exit code.

        Raises:
            TimeoutExpired: it has not ended in time.
        """
        if (code := self._end_within(timeout)) is None:
            raise subprocess.TimeoutExpired("a forked program", timeout or 0.0)
        return code

    def _end_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(os.read(self._status, 8), "little"))
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class Forks:
    """The Python that forks, from the side of a process that asks it to."""

    def __init__(self, asking: socket.socket) -> None:
        self._socket = asking

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return False

    def start(
        self,
        code: str,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        files: Files,
        forks: bool = False,
    ) -> ForkedProcess:
        """Start a program.

        Args:
            code: Python code, as `python -c` runs it.
            arguments: the arguments of the program.
            folder: its working directory.
            environment: its environment variables.
            files: where its output goes.
            forks: whether the children of its runs are forked too; else each is a fresh Python.
        """
        program = {
            "code": code,
            "arguments": list(arguments),
            "folder": str(folder.resolve()),
            "environment": dict(environment),
            "forks": forks,
        }
        return ForkedProcess(self._ask(program, [file.fileno() for file in files]))

    def start_child(self, child: Mapping[str, Any], files: Mapping[int, int], folder: str | None = None) -> int:
        """Start a child of this process in a folder, and return its pid; `files`: its number of a file -> ours."""
        here = os.open(folder or ".", os.O_RDONLY)
        try:
            with _ADOPTS_ONE_AT_A_TIME, _adopting_orphans():
                status = self._ask({**child, "files": list(files), "parent": os.getpid()}, [here, *files.values()])
                number = os.read(status, 8)
        finally:
            os.close(here)
        os.close(status)
        assert number, "the Python that forks has ended"
        return int.from_bytes(number, "little")

    def start_another(self, modules: Sequence[str], requests: socket.socket) -> None:
        """Start one more Python that forks. It also loads `modules`, and takes requests from a socket that is bound."""
        os.close(self._ask({"modules": list(modules)}, [requests.fileno()]))

    def _ask(self, process: Mapping[str, Any], files: Sequence[int]) -> int:
        """Ask for a process; return the end of a pipe on which it is reported."""
        reader, writer = os.pipe()
        message = json.dumps(process).encode()
        assert len(message) < LARGEST
        assert len(files) < MOST_FILES
        socket.send_fds(self._socket, [message], [writer, *files])
        os.close(writer)
        return reader


class Warm(Forks):
    """The Python that forks for a test process, and ends with it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours)
        search = [str(REPOSITORY), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"from tests.support.warm import serve; exec(*serve({theirs.fileno()}))"],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(search), "OMP_NUM_THREADS": "1"},
                cwd=REPOSITORY,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None


_ADOPTS_ONE_AT_A_TIME = threading.Lock()


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0)


_WARM: list[Forks] = []


def warm_python() -> Forks:
    """Return this process's warm Python, which a test process starts when it is first needed."""
    if not _WARM or _WARM[0].has_ended:
        _WARM[:] = [Warm()]
    return _WARM[0]


class ForkedChild(subprocess.Popen[Any]):
    """What `subprocess.Popen([sys.executable, ..., "-c", code, ...])` starts, forked from the warm Python."""

    def _execute_child(  # as `Popen` calls it: there is no public way to keep all but the start itself
        self, args: Any, _executable: Any, _preexec_fn: Any, _close_fds: Any, pass_fds: Any, cwd: Any, env: Any,
        _startupinfo: Any, _creationflags: Any, _shell: Any, p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int,
        errread: int, errwrite: int, *_others: Any,
    ) -> None:  # fmt: skip
        place = args.index("-c")
        child = {
            "code": args[place + 1],
            "arguments": args[place + 2 :],
            "flags": args[1:place],
            "environment": dict(os.environ if env is None else env),
            "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
            "niceness": os.getpriority(os.PRIO_PROCESS, 0),
            "cores": list(os.sched_getaffinity(0)),
            "limits": [resource.getrlimit(limit) for limit in LIMITS],
        }
        streams = {0: p2cread, 1: c2pwrite, 2: errwrite}
        files = {number: number if ours == -1 else ours for number, ours in streams.items()}
        self.pid = warm_python().start_child(child, {**files, **{number: number for number in pass_fds}}, cwd)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


def popen(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a child of a run: stands for `subprocess.Popen` there.

    Where it is to compute on several threads, it is a fresh Python: libraries count them when they are loaded.
    """
    environment: Mapping[str, str] = options.get("env") or os.environ
    one_thread = environment.get("OMP_NUM_THREADS") == "1"
    return (ForkedChild if one_thread else subprocess.Popen)(command, **options)


FORKING = SimpleNamespace(
    Popen=popen, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
)
"""Stands for the module `subprocess` where runs start their children."""


def children_are_forked() -> bool:
    """Whether the children of runs in this process are forked."""
    return all(vars(import_module(module))["subprocess"] is FORKING for module in STARTING)


def no_fsync(_file: object) -> None:
    """Stand for `os.fsync`: do not wait for the disk."""


# --- in the warm Python -------------------------------------------------------------------------------------


def serve(descriptor: int) -> Code:
    """Fork for each process that is asked for; return only in a forked process, with the code that it is to run."""
    for module in LOADED:
        import_module(module)
    threadpool_info()  # which then knows the paths of all libraries
    for finalizer in list(vars(weakref.finalize)["_registry"]):  # of torch's operators: 35 ms at the end of a process
        finalizer.atexit = False
    vars(os)["fsync"] = no_fsync
    own = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = [path for path in sys.path if path and path not in own]
    gc.freeze()
    return _serve(descriptor)


def _serve(descriptor: int) -> Code:
    """Fork for each process that is asked for; return only in a forked process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait for programs
    with socket.socket(fileno=descriptor) as requests:
        while True:
            message, files, _, _ = socket.recv_fds(requests, LARGEST, MOST_FILES)
            if not message:
                os._exit(0)  # the process that asks has ended
            if os.fork() == 0:
                break
            for file in files:
                os.close(file)
    process = json.loads(message)
    begins: Mapping[str, Callable[..., Code]] = {"parent": _child, "node": _ray_worker, "modules": _serve_with}
    begin = next((begin for key, begin in begins.items() if key in process), _program)
    return begin(process, *files)


def _serve_with(loading: Mapping[str, Any], status: int, descriptor: int) -> Code:
    """Load more modules, and fork for each process that is asked for on another socket."""
    os.close(status)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # what it forks does not inherit this
    for module in loading["modules"]:
        import_module(module)
    gc.freeze()
    return _serve(descriptor)


Code = tuple[Any, dict[str, Any]]
"""What a process runs: code, and its global variables."""


def _program(program: Mapping[str, Any], status: int, out: int, err: int) -> Code:
    """Fork once more: wait for the program here, and return what it is to run there."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if pid := os.fork():
        os.write(status, pid.to_bytes(8, "little"))
        os.write(status, os.waitpid(pid, 0)[1].to_bytes(8, "little"))
        os._exit(0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    for file in (out, err, status):
        os.close(file)
    os.chdir(program["folder"])
    if program["forks"]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            ours.close()
            return _serve(theirs.detach())
        theirs.close()
        _WARM[:] = [Forks(ours)]
        for module in STARTING:
            vars(sys.modules[module])["subprocess"] = FORKING
    return _begin(program)


def _ray_worker(worker: Mapping[str, Any], out: int, err: int) -> Code:
    """Fork once more, and return what the worker is to run there. Here, its parent waits until it or its node ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with suppress(ProcessLookupError):
        node = os.pidfd_open(worker["node"])
        if pid := os.fork():
            select.select([node, os.pidfd_open(pid)], [], [])
            os._exit(0)
        _place({0: os.open(os.devnull, os.O_RDONLY), 1: out, 2: err})
        os.chdir(worker["folder"])
        return _begin(worker)
    os._exit(0)


def _child(child: Mapping[str, Any], status: int, here: int, *files: int) -> Code:
    """Fork once more and end, so that the child is an orphan, which the test process adopts."""
    if os.fork():
        os._exit(0)
    os.setpgid(0, 0)
    while os.getppid() != child["parent"]:
        if not Path(f"/proc/{child['parent']}").exists():
            os._exit(1)
        time.sleep(0.0005)
    os.fchdir(here)
    os.sched_setaffinity(0, child["cores"])
    os.setpriority(os.PRIO_PROCESS, 0, child["niceness"])
    for limit, values in zip(LIMITS, child["limits"], strict=True):
        resource.setrlimit(limit, values)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, child["blocked"])
    os.write(status, os.getpid().to_bytes(8, "little"))
    _place(dict(zip(child["files"], files, strict=True)))
    if "-u" in child["flags"]:
        sys.stdout, sys.stderr = (_unbuffered(number) for number in (1, 2))
    return _begin(child)


def _place(files: Mapping[int, int]) -> None:
    """Give files the numbers that they are to have, and close all others."""
    above = 1 + max(100, *files)
    kept = {number: fcntl.fcntl(file, fcntl.F_DUPFD, above) for number, file in files.items()}
    os.closerange(0, above)
    for number, file in kept.items():
        os.dup2(file, number)
        os.close(file)


def _unbuffered(number: int) -> io.TextIOWrapper:
    raw: Any = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(raw, write_through=True)


def _begin(process: Mapping[str, Any]) -> Code:
    """Let this process be as one that `python -c` has just begun."""
    os.environ.clear()
    os.environ.update(process["environment"])
    sys.argv = ["-c", *process["arguments"]]
    sys.orig_argv = [sys.executable, "-c", process["code"], *process["arguments"]]
    search = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*([] if "-P" in process.get("flags", ()) else [""]), *search, *sys.path]
    random.seed()
    sys.modules["numpy"].random.seed()
    return compile(process["code"], "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__}
