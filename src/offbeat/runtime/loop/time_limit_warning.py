"""The warning about an env whose episodes may never end, in training or in an evaluation."""

from __future__ import annotations

from collections.abc import Callable

from offbeat.core.tasks import Trials
from offbeat.core.types import EnvSpec

LONG = 1000
"""Mean episode length in env steps from which on an env without a known time limit gives a warning, as in `offbeat
check`."""


class TimeLimitWarning:
    """Warns once if an env has no known time limit and its episodes are so long that some may never end.

    Many envs limit their episodes although their registration does not say so. So the lengths of the run's own episodes
    are checked; no env is stepped for this check.
    """

    def __init__(self, env: EnvSpec, columns: int, notify: Callable[[str], None]) -> None:
        """Check the episodes of a run with this number of columns."""
        self._env, self._columns, self._notify = env, columns, notify
        self._done = env.time_limit is not None

    def check(self, env_steps: int, episodes: int) -> None:
        """Warn if too few episodes have ended; `env_steps`, `episodes`: of all columns together."""
        if self._done or env_steps < LONG * self._columns:
            return
        self._done = True
        if env_steps < LONG * (episodes + 1):
            return  # the episodes end
        self._warn(f"only {episodes} episodes have ended in {env_steps} env steps")

    def warn_of_evaluation(self, env_steps: int) -> None:
        """Warn that no episode of an evaluation has ended within this number of env steps of each env.

        It often comes before the warning about training: the first evaluation may be long before `check` can say
        anything, and lasts until all its episodes end or are cut.
        """
        if not self._done:
            self._done = True
            self._warn(f"no episode of an evaluation has ended in {env_steps} env steps of each env")

    def _warn(self, found: str) -> None:
        self._notify(
            f"warning: {self._env.id} has no time limit that is known, and {found}: if an episode can go on forever, "
            "pass --set max_episode_steps=N"
        )


class EndlessEpisodes:
    """Finds out whether no episode of an evaluation ends. It is called after each step of the envs."""

    def __init__(self, trials: Trials | None, report: Callable[[int], None]) -> None:
        """Check an evaluation of episodes, or of these trials.

        `report` is called at most once, with the env steps that each env has taken.
        """
        self._long = LONG * (1 if trials is None else trials.episodes)
        self._report, self._env_steps = report, 0

    def __call__(self, ended: int) -> None:
        """Count a step of all envs; `ended`: the episodes, or trials, that have ended."""
        self._env_steps += 1
        if self._env_steps == self._long and not ended:
            self._report(self._env_steps)
