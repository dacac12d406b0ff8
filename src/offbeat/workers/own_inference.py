"""Inference in the actor itself: it computes the batches of its inference groups, with only its own rows.

This gives the same bits as an inference worker. Serial and threads use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offbeat.core.types import F32, Array
from offbeat.models.group_network import GroupNetwork
from offbeat.models.network_arrays import OUTPUTS, STATE, write_inputs
from offbeat.models.spec import PolicySpec
from offbeat.workers.inference import InferenceGroups, rows_of
from offbeat.workers.link import Work


class OwnPolicyInference:
    """A `PolicyInference` in the actor itself: a batch of the whole inference group with only the actor's rows."""

    def __init__(self, network: GroupNetwork, first: int, rows: int) -> None:
        """Use rows `first` to `first + rows` of the batch of a network."""
        self._network, self._rows = network, slice(first, first + rows)
        self._inputs = {name: array[self._rows] for name, array in network.inputs.items()}
        self._results: dict[int, dict[str, F32]] = {}

    def load(self, vector: F32) -> None:
        """Load published weights."""
        self._network.load(vector)

    def ask(self, group: int, inputs: F32, observation: Mapping[str, Array], state: F32) -> None:
        write_inputs(self._inputs, inputs, observation, state)
        self._results[group] = {name: array[self._rows] for name, array in self._network.forward().items()}

    def answer(self, group: int, state: F32) -> F32:
        results = self._results.pop(group)
        if STATE in results:
            state[...] = results[STATE]
        return results[OUTPUTS]


class OwnInference:
    """See the module's docstring."""

    def __init__(
        self,
        policies: Sequence[tuple[PolicySpec, int]],
        actor: int,
        groups: InferenceGroups,
        env_groups: int,
        device: str,
    ) -> None:
        """Make the networks of an actor.

        Args:
            policies: the spec of each policy, and its columns in one actor.
            actor: index of the actor.
            groups: which inference worker serves which actors.
            env_groups: number of env groups of an actor.
            device: torch device of the networks.
        """
        members = len(groups.members(groups.worker_of(actor)))
        self.policies = []
        for spec, columns in policies:
            rows = rows_of(columns, env_groups)
            network = GroupNetwork(spec, members * rows, device)
            self.policies.append(OwnPolicyInference(network, groups.position(actor) * rows, rows))

    def start_ticket(self, work: Work) -> None:
        for policy, policy_work in zip(self.policies, work.policies, strict=True):
            policy.load(policy_work.weights)

    def submit(self, group: int) -> None:
        """Do nothing: `ask` has computed the outputs."""

    def wait(self, group: int) -> None:
        """Do nothing."""
