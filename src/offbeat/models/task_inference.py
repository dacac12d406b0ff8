"""What a policy knows about the task of each column: its context, the posterior, and the latent task variable z.

    context: transitions (s_i, a_i, r_i)   ->   factors N(m_i, v_i)   ->   posterior N(m, v)   ->   z

Each transition gives a Gaussian factor, and the posterior is the product of all factors (arXiv:1903.08254, equation 3):

    v = 1 / sum_i 1 / v_i        m = v sum_i m_i / v_i

Without context the posterior is the prior N(0, I). The policy gets z as an input, beside the observation.

Actors, evaluations and loaded policies use this class. It is NumPy only, so actors do not import torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from offbeat.core.choices import write_one_hot
from offbeat.core.types import F32, Array, Flags, Tree
from offbeat.models.acting import ActingPolicy
from offbeat.models.inputs import flatten
from offbeat.models.published import published_layout
from offbeat.models.spec import TASK_VARIABLE, PolicySpec

MIN_VARIANCE = np.float32(1e-7)
"""Smallest variance of a factor, as in the authors' code."""


class Posterior(NamedTuple):
    """The distribution of z given a context: a Gaussian without correlations."""

    mean: F32
    """[N, latent_size]"""
    variance: F32
    """[N, latent_size]"""


def context_rows(
    spec: PolicySpec, observation: Mapping[str, Array], action: Array, reward: Array, following: Mapping[str, Array]
) -> F32:
    """Return transitions as inputs of the context encoder, [n, inputs].

    Args:
        spec: a policy with a context encoder.
        observation: leaf -> [n, *shape].
        action: recorded actions, [n, *shape].
        reward: rewards of the env, [n].
        following: leaf -> [n, *shape], the next observation.
    """
    rows = len(reward)
    if spec.action.kind == "discrete":
        actions = np.empty((rows, spec.logits), np.float32)
        write_one_hot(action.reshape(rows, 1), spec.action.nvec, actions)
    else:
        actions = np.asarray(action, np.float32).reshape(rows, spec.action_size)
    parts = [flatten(spec.observed_vectors, observation), actions, np.asarray(reward, np.float32).reshape(rows, 1)]
    if spec.context_encoder is not None and spec.context_encoder.next_observation:
        parts.append(flatten(spec.observed_vectors, following))
    return np.concatenate(parts, axis=1)


class TaskInference:
    """Infers the task of each of N columns. All methods that draw random numbers draw only for the columns that are
    given.
    """

    def __init__(self, policy: ActingPolicy, columns: int) -> None:
        """Start without context, with z = 0.

        Args:
            policy: a policy with a context encoder. The weights that are loaded in it infer the task.
            columns: N.
        """
        spec = policy.spec
        if spec.context_encoder is None:
            raise ValueError("this policy has no context encoder")
        self._spec = spec
        arrays, names = published_layout(spec).views(policy.vector), spec.context_encoder.layer_names()
        self._layers = [(arrays[f"{name}.weight"], arrays[f"{name}.bias"]) for name in names]
        self._context = np.zeros((columns, 0, spec.context_layer_sizes()[0][0]), np.float32)
        """[N, capacity, inputs]: the transitions of each column, of which the first `context_sizes[c]` count."""
        self.context_sizes = np.zeros(columns, np.int64)
        """[N]: number of transitions in the context of each column."""
        self.z = np.zeros((columns, spec.context_encoder.latent_size), np.float32)
        """[N, latent_size]: the task variable of each column."""

    def reset(self) -> None:
        """Forget the tasks: empty the context of all columns, and set z to 0, the mean of the prior."""
        self.context_sizes[:], self.z[:] = 0, 0

    def observe(
        self,
        observation: Mapping[str, Array],
        action: Array,
        reward: Array,
        following: Mapping[str, Array],
        where: Flags,
    ) -> None:
        """Add a transition to the context of some columns.

        Args:
            observation: leaf -> [N, *shape].
            action: recorded actions, [N, *shape].
            reward: rewards of the env, [N].
            following: leaf -> [N, *shape], the next observation.
            where: the columns whose context the transition joins, [N].
        """
        columns = np.flatnonzero(where)
        if not len(columns):
            return
        rows = context_rows(self._spec, observation, action, reward, following)
        self._grow(int(self.context_sizes[columns].max()) + 1)
        self._context[columns, self.context_sizes[columns]] = rows[columns]
        self.context_sizes[columns] += 1

    def _grow(self, size: int) -> None:
        """Make room for this number of transitions in each column."""
        columns, capacity, inputs = self._context.shape
        if size > capacity:
            grown = np.zeros((columns, max(size, 2 * capacity), inputs), np.float32)
            grown[:, :capacity] = self._context
            self._context = grown

    def sample_prior(self, random: np.random.Generator, where: Flags) -> None:
        """Draw z of some columns, [N] flags, from the prior."""
        self.z[where] = _noise(random, int(np.count_nonzero(where)), self.z.shape[1])

    def sample_posterior(self, random: np.random.Generator, where: Flags) -> None:
        """Draw z of some columns, [N] flags, from their posteriors."""
        columns = np.flatnonzero(where)
        mean, variance = self.posterior(columns)
        self.z[columns] = mean + np.sqrt(variance) * _noise(random, len(columns), self.z.shape[1])

    def posterior(self, columns: Iterable[int] | None = None) -> Posterior:
        """Return the posteriors of some columns, in their order; None: of all columns."""
        chosen = range(len(self.z)) if columns is None else columns
        each = [self._posterior_of(self._context[column, : self.context_sizes[column]]) for column in chosen]
        size = self.z.shape[1]
        return Posterior(
            np.array([mean for mean, _ in each], np.float32).reshape(-1, size),
            np.array([variance for _, variance in each], np.float32).reshape(-1, size),
        )

    def _posterior_of(self, rows: F32) -> tuple[F32, F32]:
        """Return mean and variance of the posterior for a context, [n, inputs]."""
        size = self.z.shape[1]
        if not len(rows):
            return np.zeros(size, np.float32), np.ones(size, np.float32)
        x = rows
        for weight, bias in self._layers[:-1]:
            x = np.maximum(x @ weight.T + bias, 0)
        weight, bias = self._layers[-1]
        outputs = x @ weight.T + bias
        precision = 1 / np.maximum(np.logaddexp(0, outputs[:, size:]), MIN_VARIANCE)
        variance: F32 = 1 / precision.sum(axis=0)
        mean: F32 = variance * (outputs[:, :size] * precision).sum(axis=0)
        return mean, variance

    def with_task(self, observation: Tree, columns: slice = slice(None)) -> Tree:
        """Return the observation of some columns together with their z: the input of the policy."""
        return {**observation, TASK_VARIABLE: self.z[columns]}

    # --- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state of all columns."""
        longest = int(self.context_sizes.max(initial=0))
        return {
            "context": self._context[:, :longest].copy(),
            "context_sizes": self.context_sizes.copy(),
            "z": self.z.copy(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `snapshot` returned."""
        context = np.asarray(state["context"], np.float32).reshape(len(self.z), -1, self._context.shape[2])
        self._grow(context.shape[1])
        self._context[:, : context.shape[1]] = context
        self.context_sizes[:], self.z[:] = state["context_sizes"], state["z"]


def _noise(random: np.random.Generator, rows: int, size: int) -> F32:
    return random.standard_normal((rows, size), dtype=np.float32)
