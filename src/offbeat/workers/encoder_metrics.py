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
from offbeat.models.own_encoder import OwnEncoder

PREFIX = "encoder/"
"""Prefix of the names of these metrics."""


class EncoderMetrics:
    """What the encoders of the user report: the results of their method `metrics`, if they have one.

    Args:
        networks: the networks that learn, by parameter group. A group may have several encoders: the mean is reported.
    """

    def __init__(self, networks: Mapping[str, nn.Module]) -> None:
        found = {group: _reporting_encoders(network) for group, network in networks.items()}
        self._encoders = {group: encoders for group, encoders in found.items() if encoders}

    @torch.no_grad()
    def read(self) -> dict[str, float]:
        """Return encoder/NAME -> value. If encoders of several groups report, encoder/GROUP/NAME.

        Raises:
            RunFailed: a result is not a dict of numbers.
        """
        by_group = {group: reported for group, own in self._encoders.items() if (reported := _reported(own))}
        return {
            f"{PREFIX}{group}/{name}" if len(by_group) > 1 else f"{PREFIX}{name}": fmean(values)
            for group, reported in by_group.items()
            for name, values in reported.items()
        }


def _reporting_encoders(network: nn.Module) -> list[nn.Module]:
    """Return the encoders of the user in a network that have a method `metrics`."""
    own = [encoder.module for encoder in network.modules() if isinstance(encoder, OwnEncoder)]
    return [encoder for encoder in own if callable(getattr(encoder, "metrics", None))]


def _reported(encoders: list[nn.Module]) -> dict[str, list[float]]:
    """Return name -> the values that encoders report."""
    values = defaultdict[str, list[float]](list)
    for encoder in encoders:
        report: Any = encoder.metrics
        for name, value in _checked(report(), type(encoder).__name__).items():
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
