"""The policy network of SAC in torch: a policy alone, as its critics are an ensemble of their own."""

from __future__ import annotations

import torch

from offbeat.models.policy_network import PolicyNetwork, Uniform
from offbeat.models.spec import PolicySpec


class SoftPolicy(PolicyNetwork):
    """A policy whose layers all begin as torch's own do: the published scores of SAC were reached so."""

    def __init__(self, spec: PolicySpec, *, generator: torch.Generator) -> None:
        super().__init__(spec, Uniform(generator), head_gain=1.0)
