"""The columns of an actor in libraries with vector envs of their own: one vector env per group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.core.closing import close_all
from offbeat.core.errors import FAILURES, OffbeatError
from offbeat.core.types import Array, EnvSpec, Tree
from offbeat.envs.actions import StepUnit, take_random_steps
from offbeat.envs.contract import Advanced, Outcome
from offbeat.envs.failures import column_failed, fault_of_call


class GroupColumns(Protocol):
    """The columns of one group, which write their rows into given arrays. `send` and `recv` step them together."""

    def reset(self) -> object: ...

    def send(self, actions: Array) -> None: ...

    def recv(self) -> Outcome: ...

    def close(self) -> None: ...


class GroupedEnvs:
    """The columns of one actor. A group steps in the background while another one is used."""

    offers_mask = reports_no_decision = False

    def __init__(self, spec: EnvSpec, groups: Sequence[slice], rows: Outcome, parts: Sequence[GroupColumns]) -> None:
        """Use `parts`, the columns of each group, which write into `rows`."""
        self.spec = spec
        self.groups = tuple(groups)
        self._rows = rows
        self.next_no_decision: NDArray[np.bool_] = np.zeros(spec.columns, np.bool_)
        self._parts = tuple(parts)

    def set_progress(self, progress: float) -> None:
        """Do nothing: the envs have no parameters."""

    def reset(self) -> Tree:
        """Start a new episode in every column."""
        for group, part in enumerate(self._parts):
            with self._named("reset", group):
                part.reset()
        return self._rows.observation

    def advance(
        self, steps: NDArray[np.int64], random: np.random.Generator, before_step: Callable[[], None] = lambda: None
    ) -> Advanced:
        """Take random steps in each group, as many as the largest of its columns' `steps`."""
        units = [StepUnit(group, partial(self._step, index)) for index, group in enumerate(self.groups)]
        return take_random_steps(self.spec, self._rows.observation, units, steps, random, before_step)

    def send(self, actions: Array, group: int = 0) -> None:
        """Start to step the group; returns at once."""
        with self._named("send", group):
            self._parts[group].send(actions)

    def recv(self, group: int = 0) -> Outcome:
        """Wait for the group. The arrays are the same in every call.

        Raises:
            EnvFailed: an observation or a reward is NaN or has a wrong shape.
        """
        with self._named("recv", group):
            return self._parts[group].recv()

    def close(self) -> None:
        close_all(self._parts)

    def _step(self, group: int, actions: Array) -> Outcome:
        self.send(actions, group)
        return self.recv(group)

    @contextmanager
    def _named(self, call: str, group: int) -> Iterator[None]:
        """Report an exception that the library raises with the env."""
        try:
            yield
        except OffbeatError:
            raise
        except FAILURES as error:
            what = fault_of_call(f"{call}() of the vector env of which this is the first env", error)
            failure = column_failed(self.spec, self.groups[group].start, what, error)
            failure.column = None  # it may be any of its columns
            raise failure from error
