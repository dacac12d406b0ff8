"""The columns of one policy whose network an `Inference` computes: see inference.py.

Normalisation, sampling, masks and the recurrent state stay in the actor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import Acted, Tree
from offbeat.envs.contract import Envs
from offbeat.models.acting import ActingPolicy
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.inference import PolicyInference


class ServedColumns(PolicyColumns):
    """See the module's docstring."""

    _policy: ActingPolicy

    def __init__(
        self,
        envs: Envs,
        policy: ActingPolicy,
        transform_rewards: Callable[[NDArray[np.float32]], NDArray[np.float32]],
        inference: PolicyInference,
    ) -> None:
        """Act in `envs`; `inference` computes the network of `policy`. The other arguments: see `PolicyColumns`."""
        super().__init__(envs, policy, transform_rewards)
        self._inference = inference

    def _ask(self, observation: Tree, columns: slice, group: int) -> None:
        if self._policy.needs_network:
            self._inference.ask(group, self._policy.inputs(observation), observation, self._state[columns])

    def _choose(self, observation: Tree, columns: slice, group: int, random: np.random.Generator) -> Acted:
        needed = self._policy.needs_network
        outputs = self._inference.answer(group, self._state[columns]) if needed else None
        return self._policy.sample(observation, outputs, random)
