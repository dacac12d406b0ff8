"""What the envs of tests share. Actor processes import this, so it does without torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym

IN_CHILD = sys.argv[0] == "-c" and sys.argv[-1].isdigit()
"""Whether this is a child process of a run, whose only argument is a descriptor."""


def is_first(name: str) -> bool:
    """Whether nobody has asked before, in any process; the file of this name in the current folder tells."""
    try:
        Path(name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def register_envs(prefix: str, *kinds: Any) -> None:
    """Register classes of envs with Gymnasium as prefix/NAME-v0, unless they are registered already."""
    for kind in kinds:
        env_id = f"{prefix}/{kind.__name__}-v0"
        if env_id not in gym.registry:
            gym.register(env_id, kind)
