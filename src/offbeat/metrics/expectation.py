"""What auto layout expected of a run, compared with what the run has measured.

The expectation is computed from costs that were measured before the run. At the end of the run, the same two costs and
the speed are known from the run itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offbeat.metrics.timings import acting_s, other_work_s

FACTOR = 1.25
"""A speed or a cost counts as different if it is larger or smaller than expected by more than this factor."""
MIN_S = 5.0
"""Shorter runs are not compared: in them, the start of the actors and the first batch take much of the time."""


@dataclass(frozen=True)
class Expectation:
    """The speed that costs predict, and these costs in microseconds per env step."""

    sps: float
    """Env steps per second."""
    acting: float
    """Time that one actor takes to act, env included."""
    learning: float
    """Time that the learner takes to learn."""


def measured(spent: Mapping[str, float], wall_s: float, env_steps: int) -> Expectation | None:
    """Return the speed and the costs of a run; None if it was too short to be compared.

    Args:
        spent: seconds by name, as in `Timings`, summed over all actors.
        wall_s: length of the run in seconds. Evaluations and checkpoints are subtracted.
        env_steps: env steps that the run has learned from in this time.
    """
    seconds = wall_s - other_work_s(spent)
    if seconds < MIN_S or not env_steps:
        return None
    acting = 1e6 * acting_s(spent) / env_steps
    return Expectation(env_steps / seconds, acting, 1e6 * spent.get("learn", 0.0) / env_steps)


def comparison(expected: Expectation, found: Expectation) -> str:
    """Return what was expected and what was measured, with the reason if they differ by more than `FACTOR`."""
    speeds = f"auto layout expected {expected.sps:,.0f} env steps/s, and {found.sps:,.0f} were measured"
    if not _differs(expected.sps, found.sps):
        return speeds
    return f"{speeds} ({found.sps / expected.sps:.2f}x): {_reason(expected, found)}"


def _reason(expected: Expectation, found: Expectation) -> str:
    """Return which of the costs differ in the direction that explains the speed."""
    slower = found.sps < expected.sps
    costs = {"acting": (expected.acting, found.acting), "learning": (expected.learning, found.learning)}
    changed = [
        f"{name} took {after:.1f} us per env step in place of {before:.1f}"
        for name, (before, after) in costs.items()
        if _differs(before, after) and (after > before) == slower
    ]
    if slower and len(changed) == len(costs):
        changed[-1] += ", as beside other programs: `offbeat bench` measures how many cores these use"
    if changed:
        return " and ".join(changed)
    as_expected = "acting and learning took as long as expected"
    return f"{as_expected}, but waited for each other" if slower else f"{as_expected}, and overlapped more"


def _differs(expected: float, found: float) -> bool:
    return not expected / FACTOR <= found <= expected * FACTOR
