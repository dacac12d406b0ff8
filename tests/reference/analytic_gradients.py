"""The analytic gradients of SAC and of TD3 on networks of any size, beside what autograd says, for the same tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.reference import raw_losses
from torch import Tensor

from offbeat.algorithms.sac import SAC
from offbeat.algorithms.sac_config import SACConfig
from offbeat.algorithms.td3 import TD3
from offbeat.algorithms.td3_config import TD3Config
from offbeat.core.types import ActionSpec, Leaf
from offbeat.fastpath.operators import BlasOperators, MKLOperators
from offbeat.fastpath.replay_gradients import ReplayGradients
from offbeat.fastpath.sac_gradients import SACGradients
from offbeat.fastpath.td3_gradients import TD3Gradients
from offbeat.models.flat import FlatParameters
from offbeat.models.mlp import NUMPY, Operators
from offbeat.models.spec import Activation, Distribution, PolicySpec

ALPHA = 0.3
SMOOTHING = (0.4, 0.5)
"""Standard deviation and largest size of the noise of the next actions: about a fifth of all noise is clipped."""
OPERATORS = [NUMPY, BlasOperators(), MKLOperators()]
Minibatch = dict[str, Tensor]


class Networks:
    """The networks of an algorithm, all with parameters of their own."""

    def __init__(
        self,
        algorithm_class: type[SAC | TD3],
        config: SACConfig | TD3Config,
        distribution: Distribution,
        *,
        hidden: tuple[int, ...] = (9, 8),
        activation: Activation = "relu",
        critics: int = 2,
        layer_norm: bool = False,
        inputs: int = 3,
        actions: int = 2,
        seed: int = 0,
    ) -> None:
        box = ActionSpec("box", (actions,), low=(-1.0,) * actions, high=(1.0,) * actions)
        leaves = (Leaf("observation", (inputs,), "float32"),)
        self.spec = PolicySpec(leaves, box, hidden, activation, distribution, normalize=False)
        settings: Any = replace(config, critics=critics, layer_norm=layer_norm)
        self.algorithm = algorithm = algorithm_class(settings, self.spec, seed=seed)
        self.policy, self.critics, self.ema = algorithm.policy, algorithm.critics, algorithm.ema_critics.values
        generator = torch.Generator().manual_seed(seed)
        for parameter in (*algorithm.critic_network.scales, *algorithm.critic_network.shifts):
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
        for flat, copy in self.slow_copies():
            for name, view in flat.layout.views(copy).items():
                view[...] = flat.arrays()[name] * (1 + 0.1 * torch.randn(view.shape, generator=generator))
        self.count, self.depth, self.layer_norm = critics, len(hidden) + 1, layer_norm

    @property
    def ema_policy(self) -> Tensor:
        assert isinstance(self.algorithm, TD3)
        return self.algorithm.ema_policy.values

    def slow_copies(self) -> list[tuple[FlatParameters, Tensor]]:
        """Return parameters and their slow copy, flat."""
        of_policy = [(self.policy, self.ema_policy)] if isinstance(self.algorithm, TD3) else []
        return [(self.critics, self.ema), *of_policy]

    def values(self) -> tuple[Tensor, ...]:
        """Return all parameters, flat."""
        return self.policy.values, self.critics.values, *(copy for _, copy in self.slow_copies())

    def policy_layers(self, flat: Tensor) -> raw_losses.Parameters:
        views = self.policy.layout.views(flat)
        return [(views[f"{name}.weight"], views[f"{name}.bias"]) for name in self.spec.layer_names()]

    def critic_layers(self, flat: Tensor) -> list[raw_losses.Parameters]:
        views = self.critics.layout.views(flat)
        linear = "weights", "biases"
        hidden = (*linear, "scales", "shifts") if self.layer_norm else linear
        kinds = [*(hidden for _ in range(self.depth - 1)), linear]
        return [
            [tuple(views[f"{kind}.{i}"][e] for kind in of_layer) for i, of_layer in enumerate(kinds)]
            for e in range(self.count)
        ]

    def minibatch(self, rows: int, *, weighted: bool = False, seed: int = 1) -> Minibatch:
        generator = torch.Generator().manual_seed(seed)
        inputs, actions = self.spec.inputs, self.spec.action_size
        result = {
            "observation": torch.randn(rows, inputs, generator=generator),
            "next_observation": torch.randn(rows, inputs, generator=generator),
            "action": torch.rand(rows, actions, generator=generator) * 2 - 1,
            "noise": torch.randn(rows, actions, generator=generator),
            "next_noise": torch.randn(rows, actions, generator=generator),
            "reward": torch.randn(rows, generator=generator),
            "discount": 0.99 * (torch.rand(rows, generator=generator) > 0.2).float(),
        }
        return result | ({"weight": torch.rand(rows, generator=generator)} if weighted else {})


class Expected(ABC):
    """What autograd says, in float64."""

    policy_critics: frozenset[int]
    """The critics through which the policy's gradient of some row passes."""

    def __init__(self, networks: Networks, minibatch: Mapping[str, Tensor]) -> None:
        self.rows = {name: tensor.double() for name, tensor in minibatch.items()}
        self.activation = networks.spec.activation
        flat_policy = networks.policy.values.double().requires_grad_()
        flat_critics = networks.critics.values.double().requires_grad_()
        self.policy, self.critics = networks.policy_layers(flat_policy), networks.critic_layers(flat_critics)
        self.ema = networks.critic_layers(networks.ema.double())

        loss, self.errors = raw_losses.critic_loss(self.rows, self.critics, self.targets(), self.activation)
        self.critic_loss = float(loss.detach())
        (self.critic_gradient,) = torch.autograd.grad(loss, flat_critics)

        loss = self.loss_of_policy()
        self.policy_loss = float(loss.detach())
        (self.policy_gradient,) = torch.autograd.grad(loss, flat_policy)
        with torch.no_grad():
            self.margin = min(self.margins())
            """How far the rows are from where rounding decides about the gradient."""
            self.deviation = min(
                raw_losses.least_deviation(x, critic, self.activation)
                for critic in (*self.critics, *self.ema)
                for x in self.inputs()
            )
            """The smallest standard deviation that a layer normalisation divides by."""

    @abstractmethod
    def targets(self) -> Tensor: ...

    @abstractmethod
    def loss_of_policy(self) -> Tensor: ...

    @abstractmethod
    def action(self) -> Tensor:
        """Return the actions of the policy's loss, [M, A]."""

    def inputs(self) -> list[Tensor]:
        """Return the inputs of the critics that have gradients."""
        actions = self.action(), self.rows["action"]
        return [torch.cat((self.rows["observation"], action), dim=1) for action in actions]

    def margins(self) -> list[float]:
        rows, activation, inputs = self.rows, self.activation, self.inputs()
        kinks = [raw_losses.nearest_kink(rows["observation"], self.policy, activation)]
        return kinks + [raw_losses.nearest_kink(x, critic, activation) for critic in self.critics for x in inputs]


class ExpectedOfSAC(Expected):
    def targets(self) -> Tensor:
        return raw_losses.sac_targets(self.rows, self.policy, self.ema, ALPHA, self.activation)

    def loss_of_policy(self) -> Tensor:
        loss, self.log_prob = raw_losses.sac_policy_loss(self.rows, self.policy, self.critics, ALPHA, self.activation)
        return loss

    def action(self) -> Tensor:
        return raw_losses.draw(self.rows["observation"], self.rows["noise"], self.policy, self.activation)[0]

    def margins(self) -> list[float]:
        values = raw_losses.values(self.rows["observation"], self.action(), self.critics, self.activation)
        self.policy_critics = frozenset(values.argmin(dim=0).tolist())
        ordered = values.sort(dim=0).values
        return [*super().margins(), *(ordered[1:2] - ordered[:1]).flatten().tolist()]


class ExpectedOfTD3(Expected):
    policy_critics = frozenset({0})
    smoothing = SMOOTHING

    def __init__(self, networks: Networks, minibatch: Mapping[str, Tensor]) -> None:
        self.ema_policy = networks.policy_layers(networks.ema_policy.double())
        super().__init__(networks, minibatch)

    def targets(self) -> Tensor:
        return raw_losses.td3_targets(self.rows, self.next_action(), self.ema, self.activation)

    def next_action(self) -> Tensor:
        observation, noise = self.rows["next_observation"], self.rows["next_noise"]
        return raw_losses.smoothed(observation, noise, self.ema_policy, self.smoothing, self.activation)

    def loss_of_policy(self) -> Tensor:
        return raw_losses.td3_policy_loss(self.rows, self.policy, self.critics, self.activation)

    def action(self) -> Tensor:
        return raw_losses.network(self.rows["observation"], self.policy, self.activation).tanh()


class Side(ABC):
    """The analytic gradients of one algorithm."""

    expected: ClassVar[type[Expected]]

    @abstractmethod
    def networks(self, **settings: Any) -> Networks:
        """Return networks with these keyword arguments of `Networks`."""

    @abstractmethod
    def fast(
        self, networks: Networks, threads: int = 1, operators: Operators | None = None, **settings: Any
    ) -> ReplayGradients[Any]:
        """Return the analytic gradients on so many threads, with these settings of the algorithm."""

    @abstractmethod
    def policy_critics(self, critics: int) -> set[int]:
        """Return the critics through which the policy's gradient can pass."""


class SACSide(Side):
    expected = ExpectedOfSAC

    def __init__(self, *, policy_delay: int = 1) -> None:
        self._config = SACConfig(temperature=ALPHA, policy_delay=policy_delay)

    def networks(self, **settings: Any) -> Networks:
        return Networks(SAC, self._config, "tanh_gaussian", **settings)

    def fast(
        self, networks: Networks, threads: int = 1, operators: Operators | None = None, **settings: Any
    ) -> SACGradients:
        algorithm = networks.algorithm
        assert isinstance(algorithm, SAC)
        algorithm.most_threads, algorithm.config = threads, replace(algorithm.config, **settings)
        return SACGradients(algorithm, operators)

    def policy_critics(self, critics: int) -> set[int]:
        return set(range(critics))


class TD3Side(Side):
    expected = ExpectedOfTD3

    def networks(self, **settings: Any) -> Networks:
        config = TD3Config(target_policy_noise=SMOOTHING[0], target_noise_clip=SMOOTHING[1])
        return Networks(TD3, config, "deterministic", **settings)

    def fast(
        self, networks: Networks, threads: int = 1, operators: Operators | None = None, **settings: Any
    ) -> TD3Gradients:
        algorithm = networks.algorithm
        assert isinstance(algorithm, TD3)
        algorithm.most_threads, algorithm.config = threads, replace(algorithm.config, **settings)
        return TD3Gradients(algorithm, operators)

    def policy_critics(self, critics: int) -> set[int]:  # noqa: ARG002
        return {0}


SIDES: dict[str, Side] = {
    "sac": SACSide(),
    "sac, sampled in the policy stage": SACSide(policy_delay=2),
    "td3": TD3Side(),
}


def assert_near(actual: Tensor | np.ndarray[Any, Any], expected: Tensor, floor: float = 0.0) -> None:
    """Within 1e-5 of the norm, and of the largest, or of `floor` where that is more."""
    difference = torch.as_tensor(actual).double() - expected
    assert difference.norm() <= 1e-5 * max(float(expected.norm()), floor)
    assert difference.abs().max() <= 1e-5 * max(float(expected.abs().max()), floor)


def assert_as_autograd(
    networks: Networks, fast: ReplayGradients[Any], minibatch: Minibatch, expected: Expected, floor: float = 0.0
) -> None:
    """Require that both stages write the losses and gradients of autograd."""
    for group in (networks.policy, networks.critics):
        for view in group.layout.views(group.gradients).values():
            view.fill_(torch.nan)  # all of them are to be written
    loss, metrics, _ = fast.critic_gradients(minibatch)
    assert loss == pytest.approx(expected.critic_loss, rel=1e-5, abs=1e-5)
    assert metrics["critic_loss"] == loss
    assert_near(networks.critics.gradients, expected.critic_gradient, floor)
    assert_near(fast.errors(), expected.errors, floor)

    loss, metrics, _ = fast.policy_gradients(minibatch)
    assert loss == pytest.approx(expected.policy_loss, rel=1e-5, abs=1e-5)
    assert metrics["policy_loss"] == loss
    assert_near(networks.policy.gradients, expected.policy_gradient, floor)
    if isinstance(expected, ExpectedOfSAC):
        assert isinstance(fast, SACGradients)
        assert metrics["entropy"] == pytest.approx(-float(expected.log_prob.mean()), rel=1e-5, abs=1e-5)
        assert_near(fast._workspace.sampled.log_prob, expected.log_prob, floor)
