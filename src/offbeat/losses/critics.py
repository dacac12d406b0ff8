"""The loss of an ensemble of critics, which algorithms on a replay share.

Shapes: M transitions, E critics. Losses are per transition, so that the caller can choose how to average.
"""

from __future__ import annotations

from torch import Tensor

from offbeat.losses.actor_critic import check_rows


def critic_loss(values: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return half the squared error, summed over the critics, [M] (arXiv:1812.05905, equation 5, for each critic).

    Args:
        values: [E, M], values of the recorded actions.
        targets: [M], the same for all critics.
        weights: [M], importance weights of prioritized samples (arXiv:1511.05952, section 3.4); None: all 1.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(targets=targets, weights=weights)
    check_ensemble(values, *targets.shape)
    losses = 0.5 * (values - targets).square().sum(dim=0)
    return losses if weights is None else weights * losses


def check_ensemble(values: Tensor, *shape: int) -> None:
    """Check that values are [E, *shape], with E at least 1.

    Raises:
        ValueError: they are not; the message has the shapes.
    """
    if values.shape[1:] != shape or not len(values):
        raise ValueError(f"values is {list(values.shape)}, but [E, {', '.join(map(str, shape))}] is expected")
