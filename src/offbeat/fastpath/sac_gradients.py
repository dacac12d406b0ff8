"""Analytic gradients of SAC's losses for box actions on a CPU, by two threads: the results of autograd, faster.

``tests/fastpath/test_sac_gradients.py`` compares them with autograd. For M rows, the temperature alpha, the targets y
of the critics, u = mean + sigma noise, a = tanh(u), and with d f for the derivative of the mean loss by f:

    log pi(a|s) = sum over dimensions of -noise^2 / 2 - log sigma - log(1 - a^2) - log(2 pi) / 2
    log(1 - a^2) = 2 (log 2 - |u| - log(1 + exp(-2 |u|)))       without overflow or cancellation

    critics      d Q_e = weight (Q_e - y) / M          as for a single critic, because the loss is a sum over critics
    policy       d a = -1 / M d Q_e / d a              e is the critic with the smallest value in the row
                 d u = d a (1 - a^2) + alpha / M 2 a   because d log pi / d u = 2 a for constant noise
                 d mean = d u                          d log sigma = d u sigma noise - alpha / M, 0 where clipped

**Division of the work.** Each thread has half of the critics. One thread computes the policy for s', the other for s.
The backward pass of the policy is divided into two halves of the rows, whose gradients are added at the end. The
critics are not divided by rows, because one large product takes less time than two halves. In the policy's loss, the
gradient of a row passes only through the critic with the smallest value, and only to the action, not to the rest of its
input: that saves half of these products.

Between two operators a thread needs Python's global interpreter lock. If the other thread holds the lock, waiting for
it takes longer than most operators. So few large operators are faster than many small ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms.base import LossResult
from offbeat.fastpath.kernels import fastest_kernels
from offbeat.fastpath.mlp import F32, MLP, Kernels, Layers
from offbeat.fastpath.two_threads import Step, TwoThreadExecutor
from offbeat.models.buffer_layout import BufferLayout
from offbeat.models.flat import FlatParameters
from offbeat.models.spec import LOG_STD_RANGE, PolicySpec

Rows = Mapping[str, F32]
"""A minibatch: name -> [M, ...]."""
THREADS = 2
"""Number of parts of the work, also if both parts run on one thread."""


class Networks(NamedTuple):
    """The networks and kernels that `Work` reads."""

    spec: PolicySpec
    policy: Layers
    critics: list[Layers]
    ema: list[Layers]
    kernels: Kernels


class SACGradients:
    """Reads values and writes gradients through views of the flat buffers."""

    log_prob: Tensor
    """[M]: log pi(a|s) of the actions that the last policy stage sampled."""

    def __init__(
        self,
        spec: PolicySpec,
        policy: FlatParameters,
        critics: FlatParameters,
        ema: Tensor,
        *,
        temperature: Callable[[], float],
        executor: TwoThreadExecutor,
        weighted: bool = False,
        sample_ahead: bool = True,
        kernels: Kernels | None = None,
    ) -> None:
        """Read and write these parameters.

        Args:
            spec: the policy, a tanh_gaussian.
            policy: parameters of the policy, named as in `published.parameter_shapes`.
            critics: parameters of all critics: ``weights.{i}`` [E, outputs, inputs] and ``biases.{i}`` [E, outputs] of
                layer i. Their activation is that of the policy.
            ema: parameters of the ema critics, one flat tensor of the same layout.
            temperature: returns alpha.
            executor: runs the two parts of the work.
            weighted: whether minibatches have weights.
            sample_ahead: whether a policy stage with the same minibatch and the same policy follows each critic stage.
                Then the critic stage samples its actions, in a thread that would otherwise wait.
            kernels: the operators; None: the fastest on this machine.
        """
        self._temperature, self._executor = temperature, executor
        self._weighted, self._sample_ahead = weighted, sample_ahead
        self._networks = Networks(
            spec,
            _policy_layers(spec, policy.layout, policy.values.numpy()),
            _critic_layers(critics.layout, critics.values.numpy()),
            _critic_layers(critics.layout, ema.numpy()),
            kernels or fastest_kernels(),
        )
        self._critic_gradients = _critic_layers(critics.layout, critics.gradients.numpy())
        # Each thread writes its own array of policy gradients; they are added at the end.
        self._flat_gradients = (policy.gradients.numpy(), np.zeros(policy.layout.size, np.float32))
        self._policy_gradients = [_policy_layers(spec, policy.layout, flat) for flat in self._flat_gradients]
        self._works: dict[int, Work] = {}
        """By number of rows: shards may differ by one row."""
        self._work = self._work_on(1)
        self._sampled_for: Mapping[str, Tensor] | None = None
        """The minibatch for which the critic stage has sampled the policy stage's actions."""

    def errors(self) -> F32:
        """Return the mean over the critics of |Q_e - y| in the last critic stage, [M]."""
        errors = self._work.errors
        result: F32 = np.add.reduce(np.abs(errors), axis=0) / np.float32(len(errors))
        return result

    def critic(self, minibatch: Mapping[str, Tensor]) -> LossResult:
        """Write all gradients of the sum over e of mean(weight (Q_e - y)^2 / 2), with y as in `soft_targets`.

        Args:
            minibatch: observation, next_observation [M, inputs], action, noise, next_noise [M, A], reward, discount
                [M] and, if weighted, weight [M], all float32.
        """
        rows, work = self._as_arrays(minibatch), self._work
        alpha = np.float32(self._temperature())
        weight = rows["weight"] if self._weighted else work.ones
        self._sampled_for = None  # the actions of the last minibatch are overwritten now
        self._executor.run(
            (partial(work.sample_next, rows), partial(work.prepare, rows, ahead=self._sample_ahead)),
            _on_both_threads(work.evaluate_next),
            _on_both_threads(work.write_critic_gradients, rows, weight, alpha, self._critic_gradients),
        )
        self._sampled_for = minibatch if self._sample_ahead else None
        loss = sum(work.losses)
        return LossResult(loss, {"critic_loss": loss, "q_mean": _mean(work.values)})

    def policy(self, minibatch: Mapping[str, Tensor]) -> LossResult:
        """Write all gradients of mean(alpha log pi(a|s) - min_e Q_e(s, a)); the result also has the mean entropy.

        If the smallest value is that of several critics, the first of them gets the gradient.

        Args:
            minibatch: observation [M, inputs] and noise [M, A], float32.
        """
        rows, work = self._as_arrays(minibatch), self._work
        alpha = np.float32(self._temperature())
        if self._sampled_for is not minibatch:
            work.sample(rows)
        self._sampled_for = None  # the policy changes after this stage
        self._executor.run(
            _on_both_threads(work.evaluate),
            _on_both_threads(work.write_action_gradients),
            _on_both_threads(work.write_policy_gradients, alpha, self._policy_gradients),
        )
        first, second = self._flat_gradients
        np.add(first, second, out=first)
        self.log_prob = torch.from_numpy(work.sampled.log_prob)
        log_prob = _mean(work.sampled.log_prob)
        loss = float(alpha) * log_prob - _mean(work.values.min(axis=0))
        return LossResult(loss, {"policy_loss": loss, "entropy": -log_prob})

    def _as_arrays(self, minibatch: Mapping[str, Tensor]) -> Rows:
        """Return the minibatch as arrays, and use the buffers of its size."""
        rows: Rows = {name: tensor.numpy() for name, tensor in minibatch.items()}
        self._work = self._work_on(len(rows["observation"]))
        return rows

    def _work_on(self, size: int) -> Work:
        """Return the work on a number of rows; allocate its buffers if the number is new."""
        if size not in self._works:
            self._works[size] = Work(self._networks, size)
        return self._works[size]


def _on_both_threads(part: Callable[..., None], *arguments: Any) -> Step:
    """Return the step in which both threads call `part`, with 0 or 1 as the first argument."""
    return partial(part, 0, *arguments), partial(part, 1, *arguments)


class Work:
    """The parts of the work on M rows, and their intermediate results. Buffers are allocated once, because each new
    large buffer causes page faults.
    """

    def __init__(self, networks: Networks, size: int) -> None:
        """Allocate buffers for `size` rows."""
        self.size = size
        self._networks = networks
        ensemble, inputs = len(networks.critics), networks.critics[0].sizes[0]
        self._next_policy, self._policy = (self._mlp(networks.policy) for _ in range(2))
        self._joined, self._joined_next, self._joined_sampled = (np.zeros((size, inputs), np.float32) for _ in range(3))
        self.values, self._next_values, self.errors = (np.zeros((ensemble, size), np.float32) for _ in range(3))
        self.losses = [0.0] * ensemble
        self._critics = [self._mlp(networks.critics[0]) for _ in networks.critics]
        self._d_action = np.zeros((size, networks.spec.action_size), np.float32)
        self.ones = np.ones(size, np.float32)
        middle = (size + 1) // 2  # rows before it are the first half
        self._halves = slice(0, middle), slice(middle, size)

    def _mlp(self, layers: Layers) -> MLP:
        return MLP(layers.sizes, self._networks.spec.activation, self._networks.kernels, rows=self.size)

    def _critics_of(self, thread: int) -> range:
        """Return the indices of this thread's critics."""
        return range(thread, len(self._networks.critics), THREADS)

    # --- critics --------------------------------------------------------------------------------------------

    def sample_next(self, rows: Rows) -> None:
        """Sample actions a' for s'."""
        with _ignore_overflow():
            output = self._next_policy.forward(self._networks.policy, rows["next_observation"])
            self._next_sampled = SampledActions(output, rows["next_noise"])
        _join(rows["next_observation"], self._next_sampled.action, out=self._joined_next)

    def prepare(self, rows: Rows, *, ahead: bool) -> None:
        """Join s and the recorded a. If `ahead`, sample the actions of the policy stage already now."""
        _join(rows["observation"], rows["action"], out=self._joined)
        if ahead:
            self.sample(rows)

    def sample(self, rows: Rows) -> None:
        """Sample actions a for s."""
        with _ignore_overflow():
            output = self._policy.forward(self._networks.policy, rows["observation"])
            self.sampled = SampledActions(output, rows["noise"])
        _join(rows["observation"], self.sampled.action, out=self._joined_sampled)

    def evaluate_next(self, thread: int) -> None:
        """Compute the values of (s', a') with this thread's ema critics."""
        with _ignore_overflow():
            for e in self._critics_of(thread):
                self._next_values[e] = self._critics[e].forward(self._networks.ema[e], self._joined_next)[:, 0]

    def write_critic_gradients(
        self, thread: int, rows: Rows, weight: F32, alpha: np.float32, gradients: list[Layers]
    ) -> None:
        """Write the gradients of this thread's critics."""
        with _ignore_overflow():
            # Both threads compute the targets: that takes less time than to wait for the other thread.
            soft_values = self._next_values.min(axis=0) - alpha * self._next_sampled.log_prob
            targets = rows["reward"] + rows["discount"] * soft_values
            weight = weight * np.float32(1 / self.size)
            for e in self._critics_of(thread):
                layers, errors = self._networks.critics[e], self.errors[e]
                self.values[e] = self._critics[e].forward(layers, self._joined)[:, 0]
                np.subtract(self.values[e], targets, out=errors)
                d = weight * errors
                self.losses[e] = 0.5 * float(d.dot(errors))
                self._critics[e].backward(layers, d[:, None], gradients[e])

    # --- policy ---------------------------------------------------------------------------------------------

    def evaluate(self, thread: int) -> None:
        """Compute the values of (s, a) for the sampled a with this thread's critics."""
        with _ignore_overflow():
            for e in self._critics_of(thread):
                self.values[e] = self._critics[e].forward(self._networks.critics[e], self._joined_sampled)[:, 0]

    def write_action_gradients(self, thread: int) -> None:
        """Write d (-min_e Q_e / M) / d a for the rows in which a critic of this thread has the smallest value."""
        smallest = self.values.argmin(axis=0)
        actions = slice(self._networks.spec.inputs, None)
        with _ignore_overflow():
            for e in self._critics_of(thread):
                rows = np.flatnonzero(smallest == e)
                d = np.full((len(rows), 1), -1 / self.size, np.float32)
                layers = self._networks.critics[e]
                self._d_action[rows] = self._critics[e].input_gradient(layers, d, rows, actions)

    def write_policy_gradients(self, thread: int, alpha: np.float32, gradients: list[Layers]) -> None:
        """Write the policy's gradients from this thread's half of the rows."""
        half = self._halves[thread]
        with _ignore_overflow():
            d = self.sampled.gradient(self._d_action, alpha * np.float32(1 / self.size), half)
            self._policy.backward(self._networks.policy, d, gradients[thread], half)


class SampledActions:
    """Actions a = tanh(u), u = mean + sigma noise, sampled from the policy's output [M, 2 A]: mean, then log sigma."""

    def __init__(self, output: F32, noise: F32) -> None:
        size = noise.shape[1]
        mean, unclipped = output[:, :size], output[:, size:]
        log_std = np.minimum(np.maximum(unclipped, LOG_STD_RANGE[0]), LOG_STD_RANGE[1])
        self._unclipped = unclipped == log_std
        self._scaled_noise = np.exp(log_std) * noise
        u = mean + self._scaled_noise
        self.action: F32 = np.tanh(u)
        """[M, A]."""
        abs_u = np.abs(u)
        terms = 2 * (abs_u + np.log1p(np.exp(-2 * abs_u))) - log_std - 0.5 * noise * noise
        self.log_prob: F32 = terms @ np.ones(size, np.float32)
        """[M]: log pi(a|s)."""
        self.log_prob -= np.float32(size * (0.5 * math.log(2 * math.pi) + 2 * math.log(2)))

    def gradient(self, d_action: F32, d_log_prob: np.float32, rows: slice) -> F32:
        """Return d loss / d output of some rows, [m, 2 A].

        Args:
            d_action: d loss / d a of all rows, [M, A].
            d_log_prob: d loss / d log pi, the same in all rows.
            rows: range of the rows.
        """
        action = self.action[rows]
        d_u = d_action[rows] * (1 - action * action) + (2 * d_log_prob) * action
        d_log_std = (d_u * self._scaled_noise[rows] - d_log_prob) * self._unclipped[rows]
        return np.concatenate((d_u, d_log_std), axis=1)


def _policy_layers(spec: PolicySpec, layout: BufferLayout, flat: F32) -> Layers:
    return Layers.of(layout.views(flat), spec.layer_names())


def _critic_layers(layout: BufferLayout, flat: F32) -> list[Layers]:
    """Return each critic's layers."""
    views: dict[str, F32] = layout.views(flat)
    depth = len(views) // 2
    return [
        Layers([views[f"weights.{i}"][e] for i in range(depth)], [views[f"biases.{i}"][e] for i in range(depth)])
        for e in range(len(views["biases.0"]))
    ]


def _join(observation: F32, action: F32, out: F32) -> None:
    """Write observations and actions side by side into `out`, the input of the critics."""
    inputs = observation.shape[1]
    out[:, :inputs] = observation
    out[:, inputs:] = action


def _ignore_overflow() -> np.errstate:
    """Ignore overflow: the learner refuses values that are not finite. NumPy has this setting per thread."""
    return np.errstate(over="ignore", invalid="ignore")


def _mean(x: F32) -> float:
    return float(np.add.reduce(x, axis=None)) / x.size
