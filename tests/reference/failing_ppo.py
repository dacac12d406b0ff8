"""PPO whose learner fails late; registered in PPO's place by a test."""

from __future__ import annotations

from offbeat.algorithms.base import Batch
from offbeat.algorithms.ppo import PPO
from offbeat.config.registry import AlgorithmEntry

__all__ = ["FAILING", "FailingPPO"]

FAILING = AlgorithmEntry(f"{__name__}:FailingPPO", "fails in its eighth learning step")


class FailingPPO(PPO):
    """Raises in its eighth learning step."""

    steps = 0

    def prepare(self, batch: Batch) -> Batch:
        self.steps += 1
        if self.steps == 8:
            raise ArithmeticError("the advantage is imaginary")
        return super().prepare(batch)
