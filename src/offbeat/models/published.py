"""What is published of a policy, and where it lies in one flat buffer: the same to who learns and to who acts."""

from __future__ import annotations

from functools import lru_cache

from offbeat.models.layout import Layout
from offbeat.models.spec import PolicySpec

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@lru_cache(maxsize=64)
def parameter_shapes(spec: PolicySpec) -> Shapes:
    """Return name and shape of each trained array of a policy, in the order of the flat buffer."""
    if not spec.plain:
        from offbeat.models.policy_network import shapes_of  # here: actors on plain MLPs need no torch

        return shapes_of(spec)
    shapes: list[tuple[str, tuple[int, ...]]] = []
    for name, (inputs, outputs) in zip(spec.layer_names(), spec.layer_sizes(), strict=True):
        shapes += [(f"{name}.weight", (outputs, inputs)), (f"{name}.bias", (outputs,))]
    if spec.has_log_std:
        shapes.append(("log_std", (spec.box_size,)))
    return tuple(shapes)


def published_layout(spec: PolicySpec) -> Layout:
    """Return the layout of what is published: the policy's parameters, the observation statistics, the flags."""
    shapes = list(parameter_shapes(spec))
    if spec.normalize:
        shapes += [("observation_mean", (spec.inputs,)), ("observation_scale", (spec.inputs,))]
    if spec.uniform_start:
        shapes.append(("uniform", (1,)))
    if spec.distribution == "epsilon_greedy":
        shapes.append(("epsilon", (1,)))
    return Layout.of(shapes)
