"""Registries as they were before a test that registers something."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gymnasium as gym

from offbeat.config import registry
from offbeat.config.runtimes import RUNTIMES


@contextmanager
def registries_kept(*modules: str) -> Iterator[None]:
    """Put back what was registered before, and forget the modules that register something when they are imported."""
    if find_spec("ale_py"):
        import_module("ale_py")  # registers its games when it is first imported: they stay
    registries: list[dict[str, Any]] = [
        registry.ALGORITHMS,
        registry.ENCODERS,
        registry.GIVEN_ENCODERS,
        RUNTIMES,
        gym.registry,
    ]
    kept = [dict(names) for names in registries]
    for module in modules:
        sys.modules.pop(module, None)
    try:
        yield
    finally:
        for names, before in zip(registries, kept, strict=True):
            names.clear()
            names.update(before)
        for module in modules:
            sys.modules.pop(module, None)
