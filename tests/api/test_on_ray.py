"""Evaluations and matches on the nodes of a Ray cluster: the results of one machine, with losses and stops."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.support.runs import Started, small_run
from tests.support.runs import offbeat as typed
from tests.support.thorough import thorough

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError, EnvFailed, RunFailed
from offbeat.envs import sending
from offbeat.runtime.ray import tasks
from offbeat.runtime.ray.tasks import TaskPool

NIM = "offbeat.envs.testing.games:Nim"
SETTINGS: dict[str, Any] = {"steps": 768, "runtime": "serial", "league": {"window": 2, "snapshot_every": 2}}


@pytest.fixture(scope="module")
def league(tmp_path_factory) -> Path:
    return small_run(tmp_path_factory.mktemp("league") / "run", NIM, **SETTINGS).path


def on_ray(nodes: Any) -> list[str]:
    return ["--on", "ray", "--ray-address", nodes.address]


@pytest.fixture
def pool(connected) -> TaskPool:
    return TaskPool(connected, {"CPU": 1, "GPU": 0}, "a task")


pytestmark = pytest.mark.usefixtures("connected")
ENV = sending.package("CartPole-v1", ())


# --- results ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [["--average"], *thorough([], ["--average", "--greedy"])], ids=" ".join)
def test_a_match_on_two_nodes_has_the_results_of_one_machine(nodes, league, more):
    arguments = ["match", league, "--episodes", 40, "--json", *more]
    here, there = typed(*arguments), typed(*arguments, *on_ray(nodes))
    assert there.code == 0, there
    assert there.out == here.out


def test_an_evaluation_on_a_node_has_the_result_of_one_machine(nodes, league):
    arguments = ["eval", league, "--episodes", 8, "--sampled", "--average", "--json"]
    here, there = typed(*arguments), typed(*arguments, *on_ray(nodes), "--resources", "other=0.5")
    assert there.code == 0, there
    assert there.out == here.out


def test_an_env_of_an_imported_module_is_evaluated_on_a_node_and_its_failure_is_reported(nodes, tmp_path):
    module = "tests.sample_envs.run_envs"
    run = small_run(tmp_path / "run", "runs/RaisesLate-v0", steps=64, imports=(module,)).path
    arguments = ["eval", run, "--import", module, "--json"]
    here, there = (typed(*arguments, "--episodes", 4, *more) for more in ([], on_ray(nodes)))
    assert there.code == 0, there
    assert there.out == here.out
    failed = typed(*arguments, "--episodes", 1000, *on_ray(nodes))
    assert failed.code == 1
    assert "an evaluation failed after" in failed.err


# --- tasks --------------------------------------------------------------------------------------------------


def end_worker_once(flag: str, index: int) -> int:
    """Kill this process the first time that the second task runs."""
    if index == 1 and not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return index


def fail(index: int) -> int:
    raise EnvFailed(f"env {index} failed")


def test_a_task_whose_worker_is_killed_is_repeated(pool, tmp_path):
    flag = str(tmp_path / "killed")
    assert sorted(pool.results(ENV, end_worker_once, [(flag, index) for index in range(3)])) == [(0, 0), (1, 1), (2, 2)]
    assert Path(flag).exists()


def number_of(value: Any) -> int:
    number: int = value.number
    return number


def test_a_task_finds_modules_in_the_folders_that_this_process_searches(pool, tmp_path, monkeypatch):
    (tmp_path / "module_of_a_task.py").write_text("class Value:\n    number = 3")
    monkeypatch.syspath_prepend(tmp_path)
    value = import_module("module_of_a_task").Value()
    assert sorted(pool.results(ENV, number_of, [(value,), (pool.put(value),)])) == [(0, 3), (1, 3)]


def test_a_module_that_is_not_on_the_node_of_a_task_is_reported_with_the_node(pool):
    env = sending.package("CartPole-v1", ("only_here",))
    with pytest.raises(RunFailed, match=r"the module only_here is not on the node .*: install it there"):
        list(pool.results(env, fail, [(0,)]))


def test_the_error_of_a_task_is_raised_here(pool):
    with pytest.raises(EnvFailed, match=r"^env 0 failed$"):
        list(pool.results(ENV, fail, [(0,)]))


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def test_tasks_fail_and_end_when_no_node_with_their_resources_is_left(pool):
    with (
        patch.object(pool._cluster, "nodes", return_value=[]),
        patch.object(tasks, "NODE_TIMEOUT_S", 0.0),
        pytest.raises(RunFailed, match=r"no node with 1 CPU for 0 s: add one"),
    ):
        list(pool.results(ENV, sleep, [(600.0,)] * 3))
    assert list(pool.results(ENV, sleep, [(0.0,)])) == [(0, None)]  # the others do not keep the CPUs


def work(seconds: float) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.05)
        tasks.note_progress()
    return "done"


def test_a_task_has_the_attempts_that_the_page_names():
    page = (Path(__file__).parents[2] / "docs/how-to/troubleshooting.md").read_text()
    assert f"in {tasks.RETRIES + 1} attempts" in page


def test_a_task_that_hangs_is_killed_and_fails_with_its_time_limit(pool):
    killed = r"in 1 attempts: .* no progress within 1\.5 s and was killed"
    with patch.object(tasks, "RETRIES", 0), pytest.raises(RunFailed, match=killed):
        list(pool.results(ENV, sleep, [(30.0,)], 1.5))
    assert list(pool.results(ENV, work, [(2.5,)], 1.5)) == [(0, "done")]


def test_the_time_limit_of_a_task_is_not_shorter_than_that_of_an_env_call_of_its_runs():
    slow = [RuntimeConfig(reset_timeout_s=7200.0), RuntimeConfig(step_timeout_s=9000.0), RuntimeConfig()]
    assert [tasks.stall_limit(slow[:1]), tasks.stall_limit(slow), tasks.stall_limit(slow[2:])] == [7200, 9000, 3600]
    assert tasks.stall_limit([RuntimeConfig(reset_timeout_s=1e300)]) == tasks.LONGEST_S


def test_tasks_that_need_more_than_a_node_has_are_refused(nodes, connected):
    said = typed("eval", "nowhere", *on_ray(nodes), "--cpus", "none")
    assert said.code == 2
    with pytest.raises(ConfigError, match="an evaluation needs 2 CPU, but no node"):
        TaskPool(connected, {"CPU": 2, "GPU": 0}, "an evaluation")


def running_tasks() -> list[int]:
    """Return the workers of Ray that run a task of ours, which has the name of its function."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if (path / "cmdline").read_bytes().startswith(b"ray::_call"):
                found.append(int(path.name))
    return found


def test_a_stopped_match_ends_its_tasks(nodes, league, tmp_path):
    started = Started(["match", str(league), "--episodes", "10000000", *on_ray(nodes)], tmp_path)
    started.wait_until(lambda: len(running_tasks()) == 2)
    said = started.end(signal.SIGINT)
    assert said.code == 130
    deadline = time.monotonic() + 60
    while running_tasks():
        assert time.monotonic() < deadline
        time.sleep(0.1)
