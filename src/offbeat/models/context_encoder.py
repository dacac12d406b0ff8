"""The context encoder of a policy in torch, as `task_inference.py` has it in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from offbeat.models.dense import Dense, Initializer
from offbeat.models.spec import PolicySpec
from offbeat.models.task_inference import MIN_VARIANCE
from offbeat.models.tensor_inputs import flatten_tensors, one_hot

CONTEXT_ENCODER = "context_encoder."
"""Prefix of the names of its parameters."""


def context_tensors(spec: PolicySpec, rows: Mapping[str, Tensor]) -> Tensor:
    """Return transitions as inputs of the context encoder, [n, inputs], as `task_inference.context_rows` does.

    Args:
        spec: a policy with a context encoder.
        rows: action, reward and the leaves of the observation, [n, ...]; with the prefix next/, those of the next one.
    """
    action = rows["action"]
    if spec.action.kind == "discrete":
        actions = one_hot(action[:, None], spec.action.nvec)
    else:
        actions = action.reshape(-1, spec.action_size)
    parts = [flatten_tensors(spec.observed_vectors, rows), actions, rows["reward"][:, None]]
    if spec.context_encoder is not None and spec.context_encoder.next_observation:
        parts.append(flatten_tensors(spec.observed_vectors, rows, "next/"))
    return torch.cat(parts, dim=1)


class ContextEncoder(nn.Module):
    """A multi-layer perceptron from transitions to the parameters of Gaussian factors."""

    def __init__(self, spec: PolicySpec, init: Initializer) -> None:
        super().__init__()
        sizes = spec.context_layer_sizes()
        for i, (inputs, outputs) in enumerate(sizes):
            self.add_module(str(i), Dense(inputs, outputs, init))
        self._last = len(sizes) - 1

    def forward(self, context: Tensor) -> Tensor:
        """Return the mean of each factor, and its variance before softplus, [..., 2 latent_size]."""
        x = context
        for i in range(self._last):
            x = functional.relu(getattr(self, str(i))(x))
        outputs: Tensor = getattr(self, str(self._last))(x)
        return outputs


class TaskPosterior(NamedTuple):
    """The posteriors of K tasks: Gaussians without correlations."""

    mean: Tensor
    """[K, latent_size]"""
    variance: Tensor
    """[K, latent_size]"""

    def sample(self, noise: Tensor) -> Tensor:
        """Return the task variable of each task, [K, latent_size], for standard normal noise of the same shape."""
        return self.mean + self.variance.sqrt() * noise


def product_of_gaussians(outputs: Tensor) -> TaskPosterior:
    """Return the product of the factors of each context: v = 1 / sum 1 / v_i, m = v sum m_i / v_i.

    Args:
        outputs: outputs of the context encoder for C transitions of each task, [K, C, 2 latent_size].
    """
    means, raw = outputs.chunk(2, dim=2)
    precision = 1 / functional.softplus(raw).clamp_min(float(MIN_VARIANCE))
    variance = 1 / precision.sum(dim=1)
    return TaskPosterior(variance * (means * precision).sum(dim=1), variance)


def with_task(observation: Tensor, task_variable: Tensor) -> Tensor:
    """Join to each row the task variable of its task, task by task.

    Args:
        observation: [M, inputs], equally many rows of each of K tasks.
        task_variable: [K, latent_size].

    Returns:
        [M, inputs + latent_size].
    """
    rows = len(observation) // len(task_variable)
    return torch.cat((observation, task_variable.repeat_interleave(rows, dim=0)), dim=1)
