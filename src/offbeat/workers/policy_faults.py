"""Whose fault it is when an env call fails: the env's, or that of a policy whose actions are NaN or infinite.

Actions are looked at only after a failure, so acting costs nothing more.
"""

from __future__ import annotations

import numpy as np

from offbeat.core.errors import EnvFailed, RunFailed
from offbeat.core.types import Array, EnvSpec


def policy_fault(actions: Array, spec: EnvSpec, first: int, error: EnvFailed) -> RunFailed | None:
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
    whose = f" of {', '.join(spec.agents)}" if spec.agents else ""
    return RunFailed(
        f"the policy{whose} chose the action {actions[row].tolist()} in {spec.id}, column {first + row}: its network "
        f"returned NaN or infinity, and then the env failed ({error.problem}). If the encoder is your own, look in it "
        "for a division by zero or a logarithm of 0; else lower learning_rate or set normalize_observations=true"
    )
