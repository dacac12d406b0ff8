"""The warning about an env whose episodes may never end."""

from __future__ import annotations

from collections.abc import Callable

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
        self._notify(
            f"warning: {self._env.id} has no time limit that is known, and only {episodes} episodes have ended in "
            f"{env_steps} env steps: if an episode can go on forever, pass --set max_episode_steps=N"
        )
