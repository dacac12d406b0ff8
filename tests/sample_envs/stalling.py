"""Envs and a child for tests of workers that stand still, and of what is left of them.

Actor processes import this, so it does without torch.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.sample_envs.run_envs import Unhurried, Wave
from tests.support.registering import register_envs

from offbeat.config.registry import register_encoder
from offbeat.runtime.children.child_main import ChildContext

LARGE = 4_000_000
"""Bytes of a state: far more than a socket takes before somebody reads."""


class Starter(Unhurried):
    """Starts a program that runs for ever. It notes its process, its parent, and whether it ignores stop signals."""

    def __init__(self) -> None:
        code = (
            "import os, signal, time; "
            "numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP; "
            "actions = [signal.getsignal(n) is signal.SIG_IGN for n in numbers]; "
            "open(f'started-{os.getpid()}', 'w').write(f'{os.getppid()} {any(actions)}'); time.sleep(600)"
        )
        self.program = subprocess.Popen([sys.executable, "-c", code])


class Forker(Wave):
    """Forks a process that sleeps until SIGTERM ends it, sends that, and notes how it ended."""

    def __init__(self) -> None:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writer, b".")  # Python has put the fork in order
            time.sleep(60)
            os._exit(7)
        os.read(reader, 1)
        os.close(reader)
        os.close(writer)
        os.kill(pid, signal.SIGTERM)
        Path(f"forked-{os.getpid()}").write_text(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))


class SlowToBegin(Wave):
    """Takes its time for its first episode."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if not hasattr(self, "phase"):
            time.sleep(0.5)
        return super().reset(seed=seed, options=options)


class Heavy(Wave):
    """Has a large state, and notes that it has been closed."""

    def __init__(self) -> None:
        self.ballast = np.zeros(LARGE, np.uint8)

    def snapshot(self) -> dict[str, Any]:
        return {"phase": self.phase, "steps": self.steps, "ballast": self.ballast}

    def restore(self, state: dict[str, Any]) -> None:
        self.phase, self.steps = state["phase"], state["steps"]

    def close(self) -> None:
        Path(f"closed-{os.getpid()}").touch()


class SlowState(Wave):
    """Takes its time to tell its state, but not in the few steps with which it is tested before a run."""

    def snapshot(self) -> dict[str, Any]:
        time.sleep(6.0 if self.steps > 8 else 0.0)
        return {"phase": self.phase, "steps": self.steps}

    def restore(self, state: dict[str, Any]) -> None:
        self.phase, self.steps = state["phase"], state["steps"]


class SlowToContinue(SlowState):
    """Takes its time to continue from a state."""

    def snapshot(self) -> dict[str, Any]:
        return {"phase": self.phase, "steps": self.steps}

    def restore(self, state: dict[str, Any]) -> None:
        time.sleep(0.3)
        super().restore(state)


register_envs("stalling", Starter, Forker, SlowToBegin, Heavy, SlowState, SlowToContinue)


register_encoder("hanging", "tests.support.hanging_encoder:Hanging")


# --- a child that reports much ------------------------------------------------------------------------------


@dataclass(frozen=True)
class LaunchSpec:
    parent: int


def main(launch: LaunchSpec, child: ChildContext) -> None:  # noqa: ARG001
    """Report so much that nobody takes it in at once."""
    child.report("ready", None)
    child.report("large", bytes(LARGE))
    signal.pause()
