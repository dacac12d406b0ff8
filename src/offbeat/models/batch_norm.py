"""Batch renormalisation (arXiv:1702.03275) of the layers of an ensemble of critics, and its running moments.

Each layer's input x [M, n] is shifted and scaled per unit. In learning, with mean and variance of the M rows of the
batch, and with eps = 0.001:

    s = sqrt(variance + eps)        S = sqrt(running variance + eps)
    r = s / S, clipped to [1/3, 3]          d = (mean - running mean) / S, clipped to [-5, 5]
    output = scale ((x - mean) / s r + d) + shift

r and d get no gradients, mean and s do. For the first `WARMUP` updates r = 1 and d = 0: ordinary batch normalisation
(arXiv:1502.03167). Elsewhere the running moments take the place of the batch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from offbeat.models.buffer_layout import BufferLayout
from offbeat.models.storage import Storage

EPS = 1e-3
"""Is added to variances."""
RATE = 0.01
"""Step of the running moments towards those of a batch, in each update."""
WARMUP = 100_000
"""Updates without renormalisation. This, `RATE`, `EPS` and the limits are the values of github.com/araffin/sbx; how eps
enters the renormalisation is as in the paper."""
MOST_R, MOST_D = 3.0, 5.0


class Correction(NamedTuple):
    """How the normalised values of a layer are moved to the running moments, [E, n] each."""

    r: Tensor
    d: Tensor


class RunningMoments:
    """Running means and variances of the inputs of each layer of E critics."""

    def __init__(self, sizes: Sequence[int], critics: int, storage: Storage, device: str) -> None:
        """Register new moments: means 0, variances 1.

        Args:
            sizes: inputs of each layer, n.
            critics: E.
            storage: registers them.
            device: of the tensors.
        """
        self._layers = len(sizes)
        shapes = [(f"{kind}.{i}", (critics, size)) for i, size in enumerate(sizes) for kind in ("means", "variances")]
        self.layout = BufferLayout.of(shapes)
        initial = torch.zeros(self.layout.size, device=device)
        for i in range(self._layers):
            self.layout.views(initial)[f"variances.{i}"].fill_(1)
        self.values = storage.register("critic_moments", initial)
        """[size]: all moments."""
        self.updates = storage.register("critic_moment_updates", torch.zeros(1, device=device))
        """[1]: number of updates of the moments."""
        views = self.layout.views(self.values)
        self.means: list[Tensor] = [views[f"means.{i}"] for i in range(self._layers)]
        """[E, n] of each layer."""
        self.variances: list[Tensor] = [views[f"variances.{i}"] for i in range(self._layers)]
        """[E, n] of each layer."""

    def flat(self, moments: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Return the means and variances of each layer in one tensor, in the layout of `values`."""
        joined = torch.zeros_like(self.values)
        views = self.layout.views(joined)
        for i, (mean, variance) in enumerate(moments):
            views[f"means.{i}"].copy_(mean)
            views[f"variances.{i}"].copy_(variance)
        return joined

    @torch.no_grad()
    def update(self, moments: Tensor) -> None:
        """Move the moments towards those of a batch, in the layout of `values`, and count this update."""
        self.values.lerp_(moments, RATE)
        self.updates.add_(1)

    @torch.no_grad()
    def correction(self, i: int, mean: Tensor, variance: Tensor) -> Correction:
        """Return r and d of layer i for the moments of a batch, [E, n]."""
        running_std = (self.variances[i] + EPS).sqrt()
        r = ((variance + EPS).sqrt() / running_std).clamp(1 / MOST_R, MOST_R)
        d = ((mean - self.means[i]) / running_std).clamp(-MOST_D, MOST_D)
        is_warm = self.updates >= WARMUP  # a tensor: the host does not wait for a GPU
        return Correction(torch.where(is_warm, r, torch.ones_like(r)), torch.where(is_warm, d, torch.zeros_like(d)))

    def arrays(self) -> dict[str, Tensor]:
        """Return the moments by their names in a checkpoint."""
        return {**self.layout.views(self.values, "critic_moments."), "critic_moments.updates": self.updates}
