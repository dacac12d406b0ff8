"""Runs whose learner is on a GPU: they train, evaluate, resume and export, exactly where they promise it."""

from __future__ import annotations

import json
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.checks import assert_parts_are_the_whole
from tests.support.matrix import Case
from tests.support.replay_runs import small_sac
from tests.support.runs import lines_of, offbeat, small_run, weights_of
from tests.support.update_cases import CASES

from offbeat.api.resume import resume
from offbeat.api.train import Run
from offbeat.exporting.export import export
from offbeat.run_directory.checkpoint import load
from offbeat.workers import stages
from offbeat.workers.updates import UpdateMetrics, Updates

CELLS = [
    *(Case("ppo", feature) for feature in ("vector", "box", "image", "stacks", "recurrent", "mixed", "masks", "world")),
    *(Case("sac", feature) for feature in ("vector", "box", "image", "recurrent")),
    Case("td3", "box"),
    Case("crossq", "box"),
    *(Case("dqn", feature) for feature in ("vector", "stacks", "recurrent")),
    *(Case("impala", feature) for feature in ("dict", "recurrent", "policies")),
    Case("a2c", "image"),
    Case("ppo", "league"),
]
LSTM = {"core": "lstm", "core_size": 8}
RESNET = {"encoder": "impala_resnet"}


FIRST = f"step-{0:012d}"
"""Name of the checkpoint with the initial weights."""


def learned_of(run: Run, checkpoint: str = "latest") -> dict[str, np.ndarray[Any, Any]]:
    """Return the weights of a checkpoint, by policy and name."""
    by_policy = load(run.path / "checkpoints" / checkpoint).weights_by_policy
    return {f"{policy}/{name}": array for policy, weights in by_policy.items() for name, array in weights.items()}


@pytest.mark.parametrize("case", CELLS, ids=str)
def test_an_exact_run_on_a_gpu_that_is_stopped_and_resumed_in_another_runtime_has_the_same_bits(tmp_path, case, device):
    assert_parts_are_the_whole(partial(case.train, device=device), "processes", "threads", tmp_path)


@pytest.mark.parametrize(
    ("case", "settings"),
    [(Case("ppo", "recurrent"), LSTM), (Case("impala", "image"), RESNET), (Case("sac", "box"), {"prioritized": True})],
    ids=["lstm", "impala_resnet", "prioritized"],
)
def test_two_exact_runs_on_one_gpu_have_the_same_bits(tmp_path, case, settings, device):
    one, other = (case.train(tmp_path / name, device=device, **settings) for name in ("one", "other"))
    assert weights_of(one.path) == weights_of(other.path)
    assert weights_of(one.path) != weights_of(one.path, FIRST)


@pytest.mark.parametrize(
    "case", [Case("ppo", "image"), Case("impala", "recurrent"), Case("sac", "box"), Case("ppo", "policies")], ids=str
)
def test_exact_inference_workers_on_a_gpu_have_the_bits_of_serial(tmp_path, case, device):
    served = {"inference": "worker", "inference_device": (device,), "env_groups": 2}
    assert_parts_are_the_whole(partial(case.train, device=device, **served), "processes", "threads", tmp_path)


@pytest.mark.parametrize("case", [Case("ppo", "resident", 3), Case("sac", "box"), Case("dqn", "recurrent")], ids=str)
def test_batches_that_are_loaded_far_ahead_on_a_gpu_have_the_bits_of_serial(tmp_path, case, device):
    train = partial(case.train, device=device)
    assert_parts_are_the_whole(train, "processes", "threads", tmp_path, load_ahead=3)


@pytest.mark.parametrize("case", [Case("ppo", "image"), Case("impala", "recurrent"), Case("sac", "box")], ids=str)
def test_two_learners_on_one_gpu_have_the_bits_of_one(tmp_path, case, device):
    devices = (device if device == "cpu" else "cuda:0",) * 2
    train = partial(case.train, device=device, shards=2)
    assert_parts_are_the_whole(train, "processes", "threads", tmp_path, devices=devices)


def test_learners_on_two_gpus_have_the_bits_of_one(tmp_path, gpu):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA GPUs")
    train = partial(Case("ppo", "image").train, device=gpu, shards=2)
    assert_parts_are_the_whole(train, "processes", "threads", tmp_path, devices=("cuda:0", "cuda:1"))


def test_inference_by_arrival_on_a_gpu_trains_and_resumes(tmp_path, device):
    settings: dict[str, Any] = {"inference": "worker", "inference_device": (device,), "inference_batching": "arrival"}
    run = small_run(tmp_path / "run", runtime="processes", actors=2, max_lag=1, device=device, **settings)
    assert resume(run.path, steps=run.metrics["env_steps"] + 200).state == "finished"


COMPARED = ("policy_loss", "value_loss", "critic_loss", "q_loss", "entropy", "grad_norm")
"""Metrics that a GPU and a CPU must agree on, as far as an algorithm has them."""


@pytest.mark.parametrize("case", [case._replace(ahead=0) for case in CELLS[:-1]], ids=str)
def test_the_first_updates_on_a_gpu_agree_with_those_on_a_cpu(tmp_path, case, device):
    steps = 80 if case.replayed else 64
    sides = [
        case.train(tmp_path / side, device=of, steps=steps, log_every=1)
        for side, of in (("gpu", device), ("cpu", "cpu"))
    ]
    first = [next(line for line in lines_of(side.path) if line["updates"]) for side in sides]
    names = [name for name in first[0] if name.rpartition("/")[2] in COMPARED and first[0][name] is not None]
    assert names
    for name in names:
        assert first[0][name] == pytest.approx(first[1][name], rel=1e-2, abs=1e-4), name
    on_gpu, on_cpu, initial = learned_of(sides[0]), learned_of(sides[1]), learned_of(sides[1], FIRST)
    for name, array in on_cpu.items():
        if not array.size:
            continue
        moved, apart = np.abs(array - initial[name]).mean(), np.abs(on_gpu[name] - array).mean()
        assert apart <= 0.1 * moved, name


@pytest.mark.parametrize("feature", ["vector", "image", "recurrent"])
def test_without_lag_a_gpu_sees_the_policy_that_acted_on_the_cpu(tmp_path, feature, device):
    run = Case("ppo", feature, ahead=0).train(tmp_path / "run", device=device, log_every=1)
    deviations = [line["ratio_max_deviation_first"] for line in lines_of(run.path) if line["updates"]]
    assert deviations
    assert max(deviations) <= 1e-4, "float32 on both sides; TF32 would be off by 1e-3"


@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_a_run_on_a_gpu_in_bf16_learns_about_what_it_learns_in_fp32(tmp_path, algorithm, device):
    case = Case(algorithm, "image", ahead=0)
    full, half = (
        case.train(tmp_path / precision, device=device, precision=precision, log_every=1)
        for precision in ("fp32", "bf16")
    )
    assert half.metrics["updates_refused"] == 0
    assert weights_of(half.path) != weights_of(full.path)
    entropies = [next(line["entropy"] for line in lines_of(run.path) if line["updates"]) for run in (full, half)]
    assert entropies[1] == pytest.approx(entropies[0], rel=0.1)


@pytest.mark.parametrize("algorithm", ["ppo", "sac", "dqn"])
def test_a_policy_from_a_gpu_is_resumed_evaluated_and_exported_on_a_cpu(tmp_path, algorithm, device):
    case = Case(algorithm, "image")
    run = case.train(tmp_path / "run", device=device, eval_every=case.steps // 2)
    assert run.metrics["evaluations_failed"] == 0
    assert run.metrics["evaluations"] > 0
    assert resume(run.path, steps=2 * case.steps).state == "finished"
    said = offbeat("eval", run.path, "--episodes", 2, "--json")
    assert json.loads(said.out)["episodes"] == 2, said.err
    exported = export(run.path, tmp_path / "policy.onnx")
    assert exported.file.is_file()


@pytest.mark.parametrize("hogwild", ["shared", "synced"])
@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "sac"])
def test_lock_free_workers_learn_on_a_gpu_and_resume(tmp_path, algorithm, hogwild, device):
    of_hogwild: dict[str, Any] = {"device": device, "runtime": "hogwild", "workers": 2, "hogwild": hogwild}
    if algorithm == "sac":
        run = small_sac(tmp_path / "run", **of_hogwild)
    else:
        run = small_run(tmp_path / "run", "offbeat/Pixels-v0", algorithm=algorithm, **of_hogwild, steps=512)
    before = learned_of(run)
    resumed = resume(run.path, steps=run.metrics["env_steps"] + 200)
    assert (run.metrics["updates_refused"], resumed.metrics["updates_refused"]) == (0, 0)
    after = learned_of(resumed)
    assert all(np.isfinite(array).all() for array in after.values())
    assert any((array != before[name]).any() for name, array in after.items())


# --- what only a GPU has ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_an_update_on_a_gpu_makes_the_host_wait_only_where_it_reads(case, gpu, monkeypatch):
    algorithm, minibatches = CASES[case](gpu)
    updates, rates, read = Updates(algorithm), algorithm.start(0.3), stages.fetched
    first, *rest = islice(minibatches, 4)
    updates.apply(0, first, rates, UpdateMetrics())  # it copies constants, and loads kernels

    def allowed(tensors: Any) -> Any:
        torch.cuda.set_sync_debug_mode("default")
        try:
            return read(tensors)
        finally:
            torch.cuda.set_sync_debug_mode("error")

    monkeypatch.setattr(stages, "fetched", allowed)
    try:
        for number, minibatch in enumerate(rest, 1):
            torch.cuda.set_sync_debug_mode("error")
            updates.apply(number, minibatch, rates, UpdateMetrics())
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_run_gives_back_the_memory_of_the_gpu(tmp_path, gpu):
    def used(path: Path) -> int:
        Case("ppo", "image").train(path, device=gpu)
        return torch.cuda.memory_allocated()

    first = used(tmp_path / "one")
    assert [used(tmp_path / name) for name in ("two", "three")] == [first, first]


def test_a_run_leaves_the_settings_of_torch_as_they_were(tmp_path, gpu):
    before = torch.backends.cudnn.allow_tf32, torch.are_deterministic_algorithms_enabled()
    Case("ppo", "image").train(tmp_path / "run", device=gpu)
    assert (torch.backends.cudnn.allow_tf32, torch.are_deterministic_algorithms_enabled()) == before
