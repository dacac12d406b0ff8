"""Compares the actions of an exported file with those of its policy."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offbeat.api.playing.inputs import as_stored, flattened
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.core.choices import firsts
from offbeat.core.errors import RunFailed
from offbeat.core.images import reduced
from offbeat.core.previous_inputs import action_parts
from offbeat.core.seeding import stream
from offbeat.core.types import INFO_MASK, Array, Tree
from offbeat.exporting.exported_policy import NEXT_STATE, STATE
from offbeat.exporting.formats import Runner, cause_of, quiet
from offbeat.exporting.observations import LARGEST, initial_state, sample_observations
from offbeat.models.actions import greedy
from offbeat.models.own_encoder import env_structure
from offbeat.models.spec import PolicySpec

TOLERANCE = 1e-5
"""Largest allowed difference between the values of a file and those of the policy: absolute, or relative to the
largest output of the network (of a state: its largest value) if this is above 1, because actions are clipped after it.
For a number with two bounds, also relative to the larger one if this is above 1, because outputs are scaled to them.
If the logits (of DQN: Q-values) of two choices differ by less, either is correct."""
BATCHES = (1, 3, 64)
"""Number of observations in each batch that is compared."""
LARGER_NUMBERS = (LARGEST, 127, 63, 31, 15, 7, 3)
"""The whole numbers above 1 that are tried as the largest."""
STEPS = 5
"""Env steps of each batch for a recurrent policy; other policies get one."""


@dataclass(frozen=True)
class Agreement:
    """The result of a comparison."""

    decisions: int
    """Number of actions that were compared."""
    error: float
    """The largest difference of a value, defined as for `TOLERANCE`; 0 if all actions are choices."""


def largest_number(policy: LoadedPolicy) -> int:
    """Return the largest whole number of the observations to compare with: `LARGEST`, unless the network refuses it.

    An encoder may look numbers up in a table. How many rows the table has is not known: the bounds of the env's
    observations are not saved.
    """
    for largest in LARGER_NUMBERS:
        inputs = sample_observations(policy.acting_policy, max(BATCHES), stream(0, "largest"), largest)
        with suppress(RunFailed):
            _expected(policy, inputs, np.zeros((max(BATCHES), policy.acting_policy.spec.state_size), np.float32))
            return largest
    return 1


def compare(policy: LoadedPolicy, run: Runner, largest: int = LARGEST) -> Agreement:
    """Run a file and its policy on the same observations, each with its own recurrent state.

    Args:
        policy: the policy.
        run: runs the file.
        largest: as for `sample_observations`.

    Raises:
        RunFailed: their actions differ.
    """
    random, spec = stream(0, "export"), policy.acting_policy.spec
    ranges = _ranges(spec)
    decisions, wrong, error = 0, 0, 0.0
    for rows in BATCHES:
        state, memory = np.zeros((rows, spec.state_size), np.float32), initial_state(spec, rows)
        for _ in range(STEPS if spec.recurrent else 1):
            inputs = sample_observations(policy.acting_policy, rows, random, largest)
            values, expected = _expected(policy, inputs, state)
            found = _found(run, inputs | memory, has_own_encoder=spec.has_own_encoder)
            outputs = dict.fromkeys(expected, values)
            if spec.recurrent:
                expected, memory = expected | {NEXT_STATE: state}, {STATE: found[NEXT_STATE]}
                outputs[NEXT_STATE] = state
            _require_alike(found, expected)
            decisions += rows
            wrong += _wrong_choices(spec, values, found, expected)
            scales = {name: max(1.0, np.abs(outputs[name]).max()) * ranges.get(name, 1.0) for name in expected}
            differences = (_difference(found[name], expected[name], scales[name]) for name in expected)
            error = float(np.max([error, *differences]))
    if wrong or not error <= TOLERANCE:
        raise RunFailed(
            f"the file does not act like the policy, and is not saved: {wrong} of {decisions} actions have other "
            f"choices, and values differ by up to {error:.1e}, but at most {TOLERANCE:.0e} is allowed"
        )
    return Agreement(decisions, error)


def _expected(policy: LoadedPolicy, inputs: Tree, state: NDArray[np.float32]) -> tuple[Array, Tree]:
    """Return the policy's network outputs, [N, outputs], and the parts of its actions; `state` is updated in place."""
    spec = policy.acting_policy.spec
    stacked = {leaf.name: leaf for leaf in spec.observation if leaf.stack > 1}
    stacks = {name: reduced(inputs[name], leaf) for name, leaf in stacked.items()}
    previous = {leaf.name: as_stored(leaf, inputs[leaf.name]) for leaf in spec.observation if leaf.is_previous}
    newest = {**inputs, **{name: inputs[name][:, -1] for name in stacked}}
    of_env = {name: part for name, part in newest.items() if name != INFO_MASK and name not in previous}
    leaves, _ = policy.leaves(env_structure(of_env), inputs.get(INFO_MASK))
    values = policy.acting_policy.parameters({**leaves, **stacks, **previous}, state).copy()
    return values, dict(flattened("action", policy.encode(greedy(spec, values))))


def _found(run: Runner, inputs: Tree, *, has_own_encoder: bool) -> Tree:
    try:
        with quiet():
            return run(inputs)
    except Exception as error:
        rows = len(next(iter(inputs.values())))
        remedy = "in your own encoder, use x.shape[0] as the batch size, not len(x)"
        if not has_own_encoder:
            remedy = "the other --format may support the network"
        raise RunFailed(
            f"the file does not run on {rows} observations, and is not saved: {remedy} ({cause_of(error)})"
        ) from error


def _require_alike(found: Tree, expected: Tree) -> None:
    """Refuse outputs with other shapes or dtypes."""
    returned, wanted = (
        {name: (part.shape, str(part.dtype)) for name, part in tree.items()} for tree in (found, expected)
    )
    if returned != wanted:
        raise RunFailed(f"the file does not act like the policy, and is not saved: it returns {returned}, not {wanted}")


# --- values -------------------------------------------------------------------------------------------------


def _ranges(spec: PolicySpec) -> dict[str, Array]:
    """Return the larger bound of each number by the name of its part, at least 1; 1 for a number without two bounds."""
    ranges = {}
    for name, part in action_parts(spec.action):
        if not part.nvec:
            bounds = np.abs([part.low, part.high]).max(axis=0).reshape(part.shape)
            ranges[name] = np.where(np.isfinite(bounds), np.maximum(bounds, 1), 1)
    return ranges


def _difference(found: Array, expected: Array, scale: Array) -> float:
    """Return the largest difference relative to the scale; 0 for choices."""
    if not np.issubdtype(expected.dtype, np.floating) or not expected.size:
        return 0.0
    return float((np.abs(found - expected) / scale).max())


# --- choices ------------------------------------------------------------------------------------------------


def _wrong_choices(spec: PolicySpec, values: Array, found: Tree, expected: Tree) -> int:
    """Return the number of actions with a choice that is invalid, or worse than the policy's choice by its `values`."""
    if not spec.logits:
        return 0
    of_file, of_policy = (_choices(spec, actions) for actions in (found, expected))
    valid = (of_file >= 0) & (of_file < spec.action.nvec)
    file_values, policy_values = (
        _values_of(spec, values, choices) for choices in (np.where(valid, of_file, of_policy), of_policy)
    )
    equally_good = policy_values - file_values <= TOLERANCE * np.maximum(1, np.abs(policy_values))
    return int((~(valid & equally_good)).any(axis=1).sum())


def _choices(spec: PolicySpec, actions: Tree) -> NDArray[np.int64]:
    """Return the choices of all components, counted from 0, [N, components]."""
    parts = []
    for name, part in action_parts(spec.action):
        if part.nvec:
            flat = actions[name].reshape(len(actions[name]), -1).astype(np.int64)
            parts.append(flat - np.array(part.start or 0))
    return np.concatenate(parts, axis=1)


def _values_of(spec: PolicySpec, values: Array, choices: NDArray[np.int64]) -> Array:
    """Return the entries of `values`, [N, outputs], for the given choices, [N, components]."""
    return np.take_along_axis(values, choices + firsts(spec.action.nvec), axis=1)
