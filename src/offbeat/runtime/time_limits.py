"""What a run says of episodes that have no time limit: a policy may find a way never to end one."""

from __future__ import annotations

from collections.abc import Callable

from offbeat.core.types import EnvSpec

LONG = 1000
"""Env steps of an episode from which on an env without a known time limit is warned of, as in `offbeat check`."""


class TimeLimitWarning:
    """Warns once, where no time limit is known and episodes are so long that some may never end.

    Whether an env limits its episodes by itself, as many do whose registration does not say so, shows only when it is
    stepped; so the run's own episodes are looked at, and no env is stepped for it.
    """

    def __init__(self, env: EnvSpec, columns: int, notify: Callable[[str], None]) -> None:
        """Check a run of so many envs."""
        self._env, self._columns, self._notify = env, columns, notify
        self._done = env.time_limit is not None

    def check(self, env_steps: int, episodes: int) -> None:
        """Warn if `episodes` that have ended in `env_steps` of all envs are too few."""
        if self._done or env_steps < LONG * self._columns:
            return
        self._done = True
        if env_steps < LONG * (episodes + 1):
            return  # they end by themselves
        self._notify(
            f"warning: {self._env.id} has no time limit that is known, and only {episodes} episodes have ended in "
            f"{env_steps} env steps: if one can go on for ever, pass --set max_episode_steps=N"
        )
