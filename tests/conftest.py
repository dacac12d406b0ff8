"""What every test process does: nothing that its tests start outlives it, even if it is killed with -9."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from tests.support import ray_clusters, survivors, thorough, warm
from threadpoolctl import ThreadpoolController

from offbeat.core.argument_notation import keep_flags
from offbeat.core.process import threads
from offbeat.core.process.threads import forbid_spinning
from offbeat.run_directory import versions
from offbeat.tuning import other_load

KINDS = {
    "chaos": ("chaos", "test_soak"),
    "docs": ("docs", "test_published_results", "test_seconds_to_score"),
    "exact": ("test_exactness", "test_matrix"),
    "gpu": ("gpu",),
    "learning": ("test_learning",),
    "ray": ("ray", "test_ray", "test_on_ray"),
}
"""Marker -> folders and files whose tests have it."""


def is_any_of(path: Path, names: Iterable[str]) -> bool:
    """Whether a test file has one of these names, or is in a folder that has one."""
    return not {*path.parent.parts, path.stem}.isdisjoint(names)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test with the kind of its file."""
    for kind, names in KINDS.items():
        if is_any_of(item.path, names):
            item.add_marker(kind)


LONGEST = ("learning", "exact")
"""Kinds whose files take longest."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files: one process runs each, and the others would wait for it if it were the last."""
    items.sort(key=lambda item: not any(item.get_closest_marker(kind) for kind in LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one process run all tests that share a cluster of Ray, and else all tests of a file."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = Path(nodeid.partition("::")[0])
            return "ray" if is_any_of(file, KINDS["ray"]) else str(file)

    return Scheduling(config, log)


@pytest.fixture(scope="module")
def nodes() -> Any:
    """The cluster of Ray that tests share."""
    return ray_clusters.shared_nodes()


@pytest.fixture
def connected(nodes: Any) -> Any:  # noqa: ARG001
    """The connection of this process to this cluster, which runs and commands in this process use too."""
    return ray_clusters.shared_connection()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Kill what a test has started and not ended, so that it does not run beside the next tests.

    End the cluster of Ray after the last test that shares it: it takes CPU time while it waits.
    """
    try:
        return (yield)
    finally:
        if runs := sys.modules.get("tests.support.runs"):  # else the test has started nothing
            runs.Started.kill_all()
        if nextitem is None or not nextitem.get_closest_marker("ray"):
            ray_clusters.end_shared_nodes()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt modules and tests, which live until the end, from garbage collection: it would traverse half a million."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _git_is_asked_once() -> Iterator[None]:
    """Ask git for the state of this repository once, not in each of a thousand runs; other folders are asked each time.

    What a run records of git is tested in repositories of its own, in run_directory/test_versions.py.
    """
    repository = Path(__file__).parents[1]

    def once(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
        kept: dict[Path, Any] = {}

        def asked(folder: Path) -> Any:
            try:
                here = folder.resolve()
            except FileNotFoundError:  # the working directory was deleted
                return function(folder)
            if not here.is_relative_to(repository):
                return function(folder)
            if here not in kept:
                kept[here] = function(folder)
            return kept[here]

        return asked

    with patch.multiple(versions, git_state=once(versions.git_state), git_diff=once(versions.git_diff)):
        yield


STARTING = [import_module(name) for name in warm.STARTING]
"""Modules that start processes, which are forked in `make test`."""


@pytest.fixture(autouse=True, scope="session")
def _children_are_forked() -> Iterator[None]:
    """In `make test`, fork the children of runs in this process instead of starting a Python for each (warm.py)."""
    if thorough.THOROUGH or sys.platform != "linux":
        yield
        return
    with ExitStack() as stack:
        for module in STARTING:
            stack.enter_context(patch.object(module, "subprocess", warm.FORKING))
        yield


@pytest.fixture(autouse=True, scope="session")
def _nothing_is_synced() -> Iterator[None]:
    """In `make test`, do not wait for the disk: only a crash of the system would show whether files are synced.

    Which files are synced, and when, is tested in run_directory/test_run_directory.py.
    """
    if thorough.THOROUGH:
        yield
        return
    with patch.object(os, "fsync", warm.no_fsync):
        yield


@pytest.fixture(autouse=True, scope="session")
def _measurements_are_short() -> Iterator[None]:
    """Observe the load of the machine for a moment, and so the costs of auto layout: no test depends on either."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(other_load, "SAMPLE_S", 0.02))
        if "torch" in sys.modules:  # else no test makes a run
            auto_layout = import_module("offbeat.tuning.auto_layout")
            stack.enter_context(patch.multiple(auto_layout, STEPS_S=0.02, LEARN_S=0.02))
        yield


@pytest.fixture(autouse=True, scope="session")
def _libraries_are_found_again_after_imports_alone() -> Iterator[None]:
    """Look for libraries with threads only after more modules were imported: each run looks for them several times."""
    found: dict[int, ThreadpoolController] = {}

    def controller() -> ThreadpoolController:
        if (modules := len(sys.modules)) not in found:
            found.clear()
            found[modules] = ThreadpoolController()
        return found[modules]

    with patch.object(threads, "ThreadpoolController", controller):
        yield


@pytest.fixture
def in_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a new folder be the current one."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fresh_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the children of runs in this process as users do: each is a new Python, which has loaded nothing."""
    for module in STARTING:
        monkeypatch.setattr(module, "subprocess", subprocess)


@pytest.fixture
def begun() -> Iterator[Callable[..., Any]]:
    """Return a function that begins a run as `runs.begun` does. The run is closed at the end of the test."""
    from tests.support import runs  # it loads torch

    with ExitStack() as stack:
        yield lambda env, **settings: stack.enter_context(runs.begun(env, **settings))


def pytest_configure(config: pytest.Config) -> None:
    """Begin before any test, in each of xdist's processes too."""
    thorough.THOROUGH = "not thorough" not in config.option.markexpr
    # No test depends on how fast a machine is.
    settings.register_profile("offbeat", thorough.examples(100), suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("offbeat")
    survivors.mark_and_watch()
    forbid_spinning()  # as a run does, but before a test file loads torch
    keep_flags()  # tests expect messages as they are written; core/test_argument_notation.py has what Python shows
    os.environ.setdefault("RAY_worker_niceness", "0")  # with Ray's 15, workers would hardly run beside other tests
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup would have ignored, in what tests start too
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
