"""Metrics that an algorithm or an encoder of the user reports are wherever metrics are."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.registries import registries_kept
from tests.support.replay_runs import small_sac
from tests.support.runs import lines_of, small_run, weights_of
from tests.support.thorough import thorough
from torch import Tensor, nn

import offbeat
from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.ppo import PPO
from offbeat.core.types import Leaf

ENCODER = f"{__name__}:Measured"
HOGWILD: dict[str, Any] = {"runtime": "hogwild", "workers": 1, "imports": (__name__,)}


@pytest.fixture(autouse=True)
def _kept():
    with registries_kept():
        yield


class Surprised(PPO):
    """PPO that reports a metric with its loss, and one at the end of a learning step."""

    def policy_loss(self, log_prob: Tensor, advantages: Tensor, minibatch: Minibatch) -> LossResult:
        base = super().policy_loss(log_prob, advantages, minibatch)
        return LossResult(base.loss, {**base.metrics, "mine/surprise": -log_prob.detach().mean()}, base.outputs)

    def finish(self, batch: Any) -> dict[str, float]:
        return {**super().finish(batch), "mine/steps": 1.0}


class Measured(nn.Module):
    """An encoder that reports the norm of its weights and what it has seen last."""

    def __init__(self, observation: Leaf) -> None:
        super().__init__()
        self.layer = nn.Linear(observation.size, 4)

    def forward(self, observations: Tensor) -> Tensor:
        features: Tensor = self.layer(observations)
        self.last = features.detach()
        return features

    def metrics(self) -> dict[str, Any]:
        return {"norm": self.layer.weight.norm(), "mean": float(self.last.mean())}


class Silent(Measured):
    """The same encoder without metrics."""

    metrics = None  # type: ignore[assignment]


class Wrong(Measured):
    """An encoder that reports no number."""

    def metrics(self) -> dict[str, Any]:
        return {"norm": self.layer.weight}


@pytest.mark.parametrize("layout", [HOGWILD, *thorough({})], ids=["hogwild", "serial"])
def test_metrics_of_an_algorithm_and_of_an_encoder_are_in_the_lines_in_tensorboard_callbacks_and_plots(
    layout, tmp_path
):
    seen: list[dict[str, Any]] = []
    settings = {"steps": 512, "log_every": 128, "envs_per_actor": 4, "unroll_length": 16, "minibatch_size": 32}
    watched: dict[str, Any] = {"run_dir": tmp_path / "run", "callbacks": [seen.append], "progress": "none"}
    run = offbeat.train(Surprised, "CartPole-v1", encoder=ENCODER, eval_every=0, **{**watched, **settings, **layout})
    names = ("mine/surprise", "mine/steps", "encoder/norm", "encoder/mean")
    assert all(line[name] is not None for line in lines_of(run.path) for name in names)
    assert all(line["mine/steps"] == 1.0 for line in seen)
    written = b"".join(file.read_bytes() for file in run.path.glob("tensorboard/*"))
    assert [name for name in names if name.encode() not in written] == []
    picture = offbeat.plot([run], out=tmp_path / "plot.png", metrics=names)
    assert (tmp_path / "plot.png").exists(), picture


def test_encoders_of_several_networks_report_by_group_and_change_no_bits(tmp_path):
    settings: dict[str, Any] = {"steps": 240, "lag": "exact"}
    measured = small_sac(tmp_path / "measured", encoder=ENCODER, **settings)
    silent = small_sac(tmp_path / "silent", encoder=f"{__name__}:Silent", **settings)
    reported = {name for name in measured.metrics if name.startswith("encoder/")}
    assert reported == {f"encoder/{group}/{name}" for group in ("policy", "critic") for name in ("norm", "mean")}
    assert not any(name.startswith("encoder/") for name in silent.metrics)
    assert weights_of(measured.path) == weights_of(silent.path)


def test_an_encoder_that_reports_no_number_fails_the_run_with_a_message(tmp_path):
    with pytest.raises(offbeat.RunFailed, match=r"(?s)metrics\(\) of the encoder Wrong returned .*a dict of numbers"):
        small_run(tmp_path / "run", encoder=f"{__name__}:Wrong")
