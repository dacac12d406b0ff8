"""Envs that raise in code of their own; `--import tests.sample_envs.raising_envs` registers them.

Actor processes import this, so it does without torch.
"""

from __future__ import annotations

import time
from typing import Any

from tests.sample_envs.curious_envs import Line
from tests.support.registering import register_envs


def length_of(shares: list[float]) -> float:
    """Divide by nothing."""
    return 1.0 / len(shares)


class RaisesLate(Line):
    """Raises in every step from the 60th of its life on: in training, not in preflight."""

    age, life = 0, 60

    def step(self, action: Any) -> Any:
        self.age += 1
        if self.age >= self.life:
            length_of([])
        return super().step(action)


class HangsInCloseOnceRaised(RaisesLate):
    """Does not close after it has raised."""

    def close(self) -> None:
        if self.age >= self.life:
            time.sleep(600)


class RaisesAtOnce(RaisesLate):
    """Raises in the third step: in preflight."""

    life = 3


class RaisesWhenMade(Line):
    def __init__(self) -> None:
        length_of([])


class RaisesInReset(Line):
    def reset(self, **_arguments: Any) -> Any:
        length_of([])


class RaisesAfterMistake(Line):
    """Raises because of another error, both in its own code."""

    def step(self, action: Any) -> Any:
        try:
            length_of([])
        except ZeroDivisionError as error:
            raise ValueError(f"no shares for {action}") from error


register_envs(
    *("raising", RaisesLate, HangsInCloseOnceRaised, RaisesAtOnce, RaisesWhenMade, RaisesInReset, RaisesAfterMistake)
)
