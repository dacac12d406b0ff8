"""From a spec to the policy that acts by it."""

from __future__ import annotations

from offbeat.models.numpy_policy import ActingPolicy, NumpyPolicy
from offbeat.models.spec import PolicySpec


def make_policy(spec: PolicySpec) -> ActingPolicy:
    """Return a policy with all weights zero: in NumPy where it is plain, else in torch."""
    if spec.plain:
        return NumpyPolicy(spec)
    from offbeat.models.torch_policy import TorchPolicy  # here: actors on plain MLPs need no torch

    return TorchPolicy(spec)
