"""Analytic gradients of TD3's losses on a CPU, by two threads: the results of autograd, faster.

``tests/fastpath/test_td3_gradients.py`` compares them with autograd. The critics' part is in `replay_gradients`. For M
rows, the policy's output u, a = tanh(u), and with d f for the derivative of the mean loss by f:

    policy       d a = -1 / M d Q_1 / d a              Q_1 is the first critic
                 d u = d a (1 - a^2)

**Division of the work.** Each thread has one half of the rows in the policies and in the whole policy stage, where only
one critic has a part. The policy's gradients of the two halves are added at the end.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.td3 import TD3
from offbeat.algorithms.td3_config import TD3Config
from offbeat.core.types import F32
from offbeat.fastpath.replay_gradients import (
    LayersOfNetworks,
    ReplayGradients,
    Workspace,
    ignore_overflow,
    join,
    layers_of,
    mean,
    on_both_threads,
)
from offbeat.models.mlp import Layers, MinibatchArrays, Operators


class TD3Workspace(Workspace):
    """The parts of TD3's work on M rows, and its buffers."""

    def __init__(self, networks: LayersOfNetworks, ema_policy: Layers, config: TD3Config, size: int) -> None:
        super().__init__(networks, size)
        self._ema_policy, self._config = ema_policy, config
        counts = [half.stop - half.start for half in self._halves]
        self._policies = [self._mlp(networks.policy, rows) for rows in counts]
        self._first_critics = [self._mlp(networks.critics[0], rows) for rows in counts]
        self._all_rows = [np.arange(rows) for rows in counts]
        self.policy_values = np.zeros(size, np.float32)
        """[M]: Q_1(s, pi(s))."""

    def prepare(self, thread: int, arrays: MinibatchArrays) -> None:
        """Select the next actions a' of this thread's half of the rows; join s' and a', s and the recorded a."""
        half = self._halves[thread]
        observation = arrays["next_observation"][half]
        std, clip = self._config.target_policy_noise, self._config.target_noise_clip
        with ignore_overflow():
            action = np.tanh(self._policies[thread].forward(self._ema_policy, observation))
            action += np.clip(std * arrays["next_noise"][half], -clip, clip)
            np.clip(action, -1, 1, out=action)
        join(observation, action, out=self._joined_next[half])
        join(arrays["observation"][half], arrays["action"][half], out=self._joined[half])

    def targets(self, arrays: MinibatchArrays) -> F32:
        """Return y, [M], from the values of (s', a')."""
        targets: F32 = arrays["reward"] + arrays["discount"] * self._next_values.min(axis=0)
        return targets

    def write_policy_gradients(self, thread: int, arrays: MinibatchArrays, gradients: list[Layers]) -> None:
        """Write the policy's gradients from this thread's half of the rows."""
        half, policy, critic = self._halves[thread], self._policies[thread], self._first_critics[thread]
        policy_layers, critic_layers = self._networks.policy, self._networks.critics[0]
        actions = slice(self._networks.spec.inputs, None)
        observation, joined = arrays["observation"][half], self._joined_sampled[half]
        with ignore_overflow():
            action = np.tanh(policy.forward(policy_layers, observation))
            join(observation, action, out=joined)
            self.policy_values[half] = critic.forward(critic_layers, joined)[:, 0]
            d = np.full((len(action), 1), -1 / self.size, np.float32)
            d = critic.input_gradient(critic_layers, d, self._all_rows[thread], actions)
            d *= 1 - action * action
            policy.backward(policy_layers, d, gradients[thread])


class TD3Gradients(ReplayGradients[TD3Workspace]):
    """The fast path of TD3."""

    def __init__(self, algorithm: TD3, operators: Operators | None = None) -> None:
        """Use these operators; None: the fastest on this machine."""
        self._ema_policy = layers_of(algorithm.spec, algorithm.policy.layout, algorithm.ema_policy.values.numpy())
        self._config = algorithm.config
        super().__init__(algorithm, LayersOfNetworks.with_ema(algorithm, operators))

    def make_workspace(self, size: int) -> TD3Workspace:
        return TD3Workspace(self._networks, self._ema_policy, self._config, size)

    def critic_gradients(self, minibatch: Minibatch) -> LossResult:
        """Write all gradients, with y as in `losses.td3.clipped_targets`. The minibatch has next_noise."""
        arrays, workspace = self._as_arrays(minibatch), self._workspace
        return self._write_critic_gradients(
            arrays, on_both_threads(workspace.prepare, arrays), partial(workspace.targets, arrays)
        )

    def policy_gradients(self, minibatch: Minibatch) -> LossResult:
        """Write all gradients of mean(-Q_1(s, pi(s)))."""
        arrays, workspace = self._as_arrays(minibatch), self._workspace
        self._executor.run(on_both_threads(workspace.write_policy_gradients, arrays, self._gradients_of_policy))
        self._add_policy_gradients()
        loss = -mean(workspace.policy_values)
        return LossResult(loss, {"policy_loss": loss})
