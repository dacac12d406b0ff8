"""The values of observations, by the critic that an actor-critic has in its checkpoint."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from offbeat.core.types import F32, ActionSpec, Tree
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.published import published_layout, published_vector

RETURN_UNIT = "return_unit"
"""Name of the array, [1], by which a critic's values are multiplied; it is missing if returns are not normalised."""
_BODY, _POLICY_BODY = "critic_body.", "policy_body."
_HEADS = ("critic_head.", "no_decision_head.")
"""The last layers, for rows with a decision and without one; see `models.actor_critic`."""
_KINDS = ("weight", "bias")


class Critic:
    """The critic of a policy. Its network is made when it is first used, because most policies are loaded only to act.

    It is computed as another policy, whose outputs are values. Its body is the critic's own one, or else the policy's.
    """

    def __init__(self, policy: ActingPolicy, weights: Tree) -> None:
        """Keep the arrays of the critic among the weights of a checkpoint."""
        kept = (_BODY, *_HEADS, RETURN_UNIT)
        self._policy, self._arrays = policy, {name: weights[name] for name in weights if name.startswith(kept)}

    @cached_property
    def network(self) -> ActingPolicy | None:
        """The network of the values; None if the weights have no critic of states, or not one of offbeat's."""
        of_policy, arrays = self._policy.spec, self._arrays
        heads = _HEADS if of_policy.no_decision else _HEADS[:1]
        if any(head + kind not in arrays for head in heads for kind in _KINDS):
            return None
        values = ActionSpec("discrete", (), nvec=(len(heads),))
        spec = replace(of_policy, action=values, distribution="categorical", uniform_start=False)
        own = {_POLICY_BODY + name.removeprefix(_BODY): arrays[name] for name in arrays if name.startswith(_BODY)}
        weights: Tree = {**published_layout(of_policy).views(self._policy.vector), **own}
        for kind in _KINDS:
            weights[f"policy_head.{kind}"] = np.concatenate([arrays[head + kind] for head in heads])
        shapes = {entry.name: entry.shape for entry in published_layout(spec).entries}
        body = {name for name in shapes if name.startswith(_POLICY_BODY)}
        if own.keys() not in (set(), body) or any(weights[name].shape != shape for name, shape in shapes.items()):
            return None
        network = make_policy(spec)
        network.load(published_vector(spec, weights))
        return network

    def values(self, inputs: Tree, state: F32, *, no_decision: bool) -> F32:
        """Return the values, [N], in units of reward; `state`, [N, state_size], is updated.

        Args:
            inputs: the inputs of the policy, [N, *shape] by leaf.
            state: the recurrent state.
            no_decision: whether the agents have nothing to decide.
        """
        assert self.network is not None
        outputs = self.network.forward(inputs, state)
        values: F32 = outputs[:, -1 if no_decision else 0] * self._arrays.get(RETURN_UNIT, np.ones(1, np.float32))
        return values
