"""Envs that misbehave in evaluations alone; `--import tests.sample_envs.evaluated_envs` registers them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.sample_envs.run_envs import Wave
from tests.support.registering import register_envs

from offbeat.envs.testing.worlds import CartPoles

EVALUATES = any("evaluator_process" in word for word in sys.orig_argv)
"""Whether this is the process of an evaluator."""


class Quick(Wave):
    """Does nothing wrong."""


class ExitsInEvaluations(Wave):
    """Ends its process without a word."""

    def step(self, action: Any) -> Any:
        if EVALUATES:
            os._exit(3)
        return super().step(action)


class RaisesInEvaluations(Wave):
    """Raises in the fifth env step of an episode."""

    def step(self, action: Any) -> Any:
        if EVALUATES and self.steps == 4:
            raise ZeroDivisionError("the wave has no length")
        return super().step(action)


class HangsInCloseOnceRaised(RaisesInEvaluations):
    """Does not close after it has raised."""

    def close(self) -> None:
        if EVALUATES and self.steps == 4:
            time.sleep(600)


class HangsInClose(Wave):
    """Does not close."""

    def close(self) -> None:
        if EVALUATES:
            time.sleep(600)


class HangsInOneEvaluation(Wave):
    """Hangs once."""

    def step(self, action: Any) -> Any:
        if EVALUATES and not Path("HUNG").exists():
            Path("HUNG").touch()
            time.sleep(600)
        return super().step(action)


class SlowInEvaluations(Wave):
    """Takes its time."""

    def step(self, action: Any) -> Any:
        if EVALUATES:
            time.sleep(0.02)
        return super().step(action)


class CartsToKill(CartPoles):
    """A world: waits in the fifth step of an evaluation for the end of its process, unless one was killed before."""

    def step(self, actions: Any) -> Any:
        if EVALUATES and self._steps == 4 and not Path("KILLED").exists():
            Path("READY").touch()
            time.sleep(600)
        return super().step(actions)


class WaitsInEvaluations(Wave):
    """Waits for a file."""

    def step(self, action: Any) -> Any:
        while EVALUATES and not Path("GO").exists():
            time.sleep(0.01)
        return super().step(action)


register_envs(
    *("evaluated", Quick, ExitsInEvaluations, RaisesInEvaluations, HangsInCloseOnceRaised, HangsInClose),
    *(HangsInOneEvaluation, SlowInEvaluations, WaitsInEvaluations),
)
