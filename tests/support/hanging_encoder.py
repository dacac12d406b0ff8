"""An encoder that hangs, for tests of workers that stand still."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import torch
from torch import nn

from offbeat.core.types import Leaf


class Hanging(nn.Module):
    """An encoder that hangs once, in an actor, as a deadlock in a library would. LEARNER is the learner's process."""

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        self.linear = nn.Linear(leaf.size, 4)
        self.calls = 0

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls > 100 and in_an_actor() and not Path("HUNG").exists():
            Path("HUNG").touch()
            time.sleep(600)
        features: torch.Tensor = self.linear(observations.flatten(1))
        return features


def in_an_actor() -> bool:
    return os.getpid() != int(os.environ["LEARNER"]) or threading.current_thread() is not threading.main_thread()
