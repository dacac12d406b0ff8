"""The interface of an actor to the networks of its policies, if these are not computed by the policies themselves.

    inference.start_ticket(work)
    inference.policies[i].ask(group, ...)   # of each policy that needs its network
    inference.submit(group)
    ...                                     # the actor may step another env group meanwhile
    inference.wait(group)
    outputs = inference.policies[i].answer(group, state)

An inference group is one env group of all actors that one inference worker serves. Its rows have fixed positions in a
batch of constant shape, so the outputs of a row do not depend on which other rows are computed with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from offbeat.core.types import F32, Array
from offbeat.workers.link import Work


class PolicyInference(Protocol):
    """The network of one policy, for one actor."""

    def ask(self, group: int, inputs: F32, observation: Mapping[str, Array], state: F32) -> None:
        """Ask for the outputs of an env group.

        Args:
            group: the env group.
            inputs: [n, inputs], as for `ActingNetwork.forward`.
            observation: all leaves, [n, *shape].
            state: the core's state, [n, state_size].
        """
        ...

    def answer(self, group: int, state: F32) -> F32:
        """Return the outputs, [n, outputs], which the next `ask` for this group may overwrite; advance `state`."""
        ...


class Inference(Protocol):
    """See the module's docstring."""

    @property
    def policies(self) -> Sequence[PolicyInference]:
        """The network of each policy, in the order of the run's policies."""
        ...

    def start_ticket(self, work: Work) -> None:
        """Use the weights of a ticket from now on. No request may be open."""
        ...

    def submit(self, group: int) -> None:
        """Send what all policies have asked for."""
        ...

    def wait(self, group: int) -> None:
        """Wait until what was submitted is answered.

        Raises:
            Closed: the run is ending.
        """
        ...


# --- inference groups ---------------------------------------------------------------------------------------


class InferenceGroups(NamedTuple):
    """Which inference worker serves which actors: actor a is served by worker a % workers."""

    actors: int
    workers: int

    def worker_of(self, actor: int) -> int:
        """Return the worker that serves an actor."""
        return actor % self.workers

    def members(self, worker: int) -> range:
        """Return the actors that a worker serves."""
        return range(worker, self.actors, self.workers)

    def position(self, actor: int) -> int:
        """Return the position of an actor among the members of its worker, from 0."""
        return actor // self.workers


def rows_of(columns: int, env_groups: int) -> int:
    """Return the rows of one policy in a request, for its columns in one actor."""
    return columns // env_groups
