"""The published arrays of a policy and their layout in one flat buffer, which learner and actors share."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from offbeat.config.registry import EncoderFactory, encoder_factory
from offbeat.core.errors import ConfigError
from offbeat.core.types import Tree
from offbeat.models.buffer_layout import BufferLayout
from offbeat.models.spec import PolicySpec

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


def parameter_shapes(spec: PolicySpec) -> Shapes:
    """Return name and shape of each trained array of a policy, in the order of the flat buffer."""
    return _shapes(spec, _Same(encoder_factory(spec.encoder)) if spec.has_own_encoder else None)


class _Same:
    """An encoder's class or function as the key of a cache, hashable or not. Only the same object is an equal key."""

    def __init__(self, factory: EncoderFactory) -> None:
        self._factory = factory

    def __hash__(self) -> int:
        return id(self._factory)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._factory is other._factory


@lru_cache(maxsize=64)
def _shapes(spec: PolicySpec, own_encoder: _Same | None) -> Shapes:  # noqa: ARG001 - part of the cache's key
    """Return the result of `parameter_shapes`. Another own encoder may be registered under the same name later."""
    if not spec.plain:
        from offbeat.models.policy_network import shapes_of  # here: actors on plain MLPs need no torch

        return shapes_of(spec)
    shapes: list[tuple[str, tuple[int, ...]]] = []
    for name, (inputs, outputs) in zip(spec.layer_names(), spec.layer_sizes(), strict=True):
        shapes += [(f"{name}.weight", (outputs, inputs)), (f"{name}.bias", (outputs,))]
    if spec.has_log_std:
        shapes.append(("log_std", (spec.box_size,)))
    return tuple(shapes)


def require_published(made: BufferLayout, spec: PolicySpec, owner: type) -> None:
    """Refuse a network that is not the one that actors build from the spec.

    Args:
        made: the layout of the network's parameters.
        spec: the policy as plain data.
        owner: the algorithm that made the network, for the message.

    Raises:
        ConfigError: the first parameters do not have the names and shapes of `parameter_shapes`.
    """
    expected = dict(parameter_shapes(spec))
    shapes = [(entry.name, entry.shape) for entry in made.entries[: len(expected)]]
    if shapes == list(expected.items()):
        return
    raise ConfigError(
        f"the network of {owner.__qualname__} begins with the parameters {shapes}, but actors build it from the "
        f"policy's spec, with {list(expected.items())}: change the spec in `policy_spec` of the settings, for other "
        "layers pass hidden_sizes, or an encoder of your own (offbeat.register_encoder)"
    )


def extra_shapes(spec: PolicySpec) -> Shapes:
    """Return name and shape of each published array after the policy's parameters and the observation statistics."""
    shapes: list[tuple[str, tuple[int, ...]]] = []
    if spec.uniform_start:
        shapes.append(("uniform", (1,)))
    if spec.distribution == "epsilon_greedy":
        shapes.append(("epsilon", (1,)))
    if spec.distribution == "deterministic":
        shapes.append(("exploration_noise", (1,)))
    if spec.context_encoder:
        names = spec.context_encoder.layer_names()
        for name, (inputs, outputs) in zip(names, spec.context_layer_sizes(), strict=True):
            shapes += [(f"{name}.weight", (outputs, inputs)), (f"{name}.bias", (outputs,))]
    return tuple(shapes)


def published_layout(spec: PolicySpec) -> BufferLayout:
    """Return the layout of the published vector.

    The vector has the policy's parameters and, if the spec needs them, the observation statistics, the flag `uniform`
    (1: sample uniform actions), `epsilon`, `exploration_noise`, and the parameters of the context encoder.
    """
    shapes = list(parameter_shapes(spec))
    if spec.normalize:
        shapes += [("observation_mean", (spec.inputs,)), ("observation_scale", (spec.inputs,))]
    shapes += extra_shapes(spec)
    return BufferLayout.of(shapes)


def published_vector(spec: PolicySpec, weights: Tree) -> NDArray[np.float32]:
    """Return the published vector for the weights of a checkpoint. Other arrays in the weights are ignored."""
    layout = published_layout(spec)
    vector = np.zeros(layout.size, np.float32)
    for name, view in layout.views(vector).items():
        view[...] = weights[name]
    return vector
