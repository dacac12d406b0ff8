"""Analytic gradients of SAC's losses for box actions on a CPU, by two threads: the results of autograd, faster.

``tests/fastpath/test_sac_gradients.py`` compares them with autograd. The critics' part is in `replay_gradients`. For M
rows, the temperature alpha, u = mean + sigma noise, a = tanh(u), and with d f for the derivative of the mean loss by f:

    log pi(a|s) = sum over dimensions of -noise^2 / 2 - log sigma - log(1 - a^2) - log(2 pi) / 2
    log(1 - a^2) = 2 (log 2 - |u| - log(1 + exp(-2 |u|)))       without overflow or cancellation

    policy       d a = -1 / M d Q_e / d a              e is the critic with the smallest value in the row
                 d u = d a (1 - a^2) + alpha / M 2 a   because d log pi / d u = 2 a for constant noise
                 d mean = d u                          d log sigma = d u sigma noise - alpha / M, 0 where clipped

**Division of the work.** One thread computes the policy for s', the other for s. The backward pass of the policy is
divided into two halves of the rows, whose gradients are added at the end. In the policy's loss, the gradient of a row
passes only through the critic with the smallest value, and only to the action, not to the rest of its input: that saves
half of these products.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.soft_actor_critic import SoftActorCritic
from offbeat.core.types import F32
from offbeat.fastpath.replay_gradients import (
    LayersOfNetworks,
    ReplayGradients,
    Workspace,
    ignore_overflow,
    join,
    mean,
    on_both_threads,
)
from offbeat.models.mlp import MLP, Layers, MinibatchArrays, Operators
from offbeat.models.spec import LOG_STD_RANGE


class SACWorkspace(Workspace):
    """The parts of SAC's work on M rows, and its buffers."""

    def __init__(self, networks: LayersOfNetworks, size: int) -> None:
        super().__init__(networks, size)
        self._next_policy, self._policy = (self._mlp(networks.policy, size) for _ in range(2))
        self._d_action = np.zeros((size, networks.spec.action_size), np.float32)

    # --- critics --------------------------------------------------------------------------------------------

    def sample_next(self, arrays: MinibatchArrays) -> None:
        """Sample actions a' for s'."""
        observation, noise = arrays["next_observation"], arrays["next_noise"]
        self._next_sampled = self._sampled(self._next_policy, observation, noise, self._joined_next)

    def prepare(self, arrays: MinibatchArrays, *, ahead: bool) -> None:
        """Join s and the recorded a. If `ahead`, sample the actions of the policy stage already now."""
        join(arrays["observation"], arrays["action"], out=self._joined)
        if ahead:
            self.sample(arrays)

    def sample(self, arrays: MinibatchArrays) -> None:
        """Sample actions a for s."""
        self.sampled = self._sampled(self._policy, arrays["observation"], arrays["noise"], self._joined_sampled)

    def _sampled(self, policy: MLP, observation: F32, noise: F32, joined: F32) -> SampledActions:
        """Sample actions with one of the two workspaces, and join the observations and the actions."""
        with ignore_overflow():
            sampled = SampledActions(policy.forward(self._networks.policy, observation), noise)
        join(observation, sampled.action, out=joined)
        return sampled

    def targets(self, arrays: MinibatchArrays, alpha: np.float32) -> F32:
        """Return y, [M], from the values of (s', a')."""
        soft_values = self._next_values.min(axis=0) - alpha * self._next_sampled.log_prob
        targets: F32 = arrays["reward"] + arrays["discount"] * soft_values
        return targets

    # --- policy ---------------------------------------------------------------------------------------------

    def evaluate(self, thread: int) -> None:
        """Compute the values of (s, a) for the sampled a with this thread's critics."""
        with ignore_overflow():
            for e in self._critics_of(thread):
                self.values[e] = self._critics[e].forward(self._networks.critics[e], self._joined_sampled)[:, 0]

    def write_action_gradients(self, thread: int) -> None:
        """Write d (-min_e Q_e / M) / d a for the rows in which a critic of this thread has the smallest value."""
        smallest = self.values.argmin(axis=0)
        actions = slice(self._networks.spec.inputs, None)
        with ignore_overflow():
            for e in self._critics_of(thread):
                rows = np.flatnonzero(smallest == e)
                d = np.full((len(rows), 1), -1 / self.size, np.float32)
                layers = self._networks.critics[e]
                self._d_action[rows] = self._critics[e].input_gradient(layers, d, rows, actions)

    def write_policy_gradients(self, thread: int, alpha: np.float32, gradients: list[Layers]) -> None:
        """Write the policy's gradients from this thread's half of the rows."""
        half = self._halves[thread]
        with ignore_overflow():
            d = self.sampled.gradient(self._d_action, alpha * np.float32(1 / self.size), half)
            self._policy.backward(self._networks.policy, d, gradients[thread], half)


class SoftGradients(ReplayGradients[SACWorkspace]):
    """What the fast paths of SAC and CrossQ share. Implements `algorithms.soft_actor_critic.SoftFastPath`."""

    def __init__(self, algorithm: SoftActorCritic[Any], networks: LayersOfNetworks) -> None:
        super().__init__(algorithm, networks)
        self._algorithm = algorithm
        self._sample_ahead: bool = algorithm.config.policy_delay == 1
        """Whether a policy stage with the same minibatch and the same policy follows each critic stage. Then the critic
        stage samples its actions, in a thread that would otherwise wait."""
        self._sampled_for: Minibatch | None = None
        """The minibatch for which the critic stage has sampled the policy stage's actions. Each shard of an update is
        a minibatch of its own: the critic stage of the second replaces the first here and in the workspace, so the
        policy stage samples again for the first, and after it, for the second."""

    def critic_gradients(self, minibatch: Minibatch) -> LossResult:
        """Write all gradients, with y as in `soft_targets`. The minibatch has noise and next_noise."""
        arrays, workspace = self._as_arrays(minibatch), self._workspace
        alpha = self._alpha()
        first = partial(workspace.sample_next, arrays), partial(workspace.prepare, arrays, ahead=self._sample_ahead)
        result = self._write_critic_gradients(arrays, first, partial(workspace.targets, arrays, alpha))
        self._sampled_for = minibatch if self._sample_ahead else None
        return result

    def policy_gradients(self, minibatch: Minibatch) -> LossResult:
        """Write all gradients of mean(alpha log pi(a|s) - min_e Q_e(s, a)); the result also has the mean entropy.

        If the smallest value is that of several critics, the first of them gets the gradient. The minibatch has noise.
        """
        arrays, workspace = self._as_arrays(minibatch), self._workspace
        alpha = self._alpha()
        if self._sampled_for is not minibatch:
            workspace.sample(arrays)
        self._sampled_for = None  # the policy changes after this stage
        self._executor.run(
            on_both_threads(workspace.evaluate),
            on_both_threads(workspace.write_action_gradients),
            on_both_threads(workspace.write_policy_gradients, alpha, self._gradients_of_policy),
        )
        self._add_policy_gradients()
        log_prob = mean(workspace.sampled.log_prob)
        loss = float(alpha) * log_prob - mean(workspace.values.min(axis=0))
        return LossResult(loss, {"policy_loss": loss, "entropy": -log_prob}, {"entropy": -log_prob})

    def temperature_gradients(self, minibatch: Minibatch) -> LossResult:
        algorithm = self._algorithm
        parameters = algorithm.temperature.parameters
        assert parameters is not None
        gap = float(algorithm.entropy) - float(algorithm.entropy_target(minibatch))
        parameters.gradients[0] = gap
        loss = float(parameters.values[0]) * gap
        return LossResult(loss, {"temperature_loss": loss, "temperature": float(self._alpha())})

    def _alpha(self) -> np.float32:
        return np.float32(float(self._algorithm.temperature()))


class SACGradients(SoftGradients):
    """The fast path of SAC."""

    def __init__(self, algorithm: SAC, operators: Operators | None = None) -> None:
        """Use these operators; None: the fastest on this machine."""
        super().__init__(algorithm, LayersOfNetworks.with_ema(algorithm, operators))

    def make_workspace(self, size: int) -> SACWorkspace:
        return SACWorkspace(self._networks, size)


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
