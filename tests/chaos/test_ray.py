"""Actors, nodes and main processes of runs on Ray that are killed, stopped or late.

No ticket is lost or learned from twice, nothing hangs, and no process of a Ray that a run has started outlives the run.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from benchmarks.soak.processes import descendants
from tests.support.ray_clusters import processes_of_ray
from tests.support.runs import GROUP, Started, has_saved, is_alive, lines_of, small_arguments, status_of, wait_until
from tests.support.scenes import Scene, cuts_between, scene
from tests.support.thorough import thorough

from offbeat.core.types import Tree
from offbeat.envs import sending
from offbeat.runtime.children import supervisor
from offbeat.runtime.children.child import search_path
from offbeat.runtime.ray import place_notice, proxy, tasks
from offbeat.runtime.ray.acting import RayActing
from offbeat.runtime.ray.cluster import Cluster
from offbeat.runtime.ray.messages import ActedTickets, Assignment
from offbeat.runtime.ray.proxy import ActorProxy

ON_RAY: dict[str, Any] = {"runtime": "ray", "actors": 2, "max_lag": 2, "unroll_length": 8}
HALF: dict[str, Any] = {**ON_RAY, "ray_cpus": 0.5}
"""There is room for four actors on the two nodes, so that one can start before the one that it replaces has ended."""


def proxies_of(it: Scene) -> list[ActorProxy]:
    assert isinstance(it.acting, RayActing)
    return it.acting._supervisor.processes


def pid_of(it: Scene, index: int) -> int:
    started = proxies_of(it)[index].started
    assert started is not None
    return started.pid


class Batches:
    """The unrolls of a run, by actor; each is checked as it is learned from."""

    def __init__(self, it: Scene, lag: int) -> None:
        self.it, self.lag, self.step = it, lag, 0
        self.of_actor: dict[int, list[Tree]] = defaultdict(list)

    def take(self, count: int) -> None:
        for _ in range(count):
            for index, unroll in enumerate(self.it.next_batch(self.step)):
                lags = self.step - unroll["behavior_version"]
                assert 0 <= lags.min() <= lags.max() <= self.lag
                self.of_actor[index].append(unroll)
            self.step += 1

    def take_until(self, holds: Callable[[], bool]) -> None:
        """Take batches until a condition holds."""
        end = time.monotonic() + 120.0
        while not holds():
            assert time.monotonic() < end, "what was waited for did not come"
            self.take(1)

    def take_until_restarts(self, count: int) -> None:
        """Take batches until actors have been restarted so often."""
        self.take_until(lambda: self.it.acting.restarts == count)

    @property
    def cuts(self) -> int:
        return sum(cuts_between(unrolls) for unrolls in self.of_actor.values())


@pytest.mark.usefixtures("connected")
def test_no_ticket_is_lost_or_used_twice_when_actors_are_killed_and_a_node_is_removed(nodes):
    random = Random(0)
    node = nodes.add_node(resources={"removed": 2})
    with scene(**HALF, ray_placement="spread") as it:
        it.begin()
        batches = Batches(it, lag=2)
        for kills in (1, 2, 3):
            batches.take(random.randrange(10, 30))
            os.kill(pid_of(it, random.randrange(2)), signal.SIGKILL)
            batches.take(10)
            batches.take_until_restarts(kills)
            batches.take(5)  # also of the new actor
        there = [each for each in proxies_of(it) if each.started and each.started.node == node.node_id]
        nodes.remove_node(node)
        batches.take_until_restarts(3 + len(there))
        batches.take(60)
        again = [text for text in it.said if "started again, at a marked cut" in text]
        assert batches.cuts == it.acting.restarts == len(again) == 3 + len(there)
        assert sum("was lost with its node" in text for text in again) == len(there)
        assert sum("The actor is dead because its worker process has died" in text for text in again) == 3


@pytest.mark.usefixtures("connected")
def test_commit_of_a_replaced_actor_is_refused():
    with scene(**{**HALF, "actors": 1}) as it, patch("ray.kill"), patch.object(Cluster, "kill"):
        it.begin()
        batches = Batches(it, lag=2)
        batches.take(5)
        assert isinstance(it.acting, RayActing)
        dispatcher, (replaced,) = it.acting._dispatcher, proxies_of(it)
        gate = dispatcher._gates[replaced.index]
        wait_until(lambda: gate.version(gate.open_ticket) is None)  # it has answered all tickets that it may have
        replaced.kill()
        late, is_replaced = Assignment(8, replaced.last_version, 0.0), threading.Event()

        def commit(acted: ActedTickets, message_s: float) -> None:
            is_replaced.wait(60)
            dispatcher._commit(replaced, acted, message_s)

        replaced.act([late], [], commit)
        it.acting._supervisor._restart(replaced, "was replaced")
        is_replaced.set()
        wait_until(lambda: dispatcher.refused == 1)
        batches.take(10)
        assert batches.cuts == 1
        assert "1 tickets of replaced actors came too late: they were refused, and acted again" in it.said


def stay(pid_file: str) -> None:
    """Write which process this is, and hold the interpreter, so that no code of Ray can end it."""
    Path(pid_file).write_text(str(os.getpid()))
    ctypes.PyDLL(None).sleep(600)


@pytest.mark.usefixtures("connected")
def test_a_task_that_hangs_ends_with_its_node(nodes, tmp_path):
    import ray

    node = nodes.add_node(resources={"killed": 1})
    file = tmp_path / "pid"
    own_python = {"env_vars": {"OWN": "1"}}  # else the process of the task is no child of the node
    task: Any = ray.remote(tasks._call)
    options: dict[str, Any] = {"resources": {"killed": 1}, "runtime_env": own_python, "max_retries": 0}
    arguments = map(tasks._pickled, (stay, str(file)))
    task.options(**options).remote(search_path(), sending.package("CartPole-v1", ()), 600.0, *arguments)
    wait_until(lambda: file.exists() and file.read_text() != "")
    pid = int(file.read_text())
    os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    nodes.remove_node(node)


@pytest.mark.usefixtures("connected")
def test_stopped_actor_is_replaced_and_its_process_is_killed():
    with scene(**HALF, stall_timeout_s=1.0) as it, patch.object(proxy, "ACTOR_ANSWER_S", 2.0):
        it.begin()
        batches = Batches(it, lag=2)
        batches.take(5)
        stopped = pid_of(it, 0)
        os.kill(stopped, signal.SIGSTOP)
        batches.take_until(lambda: it.acting.restarts > 0)
        batches.take(10)
        killed = "made no progress in time outside of its envs (stall_timeout_s) and was killed"
        assert any(killed in said for said in it.said), it.said  # perhaps after: actors not running yet
        wait_until(lambda: not is_alive(stopped))


@pytest.mark.usefixtures("connected")
def test_actor_that_is_stopped_before_it_has_answered_a_question_is_replaced():
    """Its deadline is then not that of its start any more, which leaves ten minutes to find a node."""
    with scene(**HALF, stall_timeout_s=1.0) as it, patch.object(proxy, "ACTOR_ANSWER_S", 2.0):
        with patch.object(ActorProxy, "ask"):
            it.begin()
            stopped = pid_of(it, 0)
            os.kill(stopped, signal.SIGSTOP)
        its_own = re.compile(rf"actor 0 \(process {stopped}.* made no progress in time")
        Batches(it, lag=2).take_until(lambda: any(map(its_own.search, it.said)))  # the other may be replaced too


@pytest.mark.usefixtures("connected")
def test_actor_that_is_stopped_when_the_run_ends_is_killed():
    with patch.object(supervisor, "CLOSE_S", 1.0), scene(**HALF) as it:
        it.begin()
        Batches(it, lag=2).take(2)
        stopped = pid_of(it, 0)
        os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: not is_alive(stopped))


@pytest.mark.usefixtures("connected")
def test_actor_whose_env_hangs_is_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with scene(**HALF, env="runs/HangsOnce-v0", step_timeout_s=1.0) as it:
        it.begin()
        batches = Batches(it, lag=2)
        batches.take_until_restarts(1)
        batches.take(10)
        killed = "was in a call of its envs that did not return in time (step_timeout_s) and was killed"
        assert any(killed in said for said in it.said), it.said  # perhaps after: actors not running yet


@pytest.mark.usefixtures("connected")
def test_actor_without_a_place_starts_when_a_node_joins(nodes):
    with (
        ExitStack() as removing,
        patch.object(proxy, "PLACE_S", 60.0),
        patch.object(place_notice, "FIRST_S", 0.5),
        patch.object(place_notice, "EVERY_S", 0.5),
        scene(**HALF, ray_resources=("other=0.7",)) as it,
    ):
        starts = threading.Thread(target=it.begin)
        starts.start()
        waits = "1 of 2 actors not running yet: starting, or waiting for a node with 0.5 CPU, 0.7 other free. The "
        wait_until(lambda: any(text.startswith(waits) for text in it.said), seconds=60.0)
        removing.callback(nodes.remove_node, nodes.add_node(resources={"other": 1}))
        starts.join()
        Batches(it, lag=2).take(10)
        assert it.acting.restarts == 0


# --- the main process -----------------------------------------------------------------------------------------


def folder_of_ray(pids: Collection[int]) -> Path:
    """Return the folder with the files of the Ray to which processes belong."""
    commands = "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in pids if is_alive(pid))
    (folder,) = set(re.findall(r"(/tmp/offbeat-[^/\0]+)/session", commands))
    return Path(folder)


@pytest.mark.parametrize("number", [signal.SIGKILL, *thorough(signal.SIGINT, signal.SIGTERM)])
def test_no_process_of_ray_outlives_a_run_that_is_killed_or_interrupted(tmp_path, number):
    arguments = small_arguments(
        Path("run"),
        "stalling/Starter-v0",
        imports=("tests.sample_envs.stalling",),
        steps=10**8,
        checkpoint_every=200,
        **ON_RAY,
    )
    run = Started(arguments, tmp_path, code=GROUP)
    run.wait_until(lambda: has_saved(tmp_path / "run") and len(list(tmp_path.glob("started-*"))) >= 2)
    left = descendants(run.process.pid)
    assert len(left) > 6, "Ray has a server, a node with two agents, and two actors, which have started a program each"
    folder = folder_of_ray(left)
    # By itself, the agent would end a minute later.
    assert any(name.startswith("ray::RuntimeEnvAgent") for name in processes_of_ray(folder))
    os.killpg(run.process.pid, number)
    ended = run.end()
    wait_until(lambda: not folder.exists())
    wait_until(lambda: number != signal.SIGKILL or processes_of_ray(folder) == [])
    wait_until(lambda: not any(map(is_alive, left)))
    if number != signal.SIGKILL:
        assert ended.code == 130, ended.err
        assert status_of(tmp_path / "run")["state"] == "interrupted"


ASKS_OFTEN = "from offbeat.runtime.ray import cluster_watch; cluster_watch.ASK_HEAD_EVERY_S = 0.2\n"
"""Code with which a run needs no twenty seconds to notice that the head is lost."""
LOST = [
    ("raylet", "Ray has ended on this machine: its raylet was stopped or killed"),
    *thorough(("gcs_server", "the head of the Ray cluster at [^ ]* does not answer")),
]
"""A program of Ray, and what a run says when it was killed."""


@pytest.mark.parametrize(("program", "reason"), LOST)
def test_a_run_whose_ray_is_lost_ends_with_the_reason_and_a_checkpoint(tmp_path, program, reason):
    """An env hangs when it is lost: while something is put into the object store, Ray ends the process at once."""
    run_envs = ("tests.sample_envs.run_envs",)
    patient = {"imports": run_envs, "steps": 10**6, "step_timeout_s": 1000.0, "log_every": 1}
    run = Started(small_arguments(Path("run"), "runs/HangsOnce-v0", **ON_RAY, **patient), tmp_path, ASKS_OFTEN + GROUP)
    run.wait_until((tmp_path / "SLEEPING").exists)
    run.wait_until(
        lambda: len(lines_of(tmp_path / "run")) == 26
    )  # the env hangs in ticket 26 of its actor: no more follow
    assert not has_saved(tmp_path / "run")
    started = descendants(run.process.pid)
    (lost,) = [pid for pid in started if Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0].endswith(program)]
    os.kill(lost, signal.SIGKILL)
    ended = run.end()
    assert (ended.code, status_of(tmp_path / "run")["state"]) == (1, "failed"), ended.err
    assert re.search(reason, ended.err), ended.err
    assert "offbeat resume run" in ended.err
    assert has_saved(tmp_path / "run")
    wait_until(lambda: not any(map(is_alive, started)))
