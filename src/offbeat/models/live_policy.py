"""A policy whose weights others change while it acts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from offbeat.models.numpy_policy import NumpyPolicy
from offbeat.models.spec import PolicySpec
from offbeat.types import Acted, Tree

Renew = Callable[[NDArray[np.float32]], None]
"""Writes the newest weights into a vector, as `PolicySpec.layout` lays them out."""


class LivePolicy(NumpyPolicy):
    """Takes the newest weights for each decision, not those that it was told to load."""

    def __init__(self, spec: PolicySpec, renew: Renew) -> None:
        super().__init__(spec)
        self._renew = renew

    def act(self, observation: Tree, random: np.random.Generator) -> Acted:
        self._renew(self._vector)
        return super().act(observation, random)
