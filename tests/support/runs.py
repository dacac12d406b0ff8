"""Small runs, started from Python, from the command line in this process, and in processes of their own."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, redirect_stderr, redirect_stdout
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn
from unittest.mock import patch

from tests.support import warm
from tests.support.warm import REPOSITORY, ForkedProcess

from offbeat import __file__ as package_file
from offbeat.api.callbacks.callback import CallbackFunction
from offbeat.api.train import Run, train
from offbeat.cli import main
from offbeat.config.registry import algorithm_entry
from offbeat.config.resolve import resolve
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.field_definitions import hints_of
from offbeat.core.process.stop_signals import REPEATED_WITHIN_S
from offbeat.memory.unrolls import Unrolls
from offbeat.metrics.sinks import read_metrics
from offbeat.runtime.evaluation.evaluators import InlineEvaluator
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.reporting import Reporting
from offbeat.runtime.runtimes import acting_of, build
from offbeat.runtime.serial import SerialActing

SMALL: dict[str, Any] = {
    "steps": 1024,
    "envs_per_actor": 4,
    "unroll_length": 16,
    "minibatch_size": 32,
    "epochs": 2,
    "hidden_sizes": (16,),
    "normalize_observations": True,
    "normalize_returns": True,
    "learning_rate_schedule": "linear",
    "clip_schedule": "linear",
    "eval_every": 0,
    "checkpoint_every": 0,
}
"""A layout whose batches have at most 64 rows an unroll; everything that a checkpoint must keep is switched on."""


def small_run(path: Path, env: str = "CartPole-v1", **settings: Any) -> Run:
    """Train as `SMALL` says, with changes; `algorithm` among them, which is told only what it knows of `SMALL`."""
    callbacks, algorithm = settings.pop("callbacks", ()), settings.pop("algorithm", "ppo")
    settings = {"progress": "none", **small_settings(algorithm), **settings}
    return train(algorithm, env, run_dir=path, callbacks=callbacks, **settings)


def small_settings(algorithm: str) -> dict[str, Any]:
    """Return what an algorithm knows of `SMALL`."""
    known = hints_of(algorithm_entry(algorithm).config_class()) | hints_of(RuntimeConfig) | hints_of(RunConfig)
    return {key: value for key, value in SMALL.items() if key in known}


def small_arguments(path: Path, env: str = "CartPole-v1", **settings: Any) -> list[str]:
    """Return the arguments of `offbeat` that do the same."""
    return train_arguments("ppo", env, path, {**SMALL, **settings})


def train_arguments(algorithm: str, env: str, path: Path, settings: dict[str, Any]) -> list[str]:
    """Return the arguments of `offbeat` that train with settings, `imports` among them."""
    pairs = [f"{key}={_text(value)}" for key, value in settings.items() if key != "imports"]
    imports = [word for module in settings.get("imports", ()) for word in ("--import", module)]
    return ["train", algorithm, env, *imports, "--run-dir", str(path), "--progress", "lines", "--set", *pairs]


@contextmanager
def begun(env: str, **settings: Any) -> Iterator[tuple[PacedParts, SerialActing]]:
    """Yield both sides of such a run, in serial, with version 0 published and every actor begun.

    Tests have a fixture of the same name, which returns them and closes them at the end of the test.
    """
    with ExitStack() as stack:
        parts = stack.enter_context(closing(build(resolve("ppo", env, flags={**SMALL, **settings}))))
        acting = stack.enter_context(closing(acting_of(parts, 0, Reporting(print, print))))
        assert isinstance(acting, SerialActing)
        for policy in parts.policies:
            policy.learner.publish(0)
        if parts.league:
            parts.league.start()
        acting.start([None] * parts.config.runtime.actors)
        yield parts, acting


def unrolls_of(parts: PacedParts) -> Unrolls:
    """Return the memory of a run that is on-policy."""
    assert isinstance(parts.policy.slots, Unrolls)
    return parts.policy.slots


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def loaded_by(code: str) -> set[str]:
    """Return the modules that a fresh Python has loaded after it has run `code`."""
    script = f"{code}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


# --- what a run left behind ---------------------------------------------------------------------------------


def weights_of(run: Path, name: str = "latest") -> bytes:
    """Return the bytes of a checkpoint's weights files: one for each policy."""
    files = sorted((run / "checkpoints" / name).rglob("weights.safetensors"))
    assert files
    return b"".join(file.read_bytes() for file in files)


def weights_of_each(run: Path) -> dict[str, bytes]:
    """Return policy -> the bytes of its newest weights."""
    policies = run / "checkpoints" / "latest" / "policies"
    return {path.name: (path / "weights.safetensors").read_bytes() for path in sorted(policies.iterdir())}


def lines_of(run: Path) -> list[dict[str, Any]]:
    """Return the metrics lines, none where a run has not begun to write them."""
    return read_metrics(run) if (run / "metrics.jsonl").exists() else []


def status_of(run: Path) -> dict[str, Any]:
    status: dict[str, Any] = json.loads((run / "status.json").read_text())
    return status


def actors_of(run: Path) -> list[int]:
    """Return the pids of a run's actor processes, by index; none after its end, as for `pids_of`."""
    return pids_of(run, "actor")


def pids_of(run: Path, role: str) -> list[int]:
    """Return the pids of a run's processes with a role, by index.

    There are none before it has begun, and none after its end: then status.json names the main process alone. The
    status of a run that was killed still has them.
    """
    try:
        processes = status_of(run)["processes"]
    except FileNotFoundError:
        return []
    return [process["pid"] for process in processes if process["role"] == role]


def record_pids(run: Path, role: str) -> tuple[CallbackFunction, set[int]]:
    """Return a callback, and the pids of all processes with a role that the run has had when it is called."""
    pids: set[int] = set()

    def keep(_line: dict[str, Any]) -> None:
        pids.update(pids_of(run, role))

    return keep, pids


def process_of(run: Path) -> int:
    """Return the pid of a run's main process."""
    pid: int = status_of(run)["processes"][0]["pid"]
    return pid


def is_alive(pid: int) -> bool:
    """Whether a process still runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for a condition; the limit keeps a broken test from hanging."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.01)


def stop_from(env_steps: int) -> Callable[[dict[str, Any]], Literal["stop"] | None]:
    """Return a callback that asks for a stop at the first metrics line from `env_steps` on."""
    return lambda line: "stop" if line["env_steps"] >= env_steps else None


def has_saved(run: Path) -> bool:
    """Whether a run has a checkpoint of something that it has learned: the first is from before."""
    latest = run / "checkpoints" / "latest"
    return latest.is_dir() and latest.resolve().name > f"step-{0:012d}"


TIMED = {
    *("wall_time_s", "sps", "ups", "actor_wait_s", "learner_wait_s", "publish_s", "env_stall_max_s", "evaluation_s"),
    *("learner_dequeue_time_ms", "learner_load_time_ms", "learner_load_wait_time_ms"),
    *("learner_prepare_time_ms", "learner_grad_time_ms", "learner_exchange_time_ms"),
    *("memory_main_mb", "memory_children_mb", "memory_child_max_mb"),
    *("actor_wait_fraction", "learner_wait_fraction"),
    *("inference_wait_s", "inference_batch_requests"),
    *("message_wait_s", "row_bytes_per_env_step", "weight_bytes_per_env_step"),
    *("slots_filled", "slots_filled_min", "slots_filled_max"),
    *("learner_queue_size_mean", "learner_queue_size_min", "learner_queue_size_max"),
}
"""Slots and the queue depend on the clock outside of serial alone."""


def untimed(line: dict[str, Any]) -> dict[str, Any]:
    """Return what a metrics line says that does not depend on the clock."""
    return {
        name: value for name, value in line.items() if name not in TIMED and not name.startswith(("time_", "memory/"))
    }


def of_each_policy(line: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return a metric of each policy, by its name; of a run with one policy under the name "default"."""
    found = {
        name.split("/")[1]: line[name] for name in line if name.startswith("policies/") and name.endswith(f"/{metric}")
    }
    return found or {"default": line[metric]}


def contents(folder: Path) -> dict[str, str]:
    """Return the hash of every file and the target of every link in a folder."""
    return dict(sorted(_contents(str(folder), "")))


def _contents(folder: str, inside: str) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = inside + entry.name
            if entry.is_symlink():
                yield name, str(Path(entry.path).readlink())
            elif entry.is_file():
                yield name, sha256(Path(entry.path).read_bytes()).hexdigest()
            else:
                yield name, "folder"
                if entry.is_dir():
                    yield from _contents(entry.path, f"{name}/")


# --- the command line ---------------------------------------------------------------------------------------


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


def our_lines(text: str) -> list[str]:
    """Return the lines of tracebacks that are offbeat's own: a person is shown those of their code alone."""
    package = str(Path(package_file).parent)
    return [line for line in text.splitlines() if line.startswith(f'  File "{package}')]


def offbeat(*arguments: object) -> CommandResult:
    """Run a command in this process, as `offbeat ...` does in one of its own."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "path", sys.path[:]):
        try:
            code = main.run([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return CommandResult(code, out.getvalue(), err.getvalue())


def stop_in_evaluation(_evaluator: InlineEvaluator, _seconds: float, on_step: Callable[[], None]) -> NoReturn:
    """Stand for `InlineEvaluator.poll`: send a stop signal as soon as an evaluation runs."""
    os.kill(os.getpid(), signal.SIGTERM)
    on_step()
    raise AssertionError("the signal did not stop the evaluation")


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond `size` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# --- processes of their own ---------------------------------------------------------------------------------

OFFBEAT = "from offbeat.cli.entry import main; main()"
GROUP = f"import os; os.setpgid(0, 0); {OFFBEAT}"
"""Runs `offbeat` in a process group of its own, all of which a terminal would send a ^C to."""
HURRIED = """
from offbeat.core.process import threads
from offbeat.runtime.loop import signals
from offbeat.runtime.children import supervisor
threads.CLOSE_S, signals.GRACE_S = 0.1, 1.0
supervisor.ENV_CLOSE_S, supervisor.CLOSE_S = 0.5, 1.0
"""
"""Code that comes first where a run has workers that hang: it waits less than usual for their end."""
HURRIED_GROUP = HURRIED + GROUP
"""As `GROUP`, with less time than usual between a signal and the end of a run that cannot stop in order."""


def _python_path() -> list[str]:
    """Return where this process looks first: a copy of the package that is tested without being installed is there."""
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def run_python(
    code: str, *arguments: object, folder: Path, environment: Mapping[str, str] = os.environ
) -> CommandResult:
    """Run code in a process of its own, forked from a warm Python (warm.py), that knows no module of the tests."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        process = warm.warm_python().start(code, list(map(str, arguments)), folder, environment, (out, err))
        try:
            process.wait(120)
        finally:
            process.kill()
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read())
    assert process.returncode is not None
    return CommandResult(process.returncode, *said)


SCRIPT = """
import runpy, sys
sys.argv = sys.argv[1:]
sys.path[0] = sys.argv[0].rpartition("/")[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a Python file as `python FILE` does."""


def run_script(
    path: str | Path, *arguments: object, folder: Path, environment: Mapping[str, str] = os.environ
) -> CommandResult:
    """Run a Python file in a process of its own, as `run_python` runs code."""
    return run_python(SCRIPT, path, *arguments, folder=folder, environment=environment)


class Started:
    """A process of its own, with the tests' modules within reach of its imports. It does not outlive its test."""

    _of_this_test: ClassVar[list[Started]] = []

    def __init__(self, arguments: list[str], folder: Path, code: str = OFFBEAT, threads: int | None = 1) -> None:
        """Start `offbeat`, or other code, in `folder`, where what it prints is kept.

        It is forked from a warm Python (warm.py), and so are the children of its runs if those of runs in this process
        are. OpenMP has one thread there, so that tests do not wait for each other. With `threads=None` it is a fresh
        Python, whose environment says nothing of threads.
        """
        self._files = [folder / "stdout.txt", folder / "stderr.txt"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *_python_path()])}
        self.process: ForkedProcess | subprocess.Popen[bytes]
        with self._files[0].open("w") as out, self._files[1].open("w") as err:
            if threads == 1:
                environment["OMP_NUM_THREADS"] = "1"
                forks = warm.children_are_forked()
                self.process = warm.warm_python().start(code, arguments, folder, environment, (out, err), forks)
            else:
                command = [sys.executable, "-c", code, *arguments]
                self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=err)
        self._of_this_test.append(self)

    @classmethod
    def kill_all(cls) -> None:
        """Kill what the test that has ended leaves running, because it has failed; conftest.py calls this."""
        for started in cls._of_this_test:
            started.process.kill()
            started.process.wait()
        cls._of_this_test.clear()

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition that the process brings about."""
        wait_until(lambda: holds() or self.process.poll() is not None)
        assert self.process.poll() is None, self._said()

    def wait_for_text(self, text: str) -> None:
        """Wait until it has printed `text` on stderr."""
        self.wait_until(lambda: text in self._files[1].read_text())

    def end(self, *signals: signal.Signals, seconds: float = 120) -> CommandResult:
        """Send signals, wait for the end and return what was said; kill it if it takes longer than `seconds`."""
        for index, number in enumerate(signals):
            time.sleep(REPEATED_WITHIN_S + 0.1 if index else 0.0)
            self.process.send_signal(number)
        try:
            self.process.wait(seconds)
        finally:
            self.process.kill()
            self.process.wait()
        return self._said()

    def _said(self) -> CommandResult:
        out, err = (file.read_text() for file in self._files)
        assert self.process.returncode is not None
        return CommandResult(self.process.returncode, out, err)
