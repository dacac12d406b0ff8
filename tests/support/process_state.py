"""What a process can see of itself, and training with all runtimes that must leave it as it was. Imports no library."""

from __future__ import annotations

import gc
import locale
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

RUNTIMES: dict[str, dict[str, Any]] = {
    "serial": {"evaluator": "process"},
    "threads": {"actors": 1, "max_lag": 1, "evaluator": "process"},
    "processes": {"actors": 1, "max_lag": 1, "evaluator": "process"},
    "hogwild": {"workers": 1},
}
SETTINGS: dict[str, Any] = {
    "steps": 64,
    "envs_per_actor": 2,
    "unroll_length": 16,
    "minibatch_size": 16,
    "epochs": 1,
    "hidden_sizes": (8,),
    "eval_every": 32,
    "eval_episodes": 1,
    "evaluator": "inline",
    "progress": "none",
}


_TASKS = Path("/proc/self/task")
"""Directory of the threads of this process."""


def child_processes() -> Iterator[int]:
    """Yield the pids of the children of this process."""
    for task in _TASKS.iterdir():
        with suppress(OSError):  # the thread has ended
            yield from map(int, (task / "children").read_text().split())


def _open_files() -> Iterator[str]:
    gc.collect()  # shared memory is open until its last array is freed
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the folder itself
            yield str(file.readlink())


def open_descriptors() -> int:
    """Return how many file descriptors are open, without those of objects that nobody uses."""
    return len(list(_open_files()))


def _is_shared(name: str) -> bool:
    return name.startswith(("pipe:", "socket:", "/memfd:offbeat"))


def _of_library(name: str, look: Callable[[Any], object]) -> object:
    """Look at a library if it is loaded."""
    library = sys.modules.get(name)
    return None if library is None else look(library)


def _random_of_torch(torch: Any) -> object:
    return torch.get_rng_state().tolist()


def _settings_of_torch(torch: Any) -> object:
    threads = (torch.get_num_threads(), torch.get_num_interop_threads())
    return (*threads, torch.get_default_dtype(), torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled())


LOOKS: dict[str, Callable[[], object]] = {
    "signal handlers": lambda: {each: signal.getsignal(each) for each in signal.valid_signals()},
    "warnings": lambda: list(warnings.filters),
    "showwarning": lambda: warnings.showwarning,
    "logging": lambda: (logging.root.level, list(logging.root.handlers), logging.root.manager.disable),
    "environment": lambda: dict(os.environ),
    "current folder": Path.cwd,
    "search path": lambda: list(sys.path),
    "start method": lambda: (multiprocessing.get_start_method(allow_none=True),),  # None if it is not chosen yet
    "hooks": lambda: (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook, sys.breakpointhook),
    "trace functions": lambda: (sys.gettrace(), sys.getprofile()),
    "streams": lambda: (sys.stdin, sys.stdout, sys.stderr),
    "locale": lambda: locale.setlocale(locale.LC_ALL),
    "garbage collection": lambda: (gc.isenabled(), gc.get_threshold()),
    "interpreter": lambda: (sys.getswitchinterval(), sys.getrecursionlimit()),
    "cores and niceness": lambda: (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)),
    "threads": lambda: {thread.name for thread in threading.enumerate()},
    "child processes": lambda: sorted(child_processes()),
    "pipes, sockets and shared memory": lambda: sorted(filter(_is_shared, _open_files())),
    "random numbers": random.getstate,
    "random numbers of NumPy": lambda: _of_library("numpy", lambda numpy: str(numpy.random.get_state())),
    "NumPy": lambda: _of_library("numpy", lambda numpy: (numpy.geterr(), numpy.get_printoptions())),
    "random numbers of torch": lambda: _of_library("torch", _random_of_torch),
    "torch": lambda: _of_library("torch", _settings_of_torch),
    "matplotlib": lambda: _of_library("matplotlib", lambda library: dict(library.rcParams.copy())),
}


def state() -> dict[str, object]:
    """Return what can be seen of this process now."""
    return {name: look() for name, look in LOOKS.items()}


def changes(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """Return what differs. A library that was loaded in between has no state before."""
    return [name for name in before if before[name] is not None and before[name] != after[name]]


def uses(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the functions of offbeat, each with its name: training in each runtime, then what uses a run."""
    import offbeat

    run = folder / "serial"
    for runtime, layout in RUNTIMES.items():
        settings = {**SETTINGS, **layout, "runtime": runtime, "run_dir": folder / runtime}
        yield runtime, partial(_train, settings)
    yield "resume", lambda: offbeat.resume(run, steps=128, progress="none")
    yield "evaluate", lambda: offbeat.evaluate(run, episodes=2)
    yield "load", lambda: offbeat.load(run)
    yield "plot", lambda: offbeat.plot(run, out=folder / "return.png")
    yield "export", lambda: offbeat.export(run)
    yield "watch", lambda: offbeat.watch(run, video=folder / "episode.gif", max_steps=5)


def _train(settings: dict[str, Any]) -> None:
    import offbeat

    offbeat.train("ppo", "CartPole-v1", **settings)


def changed_by(names: Sequence[str], folder: Path) -> dict[str, list[str]]:
    """Use functions of offbeat; return what each has changed in this process."""
    found = {}
    for name, use in uses(folder):
        if name in names:
            before = state()
            use()
            found[name] = changes(before, state())
    return found
