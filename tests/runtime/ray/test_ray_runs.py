"""Runs on a Ray cluster: what they say of messages, and how errors of envs and of the placement end them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.sample_envs.run_envs import Wave
from tests.support.journals import EVALUATED, Journal, assert_called_once_for_each_event
from tests.support.runs import lines_of, offbeat, small_arguments, small_run, status_of
from tests.support.scenes import scene

from offbeat.runtime.ray.acting import RayActing

ON_RAY: dict[str, Any] = {"runtime": "ray", "actors": 2}
ENVS = ("tests.sample_envs.run_envs",)


pytestmark = pytest.mark.usefixtures("connected")


def test_each_node_has_an_actor_and_the_metrics_count_the_bytes_of_messages(tmp_path):
    with scene(**ON_RAY) as it:
        it.begin()
        it.next_batch(0)
        assert isinstance(it.acting, RayActing)
        started = [actor.started for actor in it.acting._supervisor.processes]
        assert len({each.node for each in started if each}) == 2
        metrics, policy = it.acting.metrics(), it.parts.policy
    row = sum(array[0, 0].nbytes for array in policy.slots.open(0).values() if array.ndim > 1)
    assert row <= metrics["row_bytes_per_env_step"] < 1.2 * row, "a ticket has one row more, and values of its own"
    assert metrics["weight_bytes_per_env_step"] > 0
    said = offbeat(*small_arguments(tmp_path / "run", **ON_RAY, steps=1024))
    assert said.code == 0, said.err
    lines = lines_of(tmp_path / "run")
    for name in ("row_bytes_per_env_step", "weight_bytes_per_env_step"):
        assert max(line.get(name) or 0.0 for line in lines) > 0, "a line may have a period without new weights"
    assert lines[-1]["message_wait_s"] > 0


def test_callbacks_are_called_once_for_each_event_with_actors_on_ray(tmp_path):
    journal = Journal()
    settings = {**EVALUATED, **ON_RAY, "evaluator": "process"}
    assert_called_once_for_each_event(journal, small_run(tmp_path / "run", callbacks=[journal], **settings))


def test_resources_that_no_node_has_are_refused_before_the_directory_is_made(tmp_path):
    said = offbeat(*small_arguments(tmp_path / "run", **ON_RAY, ray_gpus=1))
    assert said.code == 2
    assert "an actor needs 1 CPU, 1 GPU, but no node has that. The cluster has" in said.err
    assert "pass a smaller ray_cpus, ray_gpus or ray_resources, or add such a node" in said.err
    assert not (tmp_path / "run").exists()


def test_env_that_cannot_be_sent_is_refused_before_the_directory_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(Wave, "__module__", "__main__")
    said = offbeat(*small_arguments(tmp_path / "run", "runs/Wave-v0", **ON_RAY, imports=ENVS))
    assert (said.code, "cannot be sent to another process" in said.err) == (2, True), said.err
    assert not (tmp_path / "run").exists()


def test_env_that_always_raises_ends_the_run_with_its_own_traceback(tmp_path):
    settings = {**ON_RAY, "restart_budget": 1, "imports": ENVS, "steps": 10**6}
    said = offbeat(*small_arguments(tmp_path / "run", "runs/RaisesLate-v0", **settings))
    assert said.code == 1
    assert "its restart_budget of 1 is used up" in said.err
    assert str(Path("tests/sample_envs/run_envs.py")) in said.err
    assert status_of(tmp_path / "run")["state"] == "failed"


def test_module_that_is_not_on_a_node_ends_the_run_with_the_address_of_the_node_and_without_restarts(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "only_here", ModuleType("only_here"))
    said = offbeat(*small_arguments(tmp_path / "run", **ON_RAY, imports=("only_here",)))
    assert said.code == 1
    assert "the module only_here is not on the node " in said.err
    assert """pass --set 'ray_runtime_env={"py_modules": ["/home/me/my_env"]}'""" in said.err
    assert "started again" not in said.err
