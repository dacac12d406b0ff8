"""Errors of a policy whose network returns NaN or infinity: they name the policy and its env.

A discrete action hides such outputs, so the policy refuses them before it chooses (`NetworkFailed`). A continuous
action is then not finite itself. It is looked at only after an env call has failed, so acting takes no longer.
"""

from __future__ import annotations

import numpy as np

from offbeat.core.errors import EnvFailed, NetworkFailed
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.core.types import Array, EnvSpec
from offbeat.models.acting import IF_NOT_FINITE


def network_failed(spec: EnvSpec) -> NetworkFailed:
    """Return the error for a policy whose network returned NaN or infinity; `spec`: of its columns."""
    return NetworkFailed(f"the network of {_policy(spec)} returned NaN or infinity in {spec.id}. {IF_NOT_FINITE}")


def policy_fault(actions: Array, spec: EnvSpec, first: int, error: EnvFailed) -> NetworkFailed | None:
    """Return the error for a policy that chose actions that are not finite; None if all are finite.

    Args:
        actions: the last actions, [n, *shape].
        spec: of the envs that got them.
        first: the column of the first action.
        error: how the env call failed.
    """
    if actions.dtype.kind != "f" or np.isfinite(actions).all():
        return None
    row = int(np.isfinite(actions).reshape(len(actions), -1).all(axis=1).argmin())
    return NetworkFailed(
        f"{_policy(spec)} chose the action {actions[row].tolist()} in {spec.id}, {_place(spec, first + row)}: its "
        f"network returned NaN or infinity, and then the env failed ({error.problem}). {IF_NOT_FINITE}"
    )


def _place(spec: EnvSpec, column: int) -> str:
    """Return the env of a column in words; with several agents, the world and the agent."""
    if not spec.agents:
        return f"env {column}"
    world, agent = divmod(column, len(spec.agents))
    return f"world {world}, agent {spec.agents[agent]}"


def _policy(spec: EnvSpec) -> str:
    """Return the policy in words, with its name if the run may have several."""
    name = f" {spec.policy!r}" if spec.policy not in ("", DEFAULT_POLICY) else ""
    agents = f" of {', '.join(spec.agents)}" if spec.agents else ""
    return f"the policy{name}{agents}"
