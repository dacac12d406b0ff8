"""What is learned on a GPU lies in a buffer, which the training loop keeps and workers open. Here a CPU does so too."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.device_buffers import DEVICES, Opener, buffers_on
from tests.support.hogwild_runs import assert_whole, pools, workers_of
from tests.support.models import actor_critic, policy_spec
from tests.support.replay_runs import SMALL_SAC, small_sac
from tests.support.runs import SMALL, small_run, weights_of
from tests.support.thorough import examples, thorough

from offbeat.api.resume import resume
from offbeat.api.train import Run
from offbeat.core.memory_shape import Slab
from offbeat.memory.arena import ALIGNMENT, private_arena
from offbeat.models.flat import FlatAdam, FlatParameters
from offbeat.models.storage import PrivateStorage
from offbeat.run_directory.checkpoint import load
from offbeat.runtime.hogwild.device_buffer import DeviceBuffer
from offbeat.runtime.hogwild.shared_state import SharedStateShape, SharedStorage, write_initial


@pytest.fixture(params=DEVICES)
def device(request) -> Iterator[str]:
    with buffers_on(request.param):
        yield request.param


# --- the buffer ----------------------------------------------------------------------------------------------

SHAPES = st.tuples(st.lists(st.integers(1, 5), max_size=3).map(tuple), st.sampled_from(["float32", "float64"]))


@examples(50)
@given(st.lists(SHAPES, min_size=1, max_size=6))
def test_tensors_of_a_device_buffer_are_aligned_zero_and_do_not_overlap(shapes):
    slabs: list[Slab] = [(f"tensor {number}", *each) for number, each in enumerate(shapes)]
    tensors = DeviceBuffer(slabs, "cpu").tensors
    assert list(tensors) == [name for name, _, _ in slabs]
    for number, (name, shape, dtype) in enumerate(slabs):
        tensor = tensors[name]
        assert (tuple(tensor.shape), tensor.dtype) == (shape, getattr(torch, dtype))
        assert tensor.data_ptr() % ALIGNMENT == 0
        assert not tensor.any(), "nobody has written it"
        tensor.fill_(number + 1)
    for number, (name, _, _) in enumerate(slabs):
        assert (tensors[name] == number + 1).all()


SLABS: list[Slab] = [("a", (3, 5), "float32"), ("b", (), "float32"), ("c", (2,), "float64")]


def test_processes_share_a_device_buffer_which_outlives_a_killed_one(device):
    buffer = DeviceBuffer(SLABS, device)
    buffer.tensors["a"].fill_(7)
    openers = [Opener(buffer, SLABS) for _ in range(2)]
    seen = [opener.added() for opener in openers]
    for name, shape, dtype in SLABS:
        start = 7 if name == "a" else 0
        assert (buffer.tensors[name] == start + 2).all(), "both have added to it"
        for each in seen:
            assert (each[name].shape, each[name].dtype) == (shape, dtype)
            assert set(each[name].ravel()) <= {start + 1, start + 2}
    openers[0].kill()
    assert (buffer.tensors["a"] == 9).all()
    buffer.tensors["a"].fill_(1)
    openers[1].kill()
    assert (buffer.tensors["a"] == 1).all()


# --- learning on it -----------------------------------------------------------------------------------------

SPEC = policy_spec("box", hidden_sizes=(7, 5))


def learner(storage: Any, device: str) -> tuple[FlatParameters, FlatAdam]:
    flat = FlatParameters(actor_critic(SPEC).to(device), "group", storage)
    return flat, FlatAdam(flat, 1e-5)


def step(flat: FlatParameters, adam: FlatAdam, seed: int) -> None:
    flat.gradients.copy_(torch.randn(flat.gradients.shape, generator=torch.Generator().manual_seed(seed)))
    adam.step(0.01)


def test_steps_on_a_device_buffer_have_the_bits_of_steps_on_private_memory(device):
    made = PrivateStorage()
    own = learner(made, device)
    shape = SharedStateShape.of(made, workers=2, separate=False, share_moments=True, in_device_buffer=True)
    buffer = DeviceBuffer(shape.learned_slabs(), device)
    arrays = {**private_arena(shape.slabs()), **buffer.tensors}
    assert not {name for name, _, _ in shape.slabs()} & set(buffer.tensors), "it lies there alone"
    write_initial(arrays, made)
    onlooker = SharedStorage(shape, arrays)
    begun = {name: array.copy() for name, array in onlooker.learned().items()}
    one, two = (learner(SharedStorage(shape, arrays, worker), device) for worker in range(2))
    for seed in range(12):
        step(*(one, two)[seed % 2], seed)
        step(*own, seed)
    expected = {"values": own[0].values, **own[1].state_tensors()}
    assert {f"group/{name}" for name in expected} == set(onlooker.learned())
    for name, tensor in expected.items():
        np.testing.assert_array_equal(onlooker.learned()[f"group/{name}"], tensor.cpu(), err_msg=name)
        assert (begun[f"group/{name}"] != onlooker.learned()[f"group/{name}"]).any()
    onlooker.load(begun)
    for name, array in onlooker.learned().items():
        np.testing.assert_array_equal(array, begun[name], err_msg=name)
    assert float(one[1].state_tensors()["step"]) == 0


# --- runs on it ---------------------------------------------------------------------------------------------


def train(algorithm: str, path: Path, device: str, **changes: Any) -> Run:
    if algorithm == "sac":
        return small_sac(path, "Pendulum-v1", device=device, **changes)
    return small_run(path, "CartPole-v1", algorithm=algorithm, device=device, **changes)


KL = {"learning_rate_schedule": "kl", "kl_target": 0.01}
RUNS = [("ppo", {**KL, "hogwild": "shared"}), ("sac", {"steps": 300, "hogwild": "synced"})]


@pytest.mark.parametrize(("algorithm", "changes"), [RUNS[0], *thorough(RUNS[1])], ids=["ppo", "sac"])
def test_one_stopped_and_resumed_worker_on_a_device_buffer_agrees_with_serial(tmp_path, device, algorithm, changes):
    wanted = SMALL["steps"] if algorithm == "ppo" else SMALL_SAC["steps"]
    stopped = train(algorithm, tmp_path / "run", device, **changes, runtime="hogwild", workers=1, stop_at=wanted // 2)
    assert stopped.state == "interrupted"
    assert_whole(stopped.path)
    half_way = weights_of(stopped.path)
    resumed = resume(stopped.path)
    assert resumed.state == "finished"
    assert_whole(resumed.path)
    assert weights_of(resumed.path) != half_way
    own = {name: value for name, value in changes.items() if name != "hogwild"}
    serial = train(algorithm, tmp_path / "serial", device, **own)
    for name in ("env_steps", "updates", "updates_refused"):
        assert resumed.metrics[name] == serial.metrics[name]
    if device == "cpu":  # on a GPU, kernels may sum in another order each time
        assert weights_of(resumed.path) == weights_of(serial.path)


@pytest.mark.thorough
def test_a_killed_worker_is_restarted_on_a_device_buffer_that_keeps_the_learned_weights(tmp_path, device):
    killed: list[int] = []

    def kill(line: dict[str, Any]) -> None:
        if line["updates"] > 50 and not killed:
            (pool,) = begun
            killed.append(pool._supervisor.processes[0].process.pid)
            os.kill(killed[0], signal.SIGKILL)

    layout: dict[str, Any] = {"runtime": "hogwild", "workers": 2, "steps": 2000, "utd_ratio": "1/4", "capacity": 6000}
    with pools() as begun:
        run = train("sac", tmp_path / "run", device, **layout, callbacks=[kill])
    assert killed
    assert begun[0]._parts.buffer is not None
    assert run.state == "finished"
    assert run.metrics["actor_restarts"] == 1
    assert_whole(run.path)
    saved = load(run.path / "checkpoints" / "latest")
    assert saved.state is not None
    steps = float(saved.state["learned"]["critic/step"])
    # Of both workers, from the beginning; the one that was killed may have made an update that it had not counted yet.
    assert 0 < steps <= run.metrics["updates"] + 1
    if device == "cpu":
        assert steps > 0.9 * run.metrics["updates"], "lost counts are rare"
    assert len(workers_of(run.path)) == 2
