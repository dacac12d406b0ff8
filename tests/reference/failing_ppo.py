"""PPO whose learner fails late; registered in PPO's place by a test."""

from __future__ import annotations

import os
from collections.abc import Mapping

from offbeat.algorithms.base import Batch
from offbeat.algorithms.ppo import PPO
from offbeat.config.registry import AlgorithmEntry
from offbeat.core.types import Array

__all__ = ["FAILING", "FAILING_LATER", "FailingPPO", "PPOThatFailsInOtherLearners"]

FAILING = AlgorithmEntry(f"{__name__}:FailingPPO", "fails in its eighth learning step")
FAILING_LATER = AlgorithmEntry(f"{__name__}:PPOThatFailsInOtherLearners", "fails in another learner process")


class FailingPPO(PPO):
    """Raises in its eighth learning step."""

    steps = 0

    def prepare(self, batch: Batch) -> Batch:
        self.steps += 1
        if self.steps == 8:
            raise ArithmeticError("the advantage is imaginary")
        return super().prepare(batch)


class PPOThatFailsInOtherLearners(PPO):
    """Raises in the eighth learning step of the second learner, or at its start."""

    steps = 0

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        if 0 not in self.collective.own and "LEARNER_FAILS_AT_START" in os.environ:
            raise ArithmeticError("no such device")
        super().load_weights(weights)

    def prepare(self, batch: Batch) -> Batch:
        self.steps += 1
        if self.steps == 8 and 1 in self.collective.own and 0 not in self.collective.own:
            raise ArithmeticError("the advantage is real")
        return super().prepare(batch)
