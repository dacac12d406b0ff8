"""The slow twin of learning from sequences: each by itself, row by row, in float64, with torch's own cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tests.reference.dqn import loss_row
from tests.reference.sac import tanh_gaussian
from torch import Tensor, distributions
from torch.nn import functional

from offbeat.algorithms.dqn import DQNConfig
from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.algorithms.sac_config import SACConfig
from offbeat.core.types import Tree
from offbeat.models.inputs import flatten
from offbeat.models.spec import PolicySpec

Rows = NDArray[Any]
Outputs = list[list[Tensor]]
"""By sequence, and then by row: those after the burn-in, and the one that follows."""


class Row(NamedTuple):
    """One transition of a sample, and where it is."""

    number: int
    """Among the transitions, time by time."""
    time: int
    column: int


class Twin:
    """What both algorithms do: walk, and look up."""

    def __init__(self, config: ReplayConfig, spec: PolicySpec, weights: Mapping[str, Rows], arrays: Tree) -> None:
        self.config, self.spec, self.arrays = config, spec, arrays
        self.parameters = {
            name: torch.tensor(array, dtype=torch.float64, requires_grad=True) for name, array in weights.items()
        }
        rows, columns = arrays["resets"].shape
        flat = {leaf.name: arrays[leaf.name].reshape(-1, *leaf.shape) for leaf in spec.observation}
        self.inputs = torch.from_numpy(flatten(spec.vectors, flat)).double().reshape(rows, columns, -1)
        self.burn_in = rows - 1 - len(arrays["valid"])

    def rows(self) -> Iterator[Row]:
        valid = self.arrays["valid"]
        for number, (time, column) in enumerate(np.argwhere(valid).tolist()):
            yield Row(number, time, column)

    def _layer(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"])

    def _activated(self, x: Tensor) -> Tensor:
        return torch.tanh(x) if self.config.activation == "tanh" else torch.relu(x)

    def _cell(self, name: str, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output and the state of one row."""
        kinds = [f"{name}.{part}.{kind}" for kind in ("weight", "bias") for part in ("input", "hidden")]
        parameters = [self.parameters[kind] for kind in kinds]
        if self.spec.core == "gru":
            [after] = torch.gru_cell(x[None], state[None], *parameters)
            return after, after
        output, memory = torch.lstm_cell(x[None], [part[None] for part in state.chunk(2)], *parameters)
        return output[0], torch.cat((output[0], memory[0]))

    def walk(self, body: str, hidden: int, *, stored: bool) -> Outputs:
        """Return the features of each sequence's rows, after those of the burn-in, through which no gradient goes."""
        outputs: Outputs = []
        for column in range(self.inputs.shape[1]):
            state = torch.from_numpy(self.arrays["initial_state"][column]).double()
            state = state if stored else torch.zeros_like(state)
            outputs.append([])
            for row in range(len(self.inputs)):
                x = self.inputs[row, column]
                for layer in range(hidden):
                    x = self._activated(self._layer(f"{body}.{layer}", x))
                output, state = self._cell(f"{body}.core", x, state)
                if row < self.burn_in:
                    state = state.detach()
                else:
                    outputs[-1].append(output)
                if self.arrays["resets"][row, column]:
                    state = torch.zeros_like(state)
        return outputs

    def policy(self, prefix: str = "") -> Outputs:
        """Return what the policy's network, or its slow copy, gives for each row."""
        features = self.walk(f"{prefix}policy_body", len(self.spec.hidden_sizes), stored=True)
        return [[self._layer(f"{prefix}policy_head", x) for x in of_column] for of_column in features]

    def allowed(self, time: int, column: int) -> Tensor:
        """Which choices are, in a row counted from the end of the burn-in."""
        if self.spec.mask is None:
            return torch.ones(self.spec.logits, dtype=torch.bool)
        return torch.from_numpy(self.arrays[self.spec.mask][self.burn_in + time, column])

    def weight(self, row: Row) -> float:
        return float(self.arrays["weight"][row.column]) if "weight" in self.arrays else 1.0

    def urgency(self, errors: list[float]) -> list[float]:
        """Return what the replay is told of each sequence."""
        of: dict[int, list[float]] = {}
        for row, error in zip(self.rows(), errors, strict=True):
            of.setdefault(row.column, []).append(error)
        return [0.9 * max(of[column]) + 0.1 * sum(of[column]) / len(of[column]) for column in sorted(of)]

    def gradients(self, loss: Tensor) -> dict[str, Rows]:
        """Return those of all parameters that the loss depends on."""
        gradients = torch.autograd.grad(loss, list(self.parameters.values()), allow_unused=True)
        named = zip(self.parameters, gradients, strict=True)
        return {name: gradient.numpy() for name, gradient in named if gradient is not None}


class DQNTwin(Twin):
    """The loss of DQN."""

    config: DQNConfig

    def loss(self) -> Tensor:
        values, ema, losses = self.policy(), self.policy("ema_"), []
        self.errors: list[float] = []
        for row in self.rows():
            after = int(self.arrays["next"][row.time, row.column])
            following = ema[row.column][after].detach()
            choosing = values[row.column][after].detach() if self.config.double else following
            best = choosing.masked_fill(~self.allowed(after, row.column), -torch.inf).argmax()
            goal = (
                self.arrays["reward"][row.time, row.column]
                + self.arrays["discount"][row.time, row.column] * (following[best])
            )
            value = values[row.column][row.time][self.arrays["action"][row.time, row.column]]
            self.errors.append((value - goal).abs().item())
            losses.append(loss_row(value, goal, self.weight(row)))
        return torch.stack(losses).mean()


class SACTwin(Twin):
    """The losses of SAC, with the noise that was drawn."""

    config: SACConfig
    noise: Mapping[str, Tensor]

    @property
    def alpha(self) -> Tensor:
        return self.parameters["log_alpha"].detach().exp()

    def _values(self, critics: str, features: Tensor, action: Tensor | None) -> list[Tensor]:
        """Return what each critic says of a row: a value, or those of all choices."""
        values = []
        for e in range(self.config.critics):
            x = features if action is None else torch.cat((features, action))
            layers = len(self.spec.hidden_sizes) + 1
            for i in range(layers):
                weight, bias = (self.parameters[f"{critics}.{kind}.{i}"][e] for kind in ("weights", "biases"))
                x = functional.linear(x, weight, bias)
                x = self._activated(x) if i < layers - 1 else x
            values.append(x if action is None else x[0])
        return values

    def _soft_value(self, row: Row, time: int, noise: str, policy: Outputs, critics: str, seen: Outputs) -> Tensor:
        """min Q - alpha log pi at a row's time, of an action or in expectation over them; keeps the entropy."""
        output, features = policy[row.column][time], seen[row.column][time]
        if self.spec.action.kind == "discrete":
            allowed = self.allowed(time, row.column)
            choices = distributions.Categorical(logits=output[allowed])
            least = torch.stack(self._values(critics, features, None)).amin(0)[allowed]
            self.entropy = choices.entropy()
            return (choices.probs * least).sum() + self.alpha * self.entropy
        mean, log_std = output.chunk(2)
        drawn = self.noise[noise][row.number].double()
        action, log_prob = tanh_gaussian(mean, log_std.clamp(-20, 2), drawn)
        self.entropy = -log_prob
        return torch.stack(self._values(critics, features, action)).amin() - self.alpha * log_prob

    def critic_loss(self) -> Tensor:
        policy = self.policy()
        seen = {name: self.walk(f"{name}.body", 0, stored=False) for name in ("critics", "ema_critics")}
        losses = []
        self.errors: list[float] = []
        for row in self.rows():
            where = row.time, row.column
            after = int(self.arrays["next"][where])
            following = self._soft_value(row, after, "next_noise", policy, "ema_critics", seen["ema_critics"]).detach()
            goal = self.arrays["reward"][where] + self.arrays["discount"][where] * following
            features, action = seen["critics"][row.column][row.time], self.arrays["action"][where]
            if self.spec.action.kind == "discrete":
                values = [of_all[action] for of_all in self._values("critics", features, None)]
            else:
                values = self._values("critics", features, torch.from_numpy(action).double().flatten())
            errors = torch.stack(values) - goal
            self.errors.append(errors.abs().mean().item())
            losses.append(self.weight(row) * (errors**2 / 2).sum())
        return torch.stack(losses).mean()

    def policy_loss(self) -> Tensor:
        policy, seen, losses, entropies = self.policy(), self.walk("critics.body", 0, stored=False), [], []
        for row in self.rows():
            losses.append(-self._soft_value(row, row.time, "noise", policy, "critics", seen))
            entropies.append(self.entropy.item())
        self.mean_entropy = float(np.mean(entropies))
        return torch.stack(losses).mean()
