"""Registers envs for tests. Actor processes import this, so it does without torch."""

from __future__ import annotations

from typing import Any

import gymnasium as gym


def register_envs(prefix: str, *kinds: Any) -> None:
    """Register classes of envs with Gymnasium as prefix/NAME-v0, unless they are registered already."""
    for kind in kinds:
        env_id = f"{prefix}/{kind.__name__}-v0"
        if env_id not in gym.registry:
            gym.register(env_id, kind)
