"""What a subclass replaces is what runs, on plain networks and a CPU too, where its base has gradients of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.support import own_methods
from tests.support.matrix import OF_ALGORITHM
from torch import Tensor, nn

from offbeat.algorithms.a2c import A2C
from offbeat.algorithms.base import Batch, LossResult, Minibatch, ParameterGroup, Stage
from offbeat.algorithms.crossq import CrossQ
from offbeat.algorithms.dqn import DQN
from offbeat.algorithms.off_policy import OffPolicy
from offbeat.algorithms.on_policy import OnPolicy
from offbeat.algorithms.ppo import PPO
from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.algorithms.rows import input_gathers
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.td3 import TD3
from offbeat.api.resume import resume
from offbeat.api.train import train
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.types import EnvSpec, Field
from offbeat.losses.advantages import Targets
from offbeat.models.actor_critic import ActorCritic
from offbeat.models.flat import FlatParameters
from offbeat.models.policy_network import PolicyNetwork, Uniform
from offbeat.models.spec import PolicySpec
from offbeat.models.storage import Storage
from offbeat.workers.updates import UpdateMetrics

SMALL: dict[str, Any] = {"hidden_sizes": (8,), "eval_every": 0, "checkpoint_every": 0, "seed": 1}
ON_POLICY: dict[str, Any] = {"steps": 256, "unroll_length": 32, "envs_per_actor": 8}
TASKS: dict[str, Any] = {**OF_ALGORITHM["pearl"], "steps": 60, "warmup": 60}
TASKS |= {"envs_per_actor": 2, "batch_size": 8, "capacity": 100}
REPLAY: dict[str, Any] = {"steps": 30, "warmup": 20, "batch_size": 8, "capacity": 100}


@pytest.mark.parametrize(
    ("base", "shards"),
    [*((base, 1) for base in own_methods.METHODS), *((base, 2) for base in (PPO, SAC, DQN))],
)
def test_all_overridden_methods_run_and_the_log_reports_training_with_autograd(tmp_path, base, shards):
    """Without shards, only `cut` has nothing to do."""
    own = own_methods.CLASSES[base]
    env = "Pendulum-v1" if base in (SAC, TD3, CrossQ) else "CartPole-v1"
    settings = {**SMALL, **(REPLAY if base in (SAC, TD3, CrossQ, DQN) else ON_POLICY), "shards": shards}
    settings |= {"policy_delay": 1} if base in (TD3, CrossQ) else {}
    own_methods.CALLED.clear()
    run = train(own, env, run_dir=tmp_path / "run", **settings)
    called = Counter(own_methods.CALLED)
    assert set(own_methods.METHODS[base]) - called.keys() == ({"cut"} if shards == 1 and base is not CrossQ else set())
    losses = [count for method, count in called.items() if method.endswith("loss")]
    assert min(losses) >= run.metrics["updates"] > 0
    said = f"Own{base.__name__} is trained with autograd" in (tmp_path / "run" / "log.txt").read_text()
    assert said == (base is not DQN)


class BareLossPPO(PPO):
    """Returns a tensor in place of a LossResult."""

    def policy_loss(self, log_prob: Tensor, advantages: Tensor, minibatch: Minibatch) -> Any:  # noqa: ARG002
        return -(log_prob * advantages).mean()


class BareLossDQN(DQN):
    """Returns a tensor in place of a LossResult."""

    def loss(self, minibatch: Minibatch) -> Any:
        return super().loss(minibatch).loss


@pytest.mark.parametrize(("own", "settings"), [(BareLossPPO, ON_POLICY), (BareLossDQN, REPLAY)])
def test_a_loss_that_is_not_a_loss_result_is_refused_by_the_name_of_its_method(tmp_path, own, settings):
    with pytest.raises(RunFailed, match=rf"^{own.__name__}\.\w*loss returned a Tensor, but a LossResult is expected"):
        train(own, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **settings)


class LossOfRowsPPO(PPO):
    """Returns the loss of each row."""

    def policy_loss(self, log_prob: Tensor, advantages: Tensor, minibatch: Minibatch) -> LossResult:  # noqa: ARG002
        return LossResult(-(log_prob * advantages), {})


class NumberPPO(PPO):
    """Returns a number, which has no gradients."""

    def loss(self, minibatch: Minibatch) -> LossResult:
        loss = super().loss(minibatch).loss
        return LossResult(torch.as_tensor(loss).item(), {})


class ValueLossOfRowsPPO(PPO):
    """Returns the loss of each value."""

    def value_loss(self, values: Tensor, minibatch: Minibatch) -> Tensor:
        return (values - minibatch["value_target"]).square()


class ValueLossResultPPO(PPO):
    """Returns a LossResult in place of a tensor."""

    def value_loss(self, values: Tensor, minibatch: Minibatch) -> Any:
        return LossResult(super().value_loss(values, minibatch), {})


@pytest.mark.parametrize(
    ("own", "given"),
    [
        (LossOfRowsPPO, r"of shape \[\d+\]"),
        (ValueLossOfRowsPPO, r"of shape \[\d+\]"),
        (ValueLossResultPPO, "that is a LossResult, but a scalar tensor is expected"),
        (NumberPPO, "that is a float"),
    ],
)
def test_a_loss_that_is_not_a_scalar_tensor_is_refused_by_the_name_of_its_method(tmp_path, own, given):
    with pytest.raises(RunFailed, match=rf"^{own.__name__}\.\w*loss returned a loss {given}.*losses\.mean\(\)"):
        train(own, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **ON_POLICY)


class DetachedPPO(PPO):
    """Returns a loss without gradients."""

    def loss(self, minibatch: Minibatch) -> LossResult:
        result = super().loss(minibatch)
        return result._replace(loss=torch.as_tensor(result.loss).detach())


class YieldsWithoutGradientsPPO(PPO):
    """Yields while gradients are switched off, so they are off in the loss too."""

    def minibatches(self, batch: Any, random: Any) -> Iterator[Minibatch]:
        with torch.no_grad():
            yield from super().minibatches(batch, random)


class DetachedPolicyA2C(A2C):
    """Returns a loss of the policy without gradients, so that only the critic would learn."""

    def policy_loss(self, log_prob: Tensor, advantages: Tensor, minibatch: Minibatch) -> LossResult:
        return super().policy_loss(log_prob.detach(), advantages, minibatch)


class DetachedValuesA2C(A2C):
    """Returns a loss of the values without gradients, so that only the policy would learn."""

    def value_loss(self, values: Tensor, minibatch: Minibatch) -> Tensor:
        return super().value_loss(values.detach(), minibatch)


@pytest.mark.parametrize(
    ("own", "shards"),
    [
        (DetachedPPO, 1),
        (DetachedPPO, 2),
        (YieldsWithoutGradientsPPO, 1),
        (DetachedPolicyA2C, 1),
        (DetachedValuesA2C, 2),
    ],
)
def test_a_loss_without_gradients_is_refused_by_the_name_of_its_method(tmp_path, own, shards):
    with pytest.raises(
        RunFailed,
        match=r"^\w+\.\w*loss returned a loss without gradients.*must not yield inside.*return 0 times a loss",
    ) as refused:
        train(own, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **ON_POLICY, shards=shards)
    assert refused.tb, "it holds the generator"
    assert torch.is_grad_enabled()


class BareAdvantagesA2C(A2C):
    """Returns a tensor in place of Targets."""

    def estimate(self, batch: Batch, values: Tensor) -> Any:
        return super().estimate(batch, values).advantages


class MoreRowsA2C(A2C):
    """Returns value targets [T + 1, B]."""

    def estimate(self, batch: Batch, values: Tensor) -> Targets:
        return super().estimate(batch, values)._replace(value_targets=values)


class ArraysA2C(A2C):
    """Returns arrays of NumPy."""

    def estimate(self, batch: Batch, values: Tensor) -> Any:
        return Targets(*(each.numpy() for each in super().estimate(batch, values)))  # type: ignore[arg-type]


class ForgottenMinibatchesPPO(PPO):
    """Does not return what it calls."""

    def minibatches(self, batch: Batch, random: np.random.Generator) -> Any:
        super().minibatches(batch, random)


class ForgottenMetricsDQN(DQN):
    """Does not return what it calls."""

    def finish(self, observations: Batch) -> Any:
        super().finish(observations)


class ForgottenMetricsA2C(A2C):
    """Returns a loss without metrics."""

    def policy_loss(self, log_prob: Tensor, advantages: Tensor, minibatch: Minibatch) -> LossResult:
        metrics: Any = None
        return super().policy_loss(log_prob, advantages, minibatch)._replace(metrics=metrics)


class NumberedMetricsDQN(DQN):
    """Returns metrics by number."""

    def loss(self, minibatch: Minibatch) -> LossResult:
        metrics: Any = {1: 0.5}
        return super().loss(minibatch)._replace(metrics=metrics)


class NoKLPPO(PPO):
    """Reports no KL."""

    def policy_loss(self, log_prob: Tensor, advantages: Tensor, minibatch: Minibatch) -> LossResult:
        return LossResult(super().policy_loss(log_prob, advantages, minibatch).loss, {})


@pytest.mark.parametrize(
    ("own", "settings", "words"),
    [
        (BareAdvantagesA2C, ON_POLICY, r"\.estimate returned a Tensor, but Targets.*\[32, 8\] is expected"),
        (MoreRowsA2C, ON_POLICY, r"\.estimate returned Targets of a Tensor \[32, 8\] and a Tensor \[33, 8\], but"),
        (ArraysA2C, ON_POLICY, r"\.estimate returned Targets of a ndarray \[32, 8\] and a ndarray \[32, 8\], but"),
        (ForgottenMinibatchesPPO, ON_POLICY, r"\.minibatches returned a NoneType, but an iterator .*`yield minibatch`"),
        (ForgottenMetricsDQN, REPLAY, r"\.finish returned a NoneType, but a dict of metrics is expected"),
        (ForgottenMetricsA2C, ON_POLICY, r"\.policy_loss returned a NoneType, but a dict of metrics is expected"),
        (NumberedMetricsDQN, REPLAY, r"\.loss returned a metric with the name 1, but a string is expected"),
        (NoKLPPO, {**ON_POLICY, "kl_target": 0.01}, " has no metric approx_kl, which kl_target needs: add it"),
    ],
)
def test_a_result_that_cannot_be_used_is_refused_by_the_name_of_its_method(tmp_path, own, settings, words):
    with pytest.raises(RunFailed, match=rf"^(the loss of )?{own.__name__}{words}"):
        train(own, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **settings)


MINIBATCH = ("observation", "action", "reference_log_prob", "advantage", "value_target", "proximal_value", "rows")


class ReadsMinibatch(OnPolicy[Any]):
    """Reads in its loss what the documentation says is in a minibatch."""

    def loss(self, minibatch: Minibatch) -> LossResult:
        result = super().loss(minibatch)
        rows = minibatch["rows"] if minibatch["rows"] is not None else slice(None)
        observed = minibatch["observation"][rows].abs().sum()
        assert len(minibatch["observation"][rows]) == len(minibatch["action"])
        return result._replace(metrics={**result.metrics, "mine/observed": observed})

    def minibatches(self, batch: Any, random: Any) -> Iterator[Minibatch]:
        for minibatch in super().minibatches(batch, random):
            assert set(MINIBATCH) <= set(minibatch)
            merged: Any = minibatch
            yield merged | {"copied": torch.ones(())} if self.copies else minibatch

    copies = False


class ReadsMinibatchA2C(ReadsMinibatch, A2C):
    """With one update per learning step."""


class ReadsMinibatchPPO(ReadsMinibatch, PPO):
    """With one update per learning step, if there is one epoch of one minibatch."""


@pytest.mark.parametrize(
    ("own", "settings"),
    [
        (ReadsMinibatchA2C, {}),
        (ReadsMinibatchA2C, {"core": "gru", "core_size": 4}),
        (ReadsMinibatchPPO, {"epochs": 1, "minibatch_size": 256}),
    ],
)
def test_with_one_update_per_batch_a_loss_has_all_arrays_of_a_minibatch(tmp_path, monkeypatch, own, settings):
    """Also if a subclass copies the minibatch: then the network runs anew, with the same result."""
    values = []
    for copies in (False, True):
        monkeypatch.setattr(own, "copies", copies)
        run = train(own, "CartPole-v1", run_dir=tmp_path / str(copies), **SMALL, **ON_POLICY, **settings)
        assert run.metrics["mine/observed"] > 0
        values.append([run.metrics[name] for name in ("policy_loss", "value_loss", "entropy", "mine/observed")])
    assert values[0] == pytest.approx(values[1], rel=1e-3, abs=1e-6)


class AutogradA2C(A2C):
    """Has no fast path, as all subclasses."""


@pytest.mark.parametrize(("own", "gathers"), [(AutogradA2C, False), (ReadsMinibatchA2C, True)])
def test_with_one_update_per_batch_the_inputs_are_gathered_again_only_for_a_loss_that_reads_them(
    tmp_path, monkeypatch, own, gathers
):
    gathered = list[str]()

    def noted(*arguments: Any) -> dict[str, Any]:
        gather = input_gathers(*arguments)["observation"]

        def gather_noted() -> Tensor:
            gathered.append("observation")
            return gather()

        return {"observation": gather_noted}

    monkeypatch.setattr("offbeat.algorithms.on_policy.input_gathers", noted)
    train(own, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **ON_POLICY)
    assert bool(gathered) == gathers


class Curiosity(nn.Module):
    """Returns the error of a network that learns the outputs of a random one, [M]."""

    def __init__(self, inputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.predictor = nn.Linear(inputs, 4)
        self.target = nn.Linear(inputs, 4).requires_grad_(False)
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=generator)

    def forward(self, observation: Tensor) -> Tensor:
        return (self.predictor(observation) - self.target(observation)).square().mean(-1)


class CuriousA2C(A2C):
    """Has another network with its own optimizer, as in the documentation."""

    def build_more(self, generator: torch.Generator, storage: Storage) -> dict[str, FlatParameters]:
        self.curiosity = Curiosity(self.spec.inputs, generator).to(self.device)
        self.curiosity_parameters = FlatParameters(self.curiosity, "curiosity", storage)
        return {**super().build_more(generator, storage), "curiosity": self.curiosity_parameters}

    def make_stages(self, fast: Any) -> tuple[Stage, ...]:
        return (*super().make_stages(fast), Stage("curiosity", "curiosity", self.curiosity_loss))

    def start(self, progress: float) -> dict[str, float]:
        return {**super().start(progress), "curiosity": 0.1}

    def curiosity_loss(self, minibatch: Minibatch) -> LossResult:
        loss = self.curiosity(minibatch["observation"]).mean()
        return LossResult(loss, {"mine/curiosity_loss": loss.detach()})

    def arrays(self) -> dict[str, Tensor]:
        return {**super().arrays(), **self.curiosity_parameters.arrays()}


def test_another_network_of_an_on_policy_algorithm_learns_is_saved_and_continues_after_a_resume(tmp_path):
    settings = {**SMALL, **ON_POLICY, "steps": 2_000, "unroll_length": 8}
    whole = train(CuriousA2C, "CartPole-v1", run_dir=tmp_path / "whole", **settings)
    half = train(CuriousA2C, "CartPole-v1", run_dir=tmp_path / "half", **settings, stop_at=1_000)
    assert half.metrics["mine/curiosity_loss"] > 2 * whole.metrics["mine/curiosity_loss"] > 0
    resume(half)
    weights = [load_file(tmp_path / name / "checkpoints/latest/weights.safetensors") for name in ("whole", "half")]
    assert {"predictor.weight", "target.bias"} <= set(weights[0])
    for name, array in weights[0].items():
        np.testing.assert_array_equal(array, weights[1][name], err_msg=name)


class WordPPO(PPO):
    """Reports a word after the updates."""

    def finish(self, batch: Any) -> dict[str, Any]:
        return {**super().finish(batch), "mine/speed": "fast"}


class EntropyPPO(PPO):
    """Reports its own idea of entropy under the name of the algorithm's."""

    name = "entropy"

    def policy_loss(self, log_prob: Tensor, advantages: Tensor, minibatch: Minibatch) -> LossResult:
        result = super().policy_loss(log_prob, advantages, minibatch)
        return result._replace(metrics={**result.metrics, self.name: 1.0})


class SpeedPPO(EntropyPPO):
    """Reports a metric with the name of one of the run."""

    name = "sps"


class NormPPO(EntropyPPO):
    """Reports a metric with the name of one of the learner."""

    name = "grad_norm"


class FinishDQN(DQN):
    """Reports a metric of the loss again after the updates."""

    def finish(self, observations: Batch) -> dict[str, float]:
        return {**super().finish(observations), "q_mean": -7.0}


class RateDQN(DQN):
    """Reports its own idea of the learning rate."""

    def loss(self, minibatch: Minibatch) -> LossResult:
        result = super().loss(minibatch)
        return result._replace(metrics={**result.metrics, "learning_rate": 1.0})


@pytest.mark.parametrize(
    ("own", "settings", "owners", "name"),
    [
        (EntropyPPO, ON_POLICY, "EntropyPPO.policy_loss", "entropy"),
        (SpeedPPO, ON_POLICY, "EntropyPPO.policy_loss", "sps"),
        (NormPPO, ON_POLICY, "EntropyPPO.policy_loss", "grad_norm"),
        (FinishDQN, REPLAY, "DQN.loss and FinishDQN.finish", "q_mean"),
        (RateDQN, REPLAY, "RateDQN.loss", "learning_rate"),
    ],
)
def test_a_metric_with_the_name_of_another_is_refused(tmp_path, own, settings, owners, name):
    with pytest.raises(RunFailed, match=rf"^{owners} returned '{name}', which is the name of another metric"):
        train(own, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **settings)


@pytest.mark.parametrize(
    "name",
    [
        "sps",
        "replay_size",
        "slots_filled",
        "eval_return_mean",
        "memory_main_mb",
        "info/wind_mean",
        "policies/a/elo",
        "",
    ],
)
def test_a_metric_with_the_name_of_one_of_the_run_or_none_is_refused(name):
    why = "the name of another metric" if name else "empty"
    with pytest.raises(RunFailed, match=f"^FinishDQN.finish returned '{name}', which is {why}"):
        UpdateMetrics().add({name: 7.0}, FinishDQN.finish)


class AttachedPPO(PPO):
    """Reports a metric with gradients."""

    def policy_loss(self, log_prob: Tensor, advantages: Tensor, minibatch: Minibatch) -> LossResult:
        result = super().policy_loss(log_prob, advantages, minibatch)
        return result._replace(metrics={**result.metrics, "mine/log_prob": log_prob.mean()})


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.filterwarnings("error:Converting a tensor with requires_grad")
def test_a_metric_of_a_loss_that_has_gradients_is_detached(tmp_path, shards):
    run = train(AttachedPPO, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **ON_POLICY, shards=shards)
    assert run.metrics["mine/log_prob"] < 0


class WordDQN(DQN):
    """Reports a word in the loss."""

    def loss(self, minibatch: Minibatch) -> LossResult:
        result = super().loss(minibatch)
        metrics: dict[str, Any] = {**result.metrics, "mine/speed": "fast"}
        return result._replace(metrics=metrics)


@pytest.mark.parametrize(("own", "settings"), [(WordPPO, ON_POLICY), (WordDQN, REPLAY)])
def test_a_metric_that_is_not_a_number_is_refused_by_its_name(tmp_path, own, settings):
    with pytest.raises(RunFailed, match=r"returned the metric 'mine/speed' = 'fast', but a number is expected"):
        train(own, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **settings)


@pytest.mark.parametrize(
    "values", [[torch.tensor(0.5), 1.5], [1.5, torch.tensor(0.5)], [torch.tensor(0), torch.tensor(2)]]
)
def test_a_metric_may_be_a_tensor_in_one_update_and_a_number_in_another(values):
    metrics = UpdateMetrics()
    for value in values:
        metrics.add({"mine": value})
    assert metrics.summary() == {"mine": 1.0}


@pytest.mark.parametrize("value", [torch.ones(3), torch.ones(2, 3), torch.ones(0), np.ones(3)])
def test_a_metric_with_several_values_or_none_is_refused_with_its_shape(value):
    metrics = UpdateMetrics()
    for _ in range(2):
        metrics.add({"mine": value})
    shape = re.escape(str(tuple(value.shape)))
    with pytest.raises(RunFailed, match=rf"the metric 'mine' with the shape {shape}, but a number is expected"):
        metrics.summary()


def test_the_value_of_a_metric_that_is_not_a_number_is_named_among_those_that_are():
    metrics = UpdateMetrics()
    for value in (torch.tensor(0.5), 1.5, "fast"):
        metrics.add({"mine": value})
    with pytest.raises(RunFailed, match=r"'mine' = 'fast', but a number is expected"):
        metrics.summary()


class NoRatePPO(PPO):
    """Divides by the progress, which is 0 at first."""

    def learning_rate(self, progress: float) -> float:
        return super().learning_rate(progress) / progress if progress else float("nan")


class NegativeRateDQN(DQN):
    """Would learn to do the opposite."""

    def start(self, progress: float) -> dict[str, float]:
        return {name: -rate for name, rate in super().start(progress).items()}


class ForgottenRateDQN(DQN):
    """Does not return what it calls."""

    def start(self, progress: float) -> Any:
        super().start(progress)


class ForgottenRatePPO(PPO):
    """Does not return what it calls, in the method of the rate alone."""

    def learning_rate(self, progress: float) -> Any:
        super().learning_rate(progress)


@pytest.mark.parametrize(
    ("own", "settings"),
    [(NoRatePPO, ON_POLICY), (NegativeRateDQN, REPLAY), (ForgottenRateDQN, REPLAY), (ForgottenRatePPO, ON_POLICY)],
)
def test_a_learning_rate_that_cannot_be_used_ends_the_run_before_an_update(tmp_path, own, settings):
    with pytest.raises(RunFailed, match=rf"^{own.__name__}\.start returned .* at progress 0.*finite and at least 0"):
        train(own, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **settings)


class WidePPO(PPO):
    """Makes wider layers than its spec says: actors would read other parameters than those that are learned."""

    def make_network(self, generator: torch.Generator) -> ActorCritic:
        spec = replace(self.spec, hidden_sizes=(16,))
        return ActorCritic(spec, shared=False, log_std_init=0.0, generator=generator)


class WideDQN(DQN):
    """Likewise."""

    def make_network(self, generator: torch.Generator) -> PolicyNetwork:
        return PolicyNetwork(replace(self.spec, hidden_sizes=(16,)), Uniform(generator), head_gain=1.0)


@pytest.mark.parametrize("own", [WidePPO, WideDQN])
def test_a_network_that_actors_do_not_build_is_refused_before_the_run(tmp_path, own):
    with pytest.raises(ConfigError, match=rf"^the network of {own.__name__} begins .*\(16, 4\).*\(8, 4\)"):
        train(own, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, steps=10_000)
    assert not (tmp_path / "run").exists()


class CuriousPPO(PPO):
    """Wants to learn from what no actor records."""

    def fields(self) -> list[Field]:
        return [*super().fields(), Field("curiosity", (), "float32")]


def test_a_field_that_actors_do_not_record_is_refused_before_the_run(tmp_path):
    with pytest.raises(ConfigError, match=r"^CuriousPPO.fields has 'curiosity', but .*only behavior_log_prob, "):
        train(CuriousPPO, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **ON_POLICY)
    assert not (tmp_path / "run").exists()


class CountingPPO(PPO):
    """Counts its updates in a registered tensor."""

    def build_more(self, generator: torch.Generator, storage: Storage) -> dict[str, FlatParameters]:
        self.count = storage.register("count", torch.zeros(1))
        return super().build_more(generator, storage)

    def after_update(self, result: LossResult) -> None:
        super().after_update(result)
        self.count += 1

    def finish(self, batch: Any) -> dict[str, float]:
        return {**super().finish(batch), "mine/count": float(self.count)}


class CountInArraysPPO(CountingPPO):
    """Saves the count beside the weights."""

    def arrays(self) -> dict[str, Tensor]:
        return {**super().arrays(), "count": self.count}


class CountInStatePPO(CountingPPO):
    """Saves the count as a number."""

    def state(self) -> dict[str, Any]:
        return {**super().state(), "count": float(self.count)}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.count.fill_(state["count"])


@pytest.mark.parametrize("own", [CountingPPO, CountInArraysPPO, CountInStatePPO])
def test_a_registered_tensor_continues_after_a_resume(tmp_path, own):
    train(own, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **ON_POLICY)
    run = resume(tmp_path / "run", steps=512)
    assert run.metrics["mine/count"] == run.metrics["updates"] > 0


class OwnGroupsPPO(PPO):
    """Has no groups besides the network, and calls no method of PPO for it."""

    def build_more(self, generator: torch.Generator, storage: Storage) -> dict[str, FlatParameters]:  # noqa: ARG002
        return {}


def test_ppo_needs_no_call_of_super_in_build_more(tmp_path):
    run = train(OwnGroupsPPO, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **ON_POLICY)
    assert run.state == "finished"


class SecondRatePPO(PPO):
    """Takes the name of a tensor of PPO."""

    def build_more(self, generator: torch.Generator, storage: Storage) -> dict[str, FlatParameters]:
        storage.register("learning_rate", torch.zeros(1))
        return super().build_more(generator, storage)


class HalfPrecisionPPO(PPO):
    """Registers a tensor that NumPy has no dtype for."""

    def build_more(self, generator: torch.Generator, storage: Storage) -> dict[str, FlatParameters]:
        storage.register("count", torch.zeros(1, dtype=torch.bfloat16))
        return super().build_more(generator, storage)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (SecondRatePPO, "the algorithm registers two tensors as 'learning_rate'"),
        (HalfPrecisionPPO, "the algorithm registers 'count', a tensor of torch.bfloat16, which no checkpoint can"),
    ],
)
def test_a_tensor_that_no_checkpoint_could_have_is_refused_before_the_run(tmp_path, own, words):
    with pytest.raises(ConfigError, match=words):
        train(own, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **ON_POLICY)
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_of_a_lock_free_run_has_all_registered_tensors(tmp_path):
    of_hogwild: dict[str, Any] = {"runtime": "hogwild", "workers": 1}
    train(CountingPPO, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **ON_POLICY, **of_hogwild)
    run = resume(tmp_path / "run", steps=512)
    assert run.metrics["mine/count"] == run.metrics["updates"] > 0


@dataclass(frozen=True)
class SoftConfig(ReplayConfig):
    """Only what the tutorial asks for: the policy."""

    def policy_spec(self, env: EnvSpec) -> PolicySpec:
        return PolicySpec(**self.spec_fields(env), distribution="categorical", normalize=False)


class SoftQ(OffPolicy[SoftConfig]):
    """An algorithm from scratch, on a replay, whose policy is the softmax of the values."""

    config_class = SoftConfig

    def build(self, generator: torch.Generator, storage: Storage) -> None:
        network = PolicyNetwork(self.spec, Uniform(generator), head_gain=1.0)
        self.policy, self.published_extras = FlatParameters(network, "q", storage), {}
        self.groups = {"q": ParameterGroup(self.policy, 10.0, 1e-8)}
        self.stages = (Stage("q", "q", self.loss),)
        self.network = network

    def start(self, progress: float) -> dict[str, float]:  # noqa: ARG002
        return {"q": self.config.learning_rate}

    def loss(self, minibatch: Minibatch) -> LossResult:
        values = self.forward(self.network, minibatch, "observation")
        errors = values.gather(1, minibatch["action"][:, None]).squeeze(1) - minibatch["reward"]
        return LossResult(errors.square().mean(), {})

    def arrays(self) -> dict[str, Tensor]:
        return self.policy.arrays()


def test_an_algorithm_from_scratch_needs_only_what_the_tutorial_lists(tmp_path):
    settings = {**SMALL, **REPLAY, "hidden_sizes": None}
    run = train(SoftQ, "CartPole-v1", run_dir=tmp_path / "run", **settings)
    assert run.metrics["updates"] > 0


class NoErrorsDQN(DQN):
    """Returns no errors."""

    def loss(self, minibatch: Minibatch) -> LossResult:
        return super().loss(minibatch)._replace(outputs={})


class MeanErrorDQN(DQN):
    """Returns the mean of the errors."""

    def loss(self, minibatch: Minibatch) -> LossResult:
        result = super().loss(minibatch)
        return result._replace(outputs={"errors": result.outputs["errors"].mean()})


class ColumnOfErrorsDQN(DQN):
    """Returns the errors as a matrix of one column."""

    def loss(self, minibatch: Minibatch) -> LossResult:
        result = super().loss(minibatch)
        return result._replace(outputs={"errors": result.outputs["errors"][:, None]})


@pytest.mark.parametrize(
    ("own", "shape"), [(NoErrorsDQN, "[0]"), (SoftQ, "[0]"), (MeanErrorDQN, "[]"), (ColumnOfErrorsDQN, "[8, 1]")]
)
def test_a_loss_without_the_errors_that_priorities_need_is_refused_by_the_name_of_its_class(tmp_path, own, shape):
    given = re.escape(f"{own.__name__} has errors of shape {shape} for the 8 transitions")
    with pytest.raises(RunFailed, match=rf"^{given} .*outputs\[\"errors\"\]"):
        train(own, "CartPole-v1", run_dir=tmp_path / "run", **SMALL, **REPLAY, prioritized=True)


def test_a_distribution_that_does_not_support_the_actions_is_refused_before_the_run(tmp_path):
    words = "^SoftConfig.policy_spec does not support Pendulum-v1: the categorical distribution does not support box"
    with pytest.raises(ConfigError, match=words):
        train(SoftQ, "Pendulum-v1", run_dir=tmp_path / "run", **SMALL, **REPLAY)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("name", "settings"), [("ppo", ON_POLICY), ("pearl", TASKS)])
def test_the_log_of_a_built_in_algorithm_does_not_mention_autograd(tmp_path, name, settings):
    env = "offbeat/PointRobot-v0" if name == "pearl" else "CartPole-v1"
    train(name, env, run_dir=tmp_path / "run", **SMALL, **settings)
    assert "autograd" not in (tmp_path / "run" / "log.txt").read_text()
