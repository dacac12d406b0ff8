"""Measures the cost of env steps alone, and makes envs that fail again, as often as an actor may be restarted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from time import perf_counter

from offbeat.core.errors import ConfigError, EnvFailed, with_notes_of
from offbeat.core.types import Policy
from offbeat.runtime.make_actor import envs_of
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.reporting import without_details
from offbeat.tuning.costs import Cost, EnvStepper


class EnvCosts:
    """Measures envs, which stay between two measurements of the same number of them. Close it at the end."""

    def __init__(
        self, parts: PacedParts, policies: Sequence[Policy], notify: Callable[[str], None], remedy: str = ""
    ) -> None:
        """Make no envs yet.

        Args:
            parts: the parts of the run.
            policies: the policies that choose the actions, in the order of the run's policies, with their weights.
            notify: called with a message when envs fail and are made again, or when one of their calls takes too long.
            remedy: end of the message about such a call.
        """
        self.setup_s = 0.0
        """Seconds per env that the creation and reset of the last envs took."""
        self._plan, self._policies, self._notify = parts.plan, policies, notify
        self._watch = parts.main_thread.env_calls(without_details(notify), remedy)
        self._budget, self._failures = parts.config.runtime.restart_budget, 0
        self._layout = (0, 0)
        """The number of envs and of their groups; (0, 0): there are none."""
        self._closing = ExitStack()

    def cost(self, count: int, groups: int, seconds: float) -> Cost:
        """Step envs for `seconds`, and return the cost. If they fail, make them again.

        Args:
            count: number of envs or worlds.
            groups: number of groups of equal size that are stepped in turn.
            seconds: duration; at least one step is made.

        Raises:
            EnvFailed: they failed more often than `restart_budget` allows.
        """
        while True:
            try:
                if self._layout != (count, groups):
                    self.close()
                    self._make(count, groups)
                return self._stepper.cost(seconds)
            except (EnvFailed, ConfigError) as error:
                self._count_failure(error)
                self.close()

    def _make(self, count: int, groups: int) -> None:
        start = perf_counter()
        role = f"measure, attempt {self._failures}" if self._failures else "measure"
        self._watch.enter(resets=True)
        envs = envs_of(self._plan, count, groups, role)
        for columns in envs.values():
            self._closing.callback(columns.close)
        pairs = list(zip(envs.values(), self._policies, strict=True))
        self._stepper = EnvStepper(pairs, self._plan.run.seed, self._watch)
        self._layout, self.setup_s = (count, groups), (perf_counter() - start) / count

    def _count_failure(self, error: Exception) -> None:
        """Notify the user of a failure.

        Raises:
            EnvFailed: there were more failures than `restart_budget` allows.
        """
        self._failures += 1
        what = f"while the envs were measured: {error}"
        if self._failures > self._budget:
            message = f"{what}; the restart_budget of {self._budget} is used up"
            raise with_notes_of(EnvFailed(message), error) from error
        lines = getattr(error, "__notes__", []) if self._failures == 1 else []
        self._notify("\n".join([f"{what}; restart {self._failures} of {self._budget}", *lines]))

    def close(self) -> None:
        """Close the envs, if there are any."""
        self._layout = (0, 0)
        self._watch.enter(resets=True)
        try:
            self._closing.close()
        finally:
            self._watch.leave()
