"""The arrays that go into a policy's network and come out of it, row by row. NumPy only, for actors without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from offbeat.core.types import F32, Array
from offbeat.models.spec import PolicySpec

INPUTS, STATE, OUTPUTS = "inputs", "state", "outputs"
ENCODED = "encoded/"
"""Prefix of the name of a leaf with an encoder: here, and in a prepared batch and its minibatches."""


class RowArray(NamedTuple):
    """An array with one entry per row."""

    name: str
    shape: tuple[int, ...]
    """Shape of the entry of one row."""
    dtype: str


def input_arrays(spec: PolicySpec) -> tuple[RowArray, ...]:
    """Return the inputs: the joined leaves without an encoder, the leaves with one, and the state of the core."""
    return (
        RowArray(INPUTS, (spec.inputs,), "float32"),
        *(RowArray(ENCODED + leaf.name, leaf.stacked_shape, leaf.dtype) for leaf in spec.encoded),
        *((RowArray(STATE, (spec.state_size,), "float32"),) if spec.recurrent else ()),
    )


def result_arrays(spec: PolicySpec) -> tuple[RowArray, ...]:
    """Return the results: the parameters of the action distribution, and the next state of the core."""
    return (
        RowArray(OUTPUTS, (spec.outputs,), "float32"),
        *((RowArray(STATE, (spec.state_size,), "float32"),) if spec.recurrent else ()),
    )


def write_inputs(arrays: Mapping[str, Array], inputs: F32, observation: Mapping[str, Array], state: F32) -> None:
    """Write the inputs of n rows into arrays [n, *shape]; arguments as for `ActingNetwork.forward`."""
    for name, array in arrays.items():
        if name == INPUTS:
            array[...] = inputs
        elif name == STATE:
            array[...] = state
        else:
            array[...] = observation[name.removeprefix(ENCODED)]
