"""Policies of every kind that a `PolicySpec` can describe, with random weights and random inputs for them."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray

from offbeat.core.types import F32, ActionSpec, Array, Leaf, Tree
from offbeat.models.actor_critic import ActorCritic
from offbeat.models.flat import FlatParameters
from offbeat.models.published import parameter_shapes, published_layout
from offbeat.models.spec import Distribution, PolicySpec

OBSERVATIONS = {
    "vector": (Leaf("observation", (3,), "float32"),),
    "image": (Leaf("observation", (2, 2, 1), "uint8"),),
    "dict": (
        Leaf("observation/place", (3,), "float32"),
        Leaf("observation/image", (2, 2, 1), "uint8"),
        Leaf("observation/height", (), "float32"),
    ),
    "choices": (
        Leaf("observation/card", (), "uint8", (4,), (-2,)),
        Leaf("observation/dice", (2, 2), "int16", (3, 300, 2, 5)),
        Leaf("observation/place", (3,), "float32"),
    ),
    "masked": (Leaf("observation", (3,), "float32"), Leaf("action_mask", (0,), "bool")),
    "masked choices": (
        Leaf("observation/action_mask", (0,), "bool"),
        Leaf("observation/card", (), "uint8", (4,)),
        Leaf("observation/place", (3,), "float32"),
    ),
}
"""The size of a mask is that of the action, see `leaves`."""
ACTIONS = {
    "discrete": ActionSpec("discrete", (), nvec=(3,)),
    "multidiscrete": ActionSpec("multidiscrete", (3,), nvec=(2, 4, 3)),
    "box": ActionSpec("box", (2,), low=(-1.0, -1.0), high=(1.0, 1.0)),
    "matrix": ActionSpec("box", (2, 2), low=(-inf, 0.0, -2.0, -inf), high=(inf, inf, 1.0, 5.0)),
    "switches": ActionSpec("multidiscrete", (2, 2), nvec=(2,) * 4, env_dtype="int8"),
}
ACTIONS["choice tree"] = ActionSpec(
    "mixed", (4,), nvec=(2, 4, 3, 3), parts=(ACTIONS["multidiscrete"], ACTIONS["discrete"]), keys=("a", "b")
)
ACTIONS["tree"] = ActionSpec(
    "mixed",
    (7,),
    nvec=(3, 2, 4, 3, 3),
    low=(-1.0, -1.0),
    high=(1.0, 1.0),
    parts=(
        ACTIONS["discrete"],
        ActionSpec(
            "mixed",
            (6,),
            (2, 4, 3, 3),
            low=(-1.0, -1.0),
            high=(1.0, 1.0),
            parts=(ACTIONS["box"], ACTIONS["choice tree"]),
        ),
    ),
    keys=("first", "second"),
)


def leaves(observation: str, action: ActionSpec) -> tuple[Leaf, ...]:
    """Return the leaves of an observation, with a mask that suits the action; with none, where it has no choices."""
    given = OBSERVATIONS[observation]
    if not action.nvec:
        return tuple(leaf for leaf in given if not leaf.is_mask)
    return tuple(replace(leaf, shape=(sum(action.nvec),)) if leaf.is_mask else leaf for leaf in given)


def policy_spec(
    action: str,
    *,
    observation: str = "vector",
    hidden_sizes: tuple[int, ...] = (8, 5),
    activation: str = "tanh",
    squashed: bool = False,
    normalize: bool = False,
) -> PolicySpec:
    gaussian: Distribution = "squashed" if squashed else "gaussian"
    return PolicySpec(
        observation=leaves(observation, ACTIONS[action]),
        action=ACTIONS[action],
        hidden_sizes=hidden_sizes,
        activation="relu" if activation == "relu" else "tanh",
        distribution=gaussian if ACTIONS[action].low else "categorical",
        normalize=normalize,
    )


def policy_specs(*actions: str) -> st.SearchStrategy[PolicySpec]:
    """Any policy; of these actions only, if some are named."""
    return st.builds(
        policy_spec,
        st.sampled_from(actions or sorted(ACTIONS)),
        observation=st.sampled_from(sorted(OBSERVATIONS)),
        hidden_sizes=st.lists(st.integers(1, 20), max_size=3).map(tuple),
        activation=st.sampled_from(["tanh", "relu"]),
        squashed=st.booleans(),
        normalize=st.booleans(),
    )


def random_vector(spec: PolicySpec, random: np.random.Generator) -> F32:
    """Return what might have been published: gaps are zero, scales positive."""
    layout = published_layout(spec)
    vector = np.zeros(layout.size, np.float32)
    for name, view in layout.views(vector).items():
        view[...] = random.normal(scale=0.5, size=view.shape)
        if name == "observation_scale":
            view[...] = np.exp(view * 2)
    return vector


def random_observation(spec: PolicySpec, rows: int, random: np.random.Generator) -> Tree:
    """Return leaves [rows, *shape]; floats go far enough to be clipped where they are normalised."""
    return {leaf.name: _random_leaf(spec, leaf, rows, random) for leaf in spec.observation}


def _random_leaf(spec: PolicySpec, leaf: Leaf, rows: int, random: np.random.Generator) -> Array:
    if leaf.is_mask:
        return random_mask(spec.action.nvec, rows, random)
    if leaf.choices:
        return random.integers(0, leaf.choices, (rows, leaf.size)).astype(leaf.dtype).reshape(rows, *leaf.shape)
    if leaf.dtype == "uint8":
        return random.integers(0, 4, (rows, *leaf.shape)).astype(leaf.dtype)
    return random.normal(scale=4, size=(rows, *leaf.shape)).astype(leaf.dtype)


def random_mask(nvec: tuple[int, ...], rows: int, random: np.random.Generator) -> NDArray[np.bool_]:
    """Return a mask [rows, sum(nvec)] that allows something of each component."""
    parts = []
    for choices in nvec:
        part = random.random((rows, choices)) < 0.4
        part[np.arange(rows), random.integers(choices, size=rows)] = True
        parts.append(part)
    return np.concatenate(parts, axis=1)


def random_action(spec: PolicySpec, rows: int, random: np.random.Generator) -> Array:
    """Return recorded actions [rows, *shape]."""
    if spec.action.kind == "box":
        return random.normal(size=(rows, *spec.action.shape)).astype(np.float32)
    choices: Array = random.integers(0, spec.action.nvec, (rows, len(spec.action.nvec)))
    return choices.reshape(rows, *spec.action.shape)


def actor_critic(spec: PolicySpec, *, shared: bool = False, seed: int = 0) -> ActorCritic:
    generator = torch.Generator().manual_seed(seed)
    return ActorCritic(spec, shared=shared, log_std_init=-0.5, generator=generator)


def flat_actor_critic(spec: PolicySpec, vector: F32, *, shared: bool = False) -> tuple[ActorCritic, FlatParameters]:
    """Return a model that has taken over the policy's part of a published vector, as it lies in the flat buffer."""
    model = actor_critic(spec, shared=shared)
    flat = FlatParameters(model)
    policy = published_layout(spec).entries[len(parameter_shapes(spec)) - 1].stop
    flat.values[:policy] = torch.from_numpy(vector[:policy])
    return model, flat
