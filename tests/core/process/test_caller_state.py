"""Training leaves the process that calls it as it was, however it ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.runs import small_run, small_settings
from threadpoolctl import ThreadpoolController

import offbeat
from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.core.process.allocator import keep_freed_memory, keeps_freed_memory, stop_keeping_memory
from offbeat.core.process.caller_state import caller_state
from offbeat.core.process.stop_signals import STOP_SIGNALS
from offbeat.core.process.threads import niceness_can_be_lowered, set_thread_count

RUN_ENVS = ("tests.sample_envs.run_envs",)

# --- what must be as it was ---------------------------------------------------------------------------------


def alarm(_number: int, _frame: Any) -> None:
    raise AssertionError("the caller's alarm went off")


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (*STOP_SIGNALS, signal.SIGALRM)]


def library_threads() -> dict[str, int]:
    return {library.filepath: library.num_threads for library in ThreadpoolController().lib_controllers}


THINGS: dict[str, Callable[[], Any]] = {
    "signal handlers": handlers,
    "torch's threads": torch.get_num_threads,
    "threads of BLAS and OpenMP": library_threads,
    "cores": lambda: os.sched_getaffinity(0),
    "niceness": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "environment": lambda: dict(os.environ),
    "search path": lambda: list(sys.path),
    "current folder": Path.cwd,
    "warnings": lambda: list(warnings.filters),
    "torch's settings": lambda: (
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_grad_enabled(),
    ),
    "torch's random numbers": lambda: torch.get_rng_state().tolist(),
}


@pytest.fixture(scope="module")
def other_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, which has loaded all libraries."""
    return small_run(tmp_path_factory.mktemp("other") / "run", steps=64).path


@pytest.fixture
def _particular_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_run: Path) -> Iterator[None]:
    """Let this process be one that a run would change in every way."""
    (tmp_path / "other").symlink_to(other_run)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    for name in ("OMP_WAIT_POLICY", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    threads, before = torch.get_num_threads(), signal.signal(signal.SIGALRM, alarm)
    torch.set_num_threads(3)
    signal.setitimer(signal.ITIMER_REAL, 1000.0, 7.0)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    torch.set_num_threads(threads)


# --- ways out -----------------------------------------------------------------------------------------------

OWN = {"runtime": "threads", "learner_nice": 1, "imports": RUN_ENVS, "steps": 512}
SETTINGS: dict[str, Any] = {**small_settings("ppo"), **OWN}


def train(env: str = "CartPole-v1", **settings: Any) -> None:
    cores = tuple(sorted(os.sched_getaffinity(0))[:1])
    offbeat.train("ppo", env, run_dir="run", **{"learner_cores": cores, **SETTINGS, **settings})


def raise_in_callback(_line: dict[str, Any]) -> None:
    raise LookupError("no such table")


def interrupt(_line: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def interrupt_twice(line: dict[str, Any]) -> None:
    for _ in range(2):
        interrupt(line)


def exit_in_callback(_line: dict[str, Any]) -> None:
    raise KeyboardInterrupt


def train_and_resume() -> None:
    train(stop_at=128)
    offbeat.resume("run", steps=512)


WAYS_OUT: dict[str, tuple[Callable[[], None], type[BaseException] | None]] = {
    "finished": (train, None),
    "resumed": (train_and_resume, None),
    "refused before it is prepared": (lambda: train(learning_rate=-1), ConfigError),
    "refused after it is prepared": (lambda: train("Pendulum-v1", init_from="other"), ConfigError),
    "an env raises": (lambda: train("runs/RaisesLate-v0", steps=5000), EnvFailed),
    "a callback raises": (lambda: train(callbacks=[raise_in_callback]), LookupError),
    "a callback raises KeyboardInterrupt": (lambda: train(callbacks=[exit_in_callback]), KeyboardInterrupt),
    "SIGINT": (lambda: train(callbacks=[interrupt]), None),
    "stopped at once": (lambda: train(callbacks=[interrupt_twice]), None),
}


@pytest.mark.usefixtures("_particular_caller")
@pytest.mark.parametrize("way_out", WAYS_OUT)
def test_training_restores_the_state_of_the_calling_process(way_out):
    run, error = WAYS_OUT[way_out]
    before = {name: look() for name, look in THINGS.items()}
    if error is None:
        run()
    else:
        with pytest.raises(error):
            run()
    after = {name: look() for name, look in THINGS.items()}
    assert [name for name in THINGS if after[name] != before[name]] == []
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    assert (0 < left < 1000, interval) == (True, 7.0)


def test_an_alarm_of_the_caller_interrupts_a_run(tmp_path):
    def give_up(_number: int, _frame: Any) -> None:
        raise TimeoutError("the caller has waited long enough")

    before = signal.signal(signal.SIGALRM, give_up)
    try:
        with pytest.raises(TimeoutError, match="long enough"):
            small_run(tmp_path / "run", callbacks=[lambda _line: signal.raise_signal(signal.SIGALRM)])
        assert signal.getsignal(signal.SIGALRM) is give_up
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_call_in_a_run_leaves_it_the_memory_that_it_has_freed():
    stop_keeping_memory()
    with caller_state():  # of the run
        kept = keep_freed_memory()
        with caller_state():  # of an evaluation in a callback
            pass
        assert keeps_freed_memory() == kept
    assert not keeps_freed_memory()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up the right to take a niceness back")
def test_a_niceness_that_cannot_be_restored_is_not_changed_and_reported(tmp_path, capsys):
    os.seteuid(65534)
    try:
        lowered = niceness_can_be_lowered()
    finally:
        os.seteuid(0)
    assert not lowered
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("offbeat.api.running.run.may_raise_niceness", lambda: lowered)
        nicenesses = []
        small_run(
            tmp_path / "run", runtime="threads", learner_nice=1, steps=128, progress="lines",
            callbacks=[lambda _line: nicenesses.append(os.getpriority(os.PRIO_PROCESS, 0))],
        )  # fmt: skip
    assert set(nicenesses) == {before}
    assert "train with the command line" in capsys.readouterr().err


def test_a_run_needs_no_default_device_of_torch_and_restores_that_of_the_caller(tmp_path):
    with torch.device("meta"):  # as "cuda" in a notebook, but no GPU is needed
        run = small_run(tmp_path / "run", steps=64)
        run = offbeat.resume(run, steps=128, progress="none")
        assert offbeat.export(run, format="torchscript").file.exists()
        assert torch.get_default_device().type == "meta"


# --- two at once ----------------------------------------------------------------------------------------------


class OtherRun(threading.Thread):
    """A run in another thread, which ends when it is told to."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self._threads = threads
        self._is_running, self._may_end = threading.Event(), threading.Event()
        self.left: dict[str, Any] = {}
        """What the run has left in its thread."""
        self.start()
        assert self._is_running.wait(60)

    def run(self) -> None:
        cores = os.sched_getaffinity(0)
        with caller_state() as state:
            state.save_library_settings()
            set_thread_count(self._threads)
            os.sched_setaffinity(0, {min(cores)})
            warnings.filterwarnings("ignore", message=f"of {self._threads}")
            os.environ["OMP_WAIT_POLICY"] = f"of {self._threads}"
            self._is_running.set()
            self._may_end.wait(60)
        self.left = {name: THINGS[name]() for name in ("cores", "torch's threads", "threads of BLAS and OpenMP")}

    def end(self) -> None:
        self._may_end.set()
        self.join()


@pytest.mark.usefixtures("_particular_caller")
@pytest.mark.parametrize("first_out", [0, 1])
def test_the_last_of_two_runs_at_once_restores_what_the_first_has_found(first_out):
    before = {name: look() for name, look in THINGS.items()}
    runs = [OtherRun(1), OtherRun(2)]
    runs[first_out].end()
    assert os.environ["OMP_WAIT_POLICY"] == "of 2"
    assert {name: before[name] for name in ("cores", "torch's threads")}.items() <= runs[first_out].left.items()
    runs[1 - first_out].end()
    assert [name for name, look in THINGS.items() if look() != before[name]] == []
    assert runs[1 - first_out].left.items() <= before.items()


@pytest.mark.usefixtures("_particular_caller")
def test_a_call_in_a_run_restores_the_settings_of_the_run():
    before = torch.get_num_threads()
    with caller_state() as run:
        run.save_library_settings()
        torch.set_num_threads(1)
        with caller_state() as call:
            call.save_library_settings()
            torch.set_num_threads(2)
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.usefixtures("_particular_caller")
def test_two_runs_at_once_leave_the_process_as_it_was(tmp_path):
    before = {name: look() for name, look in THINGS.items()}
    both_train, first_has_ended = threading.Barrier(2), threading.Event()

    def train_beside(index: int) -> None:
        lines: list[Any] = []

        def meet(line: dict[str, Any]) -> None:
            lines.append(line)
            if len(lines) == 1:
                both_train.wait(60)
                assert index == 0 or first_has_ended.wait(60)

        offbeat.train("ppo", "CartPole-v1", run_dir=tmp_path / str(index), callbacks=[meet], **SETTINGS)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(train_beside, 0), pool.submit(train_beside, 1)
        first.result()
        first_has_ended.set()
        second.result()
    assert [name for name, look in THINGS.items() if look() != before[name]] == []
