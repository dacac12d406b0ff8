"""The stages of an update decide alike on a CPU and on another device, where the host waits once for an update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.env_rows import assert_same
from tests.support.thorough import thorough
from tests.support.update_cases import CASES, FAST_CASES, Case, learned_by, stages_on_a_device
from tests.support.update_rows import bench
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from offbeat.algorithms.base import Algorithm, LossResult, Minibatch, Stage
from offbeat.algorithms.off_policy import OffPolicy
from offbeat.algorithms.ppo import PPOConfig
from offbeat.core.types import Array, Tree
from offbeat.models.collective import AllShards
from offbeat.workers import stages as stages_module
from offbeat.workers.stages import DeviceApplier, HostApplier, fetched, make_applier
from offbeat.workers.updates import UpdateMetrics, Updates

UPDATES = 5
POISONED = "poisoned"
"""Key of a minibatch: the stage whose result is not finite."""


class Side:
    """An algorithm on the CPU with its updates, decided on the host or as on another device."""

    def __init__(self, case: Case, *, device: bool) -> None:
        self.algorithm, self._minibatches = case("cpu")
        self.algorithm.stages = tuple(spoilable(stage) for stage in self.algorithm.stages)
        if device:
            with stages_on_a_device():
                self.updates = Updates(self.algorithm)
        else:
            self.updates = Updates(self.algorithm)
        self.rates, self.metrics = self.algorithm.start(0.3), UpdateMetrics()
        self.number = 0

    def update(self, **extra: Any) -> bool:
        minibatch = {**next(self._minibatches), **extra}
        applied = self.updates.apply(self.number, minibatch, self.rates, self.metrics)
        self.number += 1
        if applied and isinstance(self.algorithm, OffPolicy) and self.algorithm.config.prioritized:
            self.priorities = self.algorithm.priorities(minibatch)
        return applied

    def learned(self) -> Tree:
        return learned_by(self.algorithm, self.updates)


# --- the same bits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [*CASES, *FAST_CASES])
def test_updates_that_are_decided_on_the_device_have_the_bits_of_those_decided_on_the_host(case):
    host, device = (Side({**CASES, **FAST_CASES}[case], device=on_device) for on_device in (False, True))
    before = host.learned()
    for _ in range(4):
        assert host.update()
        assert device.update()
        assert_same(host.learned(), device.learned())
        if hasattr(host, "priorities"):
            np.testing.assert_array_equal(host.priorities, device.priorities)
    assert any((array != before[name]).any() for name, array in host.learned().items())
    assert host.metrics.summary() == device.metrics.summary()
    assert any(name.startswith("grad_norm") for name in host.metrics.summary())


@pytest.mark.parametrize("max_grad_norm", [0.1, 1e6, math.inf])
def test_gradients_are_clipped_with_the_same_bits(max_grad_norm):
    sides = [Side(CASES["ppo"], device=device) for device in (False, True)]
    for side in sides:
        group = replace(side.algorithm.groups["actor_critic"], max_grad_norm=max_grad_norm)
        side.algorithm.groups = {"actor_critic": group}
        side.updates._applier = type(side.updates._applier)(side.algorithm, side.updates._adam)  # type: ignore[call-arg]
        assert side.update()
    gradients = [side.algorithm.groups["actor_critic"].parameters.gradients for side in sides]
    assert torch.equal(*gradients)
    assert (float(gradients[0].norm()) == pytest.approx(0.1, rel=1e-3)) == (max_grad_norm == 0.1)


@pytest.mark.parametrize("schedule", ["constant", "kl"])
def test_learning_steps_of_ppo_have_the_same_bits_and_stop_at_the_same_kl(schedule):
    config = PPOConfig(
        hidden_sizes=(6,),
        epochs=6,
        minibatch_size=12,
        kl_target=1e-3,
        learning_rate=0.02,
        learning_rate_schedule=schedule,
    )
    with stages_on_a_device():
        device = bench(config, "multidiscrete")
    host = bench(config, "multidiscrete")
    for step in range(3):
        learned = []
        for side in (host, device):
            side.fill(step, seed=8)
            learned.append(side.learner.learn(step, 0.1 * step))
        assert learned[0].metrics == learned[1].metrics
        assert learned[0].updates == learned[1].updates
        np.testing.assert_array_equal(host.weights.read(step + 1), device.weights.read(step + 1))
    if schedule == "constant":
        assert learned[0].updates < 6 * 3, "the KL has stopped the epochs"


def test_the_device_of_the_parameters_decides_which_way_is_taken():
    for device, expected in (("cpu", HostApplier), ("meta", DeviceApplier)):
        algorithm, _ = CASES["sac, box"](device)
        assert type(make_applier(algorithm, Updates(algorithm)._adam)) is expected


# --- what is not finite -------------------------------------------------------------------------------------


def not_finite_loss(loss: Tensor) -> Tensor:
    """Add infinity, which has no gradient."""
    return loss + math.inf


def not_finite_gradients(loss: Tensor) -> Tensor:
    """Add the root of a zero: its derivative is infinite."""
    return loss + (loss - loss.detach()).sqrt()


def not_finite_at_all(loss: Tensor) -> Tensor:
    return loss * math.nan


SPOILED: dict[str, Callable[[Tensor], Tensor]] = {
    "loss": not_finite_loss,
    "gradients": not_finite_gradients,
    "both": not_finite_at_all,
}


def spoilable(stage: Stage) -> Stage:
    """Return a stage whose result is not finite where a minibatch names it."""

    def loss(minibatch: Minibatch) -> LossResult:
        result = stage.loss(minibatch)
        name, how = minibatch.get(POISONED, ("", ""))
        assert isinstance(result.loss, Tensor)
        return result._replace(loss=SPOILED[how](result.loss)) if name == stage.name else result

    return replace(stage, loss=loss)


THREE_STAGES = ["critic", "policy", "temperature"]
REFUSALS = [
    *(("sac, box", name) for name in THREE_STAGES),
    *(("sac, choices, prioritized", name) for name in THREE_STAGES),
    *(("sac, masks", name) for name in THREE_STAGES),
    *(("sac, box, clipped, delayed", name) for name in THREE_STAGES),
    *(("td3, prioritized", name) for name in THREE_STAGES[:2]),
    *(("crossq, prioritized", name) for name in THREE_STAGES),
    ("ppo", "actor_critic"),
    ("ppo, clipped, squashed", "actor_critic"),
    ("a2c", "actor_critic"),
    ("impala", "actor_critic"),
    ("dqn", "q"),
    ("dqn, prioritized", "q"),
]


IN_EACH_WAY = ("sac, box, clipped, delayed", "dqn")
"""Cases that are spoiled in each way in `make test`: several stages and one, clipped and not; the others in one way."""
SPOILED_REFUSALS = [(case, stage, how) for case, stage in REFUSALS for how in sorted(SPOILED)]


def is_short(case: str, how: str) -> bool:
    return case in IN_EACH_WAY or how == "gradients"


@pytest.mark.parametrize(
    ("case", "stage", "how"),
    [
        *(each for each in SPOILED_REFUSALS if is_short(each[0], each[2])),
        *thorough(*(each for each in SPOILED_REFUSALS if not is_short(each[0], each[2]))),
    ],
)
def test_a_stage_that_is_not_finite_and_those_after_it_are_left_out(case, stage, how):
    host, device = (Side(CASES[case], device=on_device) for on_device in (False, True))
    for number in range(UPDATES):
        extra = {POISONED: (stage, how)} if number == 2 else {}
        before = device.learned()
        assert host.update(**extra) == device.update(**extra) == (number != 2)
        assert_same(host.learned(), device.learned())
        if number == 2:
            assert_only_earlier_stages_changed(device, stage, before)
    assert host.metrics.refused == device.metrics.refused == 1
    assert host.metrics.summary() == device.metrics.summary()
    assert all(np.isfinite(array).all() for array in device.learned().values())


def assert_only_earlier_stages_changed(side: Side, refused: str, before: Tree) -> None:
    after, names = side.learned(), [stage.name for stage in side.algorithm.stages]
    for place, stage in enumerate(side.algorithm.stages):
        changed = after[f"adam/{stage.group}/step"] - before[f"adam/{stage.group}/step"]
        assert changed == (place < names.index(refused))
    if names.index(refused) == 0:
        assert_same(after, before)


def test_a_refused_stage_does_not_reach_ema_critics_priorities_and_the_uniform_flag():
    side = Side(CASES["sac, choices, prioritized"], device=True)
    assert isinstance(side.algorithm, OffPolicy)
    before, errors = side.learned(), side.algorithm.errors
    assert not side.update(**{POISONED: ("policy", "both")})
    after = side.learned()
    assert (after["ema_critics.weights.0"] != before["ema_critics.weights.0"]).any(), "the critics were applied"
    assert after["uniform"] == before["uniform"] == 1
    assert side.algorithm.errors is not errors
    before, errors = after, side.algorithm.errors
    assert not side.update(**{POISONED: ("critic", "gradients")})
    assert_same(side.learned(), before)
    assert side.algorithm.errors is errors


def test_updates_without_a_stage_change_nothing():
    for device in (False, True):
        side = Side(CASES["dqn"], device=device)
        side.algorithm.stages = tuple(replace(stage, every=2) for stage in side.algorithm.stages)
        assert side.update()
        before = side.learned()
        assert side.update()
        assert_same(side.learned(), before)


# --- reads of the host --------------------------------------------------------------------------------------


class BlockingCopies(TorchDispatchMode):
    """Lists the copies from the host to the device that the host waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        copies = func.overloadpacket in (torch.ops.aten._to_copy, torch.ops.aten.copy_)
        if copies and result.is_meta and any(isinstance(given, Tensor) and given.is_cpu for given in args):
            waited = not (kwargs or {}).get("non_blocking", len(args) > 2 and args[2])
            self.found += [str(func)] * waited
        return result


class Reads:
    """Stands in for `fetched`, the only one that may read: all is finite, and all numbers are 0."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        self.count += 1
        assert all(tensor.is_meta for tensor in tensors)
        return [torch.full(tensor.shape, tensor.dtype == torch.bool, dtype=tensor.dtype) for tensor in tensors]


def on_meta(case: Case, monkeypatch: pytest.MonkeyPatch) -> tuple[Algorithm, Iterator[Minibatch], Reads]:
    """Return an algorithm on the meta device, where a tensor has no values: to read one raises."""
    algorithm, minibatches = case("meta")
    reads = Reads()
    monkeypatch.setattr(stages_module, "fetched", reads)
    return algorithm, minibatches, reads


CUT = ("ppo", "sac, box", "td3, prioritized", "dqn")
"""Cases with shards, one for each way to cut a minibatch."""


@pytest.mark.parametrize(
    ("case", "shards"),
    [
        *((case, 1) for case in CASES),
        *((case, 3) for case in CUT),
        # With a core, to cut a minibatch reads how many rows its columns have. CrossQ has no shards.
        *thorough(*((case, 3) for case in CASES if "gru" not in case and "crossq" not in case and case not in CUT)),
    ],
)
def test_an_update_on_a_device_is_read_once_by_the_host(case, shards, monkeypatch):
    algorithm, minibatches, reads = on_meta(CASES[case], monkeypatch)
    algorithm.collective = AllShards(shards)
    updates, collected, rates = Updates(algorithm), UpdateMetrics(), algorithm.start(0.3)
    first, *rest = islice(minibatches, 3)
    assert updates.apply(0, first, rates, collected)
    copies = BlockingCopies()
    for number, minibatch in enumerate(rest, 1):
        with copies:
            assert updates.apply(number, minibatch, rates, collected)
    assert reads.count == 1 + len(rest)
    assert copies.found == [], "constants are copied in the first update alone"
    assert collected.summary(), "what is reported is on the host"


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith(("sac", "td3", "crossq", "dqn"))])
def test_a_minibatch_of_a_replay_is_made_on_a_device_without_waiting(case, monkeypatch):
    _, minibatches, _ = on_meta(CASES[case], monkeypatch)
    copies = BlockingCopies()
    with copies:
        next(minibatches)
    assert copies.found == []


@pytest.mark.parametrize("place", ["loss", "pass_on", "after"])
def test_a_read_inside_a_stage_does_not_go_unnoticed(place, monkeypatch):
    algorithm, minibatches, _ = on_meta(CASES["sac, box"], monkeypatch)
    stage = algorithm.stages[1]

    def loss(minibatch: Minibatch) -> LossResult:
        result = stage.loss(minibatch)
        assert isinstance(result.loss, Tensor)
        float(result.loss)
        return result

    def read_loss(result: LossResult) -> None:
        assert isinstance(result.loss, Tensor)
        float(result.loss)

    changed = replace(stage, **{place: loss if place == "loss" else read_loss})  # type: ignore[arg-type]
    algorithm.stages = (algorithm.stages[0], changed, algorithm.stages[2])
    with pytest.raises(RuntimeError, match="meta tensors"):
        Updates(algorithm).apply(0, next(minibatches), algorithm.start(0.0), UpdateMetrics())


def test_a_copy_that_is_waited_for_does_not_go_unnoticed():
    copies = BlockingCopies()
    with copies:
        torch.ones(3).to("meta", non_blocking=True)
        assert copies.found == []
        torch.ones(3).to("meta")
        assert len(copies.found) == 1
        torch.as_tensor(np.ones(3), dtype=torch.float32, device="meta")
        assert len(copies.found) == 2


# --- one transfer -------------------------------------------------------------------------------------------


def test_what_is_fetched_has_the_bits_the_dtypes_and_the_shapes_of_what_was_given():
    tensors: list[Array] = [
        np.array(True),
        np.array(1 / 3, np.float64),
        np.arange(6, dtype=np.int16).reshape(2, 3).T,
        np.array([math.nan, -0.0, math.inf], np.float32),
        np.zeros((0, 2), np.float32),
        np.array(2**62 + 1),
    ]
    for given, copy in zip(tensors, fetched([torch.from_numpy(array) for array in tensors]), strict=True):
        assert (copy.numpy().dtype, copy.numpy().shape) == (given.dtype, given.shape)
        assert copy.numpy().tobytes() == given.tobytes()
