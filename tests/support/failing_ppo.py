"""PPO whose learner fails late; registered in PPO's place by a test."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from offbeat.algorithms.base import Batch
from offbeat.algorithms.ppo import PPO
from offbeat.config.registry import AlgorithmEntry
from offbeat.core.types import Array
from offbeat.models.collective import ALONE

FAILING = AlgorithmEntry(f"{__name__}:FailingPPO", "fails in its eighth learning step")
FAILING_LATER = AlgorithmEntry(f"{__name__}:PPOThatFailsInOtherLearners", "fails in another learner process")
HANGING_LATER = AlgorithmEntry(f"{__name__}:PPOThatHangsInOtherLearners", "hangs in another learner process")
FIRST_IS_SILENT = AlgorithmEntry(f"{__name__}:PPOWithSilentFirstLearner", "does not exchange rows")
SECOND_IS_SILENT = AlgorithmEntry(f"{__name__}:PPOWithSilentSecondLearner", "does not exchange rows")


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


class PPOThatHangsInOtherLearners(PPO):
    """Hangs in the first learning step of the second learner, after an exchange for which the first one has waited."""

    def prepare(self, batch: Batch) -> Batch:
        if 0 in self.collective.own:
            return super().prepare(batch)
        time.sleep(1.5)
        super().prepare(batch)
        time.sleep(600)
        raise AssertionError


class PPOWithSilentFirstLearner(PPO):
    """The first learner exchanges nothing, so the second waits for it."""

    silent = 0

    def prepare(self, batch: Batch) -> Batch:
        if self.silent in self.collective.own:
            self.collective = ALONE
        return super().prepare(batch)


class PPOWithSilentSecondLearner(PPOWithSilentFirstLearner):
    """The second learner exchanges nothing, so the first waits for it."""

    silent = 1
