"""What auto layout returns. This module is light, because runs without auto layout need it too."""

from __future__ import annotations

from typing import NamedTuple

from offbeat.config.config import Config
from offbeat.metrics.expectation import Expectation


class ChosenLayout(NamedTuple):
    """A config with its topology, and what is expected of it."""

    config: Config
    """The config with the chosen topology."""
    reason: str = ""
    """Why it was chosen, as a sentence; '' if nothing was measured."""
    expectation: Expectation | None = None
    """What the costs predict for it; None if nothing was measured."""
    next_best: Config | None = None
    """The config with the topology that is expected to be the fastest of the others; None if there is none."""
