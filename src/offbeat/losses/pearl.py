"""The loss of PEARL's context encoder that does not depend on the critics (arXiv:1903.08254)."""

from __future__ import annotations

from torch import Tensor


def kl_to_prior(mean: Tensor, variance: Tensor) -> Tensor:
    """Return the KL divergence of Gaussians without correlations from the prior N(0, I), in nats, [K].

    Args:
        mean: [K, L], K tasks and a task variable of size L.
        variance: [K, L].

    Raises:
        ValueError: shapes do not agree.
    """
    if mean.shape != variance.shape or mean.ndim != 2:
        raise ValueError(f"mean {list(mean.shape)} and variance {list(variance.shape)} must be [tasks, latent_size]")
    return 0.5 * (variance + mean.square() - 1 - variance.log()).sum(dim=1)
