"""Metrics that encoders of the user report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import torch
from torch import nn

from offbeat.core.errors import RunFailed
from offbeat.core.fields import in_short
from offbeat.models.encoders import OwnEncoder

PREFIX = "encoder/"
"""Prefix of the names of these metrics."""


def encoder_metrics(networks: Mapping[str, nn.Module]) -> dict[str, float]:
    """Return what the encoders of the user report: the result of their method `metrics`, if they have one.

    Args:
        networks: the networks that learn, by parameter group. A group may have several encoders: the mean is returned.

    Returns:
        encoder/NAME -> value. If encoders of several groups report, encoder/GROUP/NAME.

    Raises:
        RunFailed: a result is not a dict of numbers.
    """
    by_group = {group: reported for group, network in networks.items() if (reported := _reported(network))}
    return {
        f"{PREFIX}{group}/{name}" if len(by_group) > 1 else f"{PREFIX}{name}": fmean(values)
        for group, reported in by_group.items()
        for name, values in reported.items()
    }


@torch.no_grad()
def _reported(network: nn.Module) -> dict[str, list[float]]:
    """Return name -> the values that the encoders of a network report."""
    values = defaultdict[str, list[float]](list)
    for encoder in network.modules():
        if isinstance(encoder, OwnEncoder) and callable(report := getattr(encoder.module, "metrics", None)):
            for name, value in _checked(report(), type(encoder.module).__name__).items():
                values[name].append(value)
    return values


def _checked(reported: Any, encoder: str) -> dict[str, float]:
    """Return the result of an encoder's `metrics` as floats.

    Raises:
        RunFailed: it is not a dict of numbers.
    """
    try:
        return {str(name): float(value) for name, value in reported.items()}
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise RunFailed(
            f"metrics() of the encoder {encoder} returned {in_short(reported, 100)}, but a dict of "
            "numbers is expected: return {'my_metric': tensor.mean()}, or remove the method"
        ) from error
