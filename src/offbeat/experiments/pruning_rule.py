"""When a trial is pruned: the median stopping rule of Google Vizier (Golovin et al., 2017, section 3.2.2).

A trial is compared with the other trials on its env, at the env steps of an evaluation. Of each, the best evaluation up
to there counts. A trial that has ended keeps its best one, so that later trials are compared with all earlier ones, and
not only with those that were good enough to go on. Vizier averages the returns of the others in place of taking the
best one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

FIRST_TRIALS = 5
"""Other trials that must be known at the same env steps before a trial can be pruned."""


@dataclass(frozen=True)
class Pruned:
    """Why a trial was pruned."""

    env_steps: int
    best_return: float
    """Best mean return of an evaluation up to these env steps, averaged over the sessions that have got that far."""
    median: float
    """Median of the same of the other trials."""
    others: int
    """Number of other trials with which it was compared."""


@dataclass(frozen=True)
class Evaluated:
    """The evaluations of a session so far."""

    returns: tuple[tuple[int, float], ...]
    """(env steps, mean return) of each evaluation."""
    ended: bool
    """Whether no more will follow."""

    @property
    def env_steps(self) -> int:
        """Env steps of the newest evaluation; 0 before the first."""
        return max((env_steps for env_steps, _ in self.returns), default=0)

    def best_until(self, env_steps: int) -> float | None:
        """Return the best evaluation up to `env_steps`; None if there is none, or the session has not got that far."""
        known = [mean for at, mean in self.returns if at <= env_steps]
        return max(known) if known and (self.ended or self.env_steps >= env_steps) else None


def compare(trial: Sequence[Evaluated], others: Sequence[Sequence[Evaluated]], env_steps: int) -> Pruned | None:
    """Return why a trial is pruned; None if it goes on.

    Args:
        trial: its sessions.
        others: the sessions of each other trial.
        env_steps: the env steps of an evaluation of the trial, at which it is compared.
    """
    own = _mean_best(trial, env_steps)
    known = [best for other in others if (best := _mean_best(other, env_steps)) is not None]
    if own is None or len(known) < FIRST_TRIALS or own >= (middle := median(known)):
        return None
    return Pruned(env_steps, own, middle, len(known))


def _mean_best(trial: Sequence[Evaluated], env_steps: int) -> float | None:
    bests = [best for session in trial if (best := session.best_until(env_steps)) is not None]
    return fmean(bests) if bests else None
