"""Warnings about a run that has just started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbeat.api import no_updates
from offbeat.core.errors import LearnsNothing, RunWarning, UnsavedTensor

if TYPE_CHECKING:
    from offbeat.runtime.parts import Parts


def start_warnings(parts: Parts, *, env_steps: int = 0, counts_anew: bool = True) -> tuple[RunWarning, ...]:
    """Return the warnings: that no update will be made, and one for each class of algorithm with unsaved tensors.

    Arguments are those of `no_updates.expected`.
    """
    nothing = no_updates.expected(parts, env_steps=env_steps, counts_anew=counts_anew)
    learns_nothing = (LearnsNothing(nothing),) if nothing else ()
    return (*learns_nothing, *map(UnsavedTensor, parts.warnings))
