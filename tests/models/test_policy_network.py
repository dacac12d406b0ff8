from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from tests.support.models import policy_spec

from offbeat.models.policy_network import PolicyNetwork, Uniform


def test_with_layer_normalization_each_hidden_layer_is_normalized_before_its_activation():
    generator = torch.Generator().manual_seed(0)
    spec = replace(policy_spec("discrete", hidden_sizes=(8, 5)), layer_norm=True)
    network = PolicyNetwork(spec, Uniform(generator), head_gain=1.0).requires_grad_(False)
    for parameter in network.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator))
    inputs = torch.randn(6, spec.inputs, generator=generator)
    weights = {name: parameter.double().numpy() for name, parameter in network.named_parameters()}

    def layer(name: str, x: np.ndarray) -> np.ndarray:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    x = inputs.double().numpy()
    for i in range(2):
        x = layer(f"policy_body.{i}", x)
        x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
        x = np.tanh(x * weights[f"policy_body.norms.{i}.weight"] + weights[f"policy_body.norms.{i}.bias"])
    np.testing.assert_allclose(network(inputs)[0], layer("policy_head", x), atol=1e-5)
