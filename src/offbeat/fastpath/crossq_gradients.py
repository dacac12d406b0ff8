"""Analytic gradients of CrossQ's losses on a CPU, by two threads: the results of autograd, faster.

The policy stage is that of SAC (`sac_gradients`), with critics that are normalised by their running moments. In the
critic stage each thread has half of the critics, each with all rows in one pass: first the recorded actions, then the
next ones. Only the first have an error, but through the moments all rows get a gradient.
"""

from __future__ import annotations

import numpy as np
import torch

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.crossq import MOMENTS, CrossQ
from offbeat.core.types import F32
from offbeat.fastpath.batch_norm_mlp import BatchNormMLP, Folded, Moments
from offbeat.fastpath.operators import fastest_operators
from offbeat.fastpath.replay_gradients import (
    LayersOfNetworks,
    arrays_of_critics,
    critic_layers,
    ignore_overflow,
    layers_of,
)
from offbeat.fastpath.sac_gradients import SACWorkspace, SoftGradients
from offbeat.models.batch_norm import RunningMoments
from offbeat.models.flat import FlatParameters
from offbeat.models.mlp import Layers, Operators


class BatchNormCriticLayers:
    """The critics with their running moments, and where the moments of a batch are written."""

    def __init__(self, critics: FlatParameters, moments: RunningMoments) -> None:
        self.layers = critic_layers(critics.layout, critics.values.numpy())
        self.sizes = self.layers[0].sizes
        self.running = moments_of(moments, moments.values.numpy())
        self.updates: F32 = moments.updates.numpy()
        """[1]: number of updates of the running moments."""
        self.flat_batch = np.zeros(moments.layout.size, np.float32)
        """[size]: moments of the last batch, in the layout of the running ones."""
        self.batch = moments_of(moments, self.flat_batch)
        self.folded = [Folded(self.sizes) for _ in self.layers]
        """Of each critic, for the policy stage."""


class CrossQWorkspace(SACWorkspace):
    """The parts of CrossQ's work on M rows, and its buffers."""

    def __init__(self, networks: LayersOfNetworks, critics: BatchNormCriticLayers, size: int) -> None:
        super().__init__(networks, size)
        self._critic_layers = critics
        self._both = np.zeros((2 * size, critics.sizes[0]), np.float32)
        self._joined, self._joined_next = self._both[:size], self._both[size:]
        self._learning = [
            BatchNormMLP(critics.sizes, networks.spec.activation, networks.operators, 2 * size) for _ in critics.layers
        ]
        self._d_values = [np.zeros((2 * size, 1), np.float32) for _ in critics.layers]
        self._centered = [np.zeros_like(self._joined_sampled) for _ in critics.layers]

    def evaluate_transitions(self, thread: int) -> None:
        """Compute the values of (s, a) and of (s', a') with this thread's critics."""
        critics, size = self._critic_layers, self.size
        with ignore_overflow():
            for e in self._critics_of(thread):
                moments, updates = critics.running[e], float(critics.updates[0])
                values = self._learning[e].forward(critics.layers[e], self._both, moments, updates, critics.batch[e])
                self.values[e], self._next_values[e] = values[:size, 0], values[size:, 0]

    def _backward(self, e: int, d: F32, gradients: Layers) -> None:
        self._d_values[e][: self.size, 0] = d
        self._learning[e].backward(self._critic_layers.layers[e], self._d_values[e], gradients)

    def evaluate(self, thread: int) -> None:
        critics = self._critic_layers
        with ignore_overflow():
            for e in self._critics_of(thread):
                folded, running, centered = critics.folded[e], critics.running[e], self._centered[e]
                folded.fold_all(critics.layers[e], running)
                np.subtract(self._joined_sampled, running.means[0], out=centered)
                self.values[e] = self._critics[e].forward(folded.layers, centered)[:, 0]


class CrossQGradients(SoftGradients):
    """The fast path of CrossQ."""

    def __init__(self, algorithm: CrossQ, operators: Operators | None = None) -> None:
        """Use these operators; None: the fastest on this machine."""
        spec, policy = algorithm.spec, algorithm.policy
        self._critic_layers = BatchNormCriticLayers(algorithm.critics, algorithm.moments)
        networks = LayersOfNetworks(
            spec,
            layers_of(spec, policy.layout, policy.values.numpy()),
            critics=[folded.layers for folded in self._critic_layers.folded],
            ema=[],
            operators=operators or fastest_operators(),
        )
        super().__init__(algorithm, networks)

    def make_workspace(self, size: int) -> CrossQWorkspace:
        return CrossQWorkspace(self._networks, self._critic_layers, size)

    def critic_gradients(self, minibatch: Minibatch) -> LossResult:
        result = super().critic_gradients(minibatch)
        moments = torch.from_numpy(self._critic_layers.flat_batch)
        loss = result.loss + 0 * float(moments.sum())  # as in `CrossQ.critic_loss`
        return result._replace(loss=loss, outputs={**result.outputs, MOMENTS: moments})


def moments_of(moments: RunningMoments, flat: F32) -> list[Moments]:
    """Return the moments of each critic, as views of a flat buffer in the layout of the running ones."""
    return [Moments(*arrays) for arrays in arrays_of_critics(moments.layout, flat, ("means", "variances"))]
