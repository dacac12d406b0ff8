"""Copies the policies of a checkpoint into the checkpoint of another member.

The member keeps what is its own: its counters, envs, episodes, random streams, replay and metrics. It gets the donor's
networks and normalisers, and all versions of the weights that its actors may ask for become the donor's newest one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from offbeat.core.files import sync
from offbeat.core.types import Tree
from offbeat.models.published import published_vector
from offbeat.models.spec_file import read_spec
from offbeat.run_directory.checkpoint import (
    MANIFEST,
    MANIFEST_WITHOUT_REPLAY,
    REPLAY,
    Checkpoint,
    SavedPolicy,
)
from offbeat.runtime.loop.saving import SCORE
from offbeat.runtime.parts import join_states, state_of_policy

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""Names of the optimizer's arrays in the shared state of lock-free workers."""


def with_policies_of(own: Checkpoint, donor: Checkpoint, *, optimizer: bool) -> Checkpoint:
    """Return a member's full checkpoint with the policies of a donor's.

    Args:
        own: the checkpoint of the member.
        donor: a full checkpoint of the donor, of a run with the same settings of networks and topology.
        optimizer: whether to copy the optimizer's moments; else they are zero.
    """
    assert own.state is not None
    assert donor.state is not None
    policies = {name: _policy(own.policies[name], donor.policies[name]) for name in own.policies}
    if "workers" in own.state:
        return replace(own, policies=policies, state=_with_workers(own.state, donor.state, optimizer))
    states = {
        name: _with_one_learner(
            state_of_policy(name, own.state), state_of_policy(name, donor.state), policies[name], optimizer
        )
        for name in policies
    }
    return replace(own, policies=policies, state={**own.state, **join_states(states)})


def _policy(own: SavedPolicy, donor: SavedPolicy) -> SavedPolicy:
    """Return the donor's weights, with the progress of the member. Its score is that of other weights."""
    about = {key: value for key, value in own.about.items() if key != SCORE}
    return SavedPolicy(donor.weights, {**about, "policy": donor.about["policy"]})


def _with_one_learner(
    own: Mapping[str, Any], donor: Mapping[str, Any], policy: SavedPolicy, optimizer: bool
) -> dict[str, Any]:
    """Return the state of one policy of a run with one learner."""
    vector = published_vector(read_spec(policy.about["policy"]), dict(policy.weights))
    learner = _learner(own["learner"], donor["learner"], optimizer)
    return {**own, "learner": learner, "versions": {version: vector.copy() for version in own["versions"]}}


def _learner(own: Mapping[str, Any], donor: Mapping[str, Any], optimizer: bool) -> dict[str, Any]:
    adam = donor["adam"] if optimizer else {name: _zeros(arrays) for name, arrays in own["adam"].items()}
    return {**own, "algorithm": donor["algorithm"], "adam": adam}


def _with_workers(own: Mapping[str, Any], donor: Mapping[str, Any], optimizer: bool) -> dict[str, Any]:
    """Return the state of a run with lock-free workers, which share parameters and, if so set, moments."""
    learned = {
        name: array if optimizer or name.rpartition("/")[2] not in _MOMENTS else np.zeros_like(array)
        for name, array in donor["learned"].items()
    }
    workers = [
        {**mine, "learner": _learner(mine["learner"], theirs["learner"], optimizer)}
        if mine["learner"] and theirs["learner"]
        else mine
        for mine, theirs in zip(own["workers"], donor["workers"], strict=True)
    ]
    shared = {"learned": learned, "statistics": donor["statistics"]}
    algorithm = {**own["learner"], "algorithm": donor["learner"]["algorithm"]}
    return {**own, **shared, "learner": algorithm, "workers": workers}


def _zeros(arrays: Tree) -> Tree:
    return {name: np.zeros_like(array) for name, array in arrays.items()}


# --- checkpoints that are kept ------------------------------------------------------------------------------


def keep(checkpoint: Path, kept: Path) -> None:
    """Keep a checkpoint, without its replay, under another path: with hard links where the file system has them.

    Nothing is done if the path exists.

    Raises:
        OSError: a file could not be linked or copied.
    """
    if kept.exists():
        return
    source, temporary = checkpoint.resolve(), kept.with_name(f".writing-{kept.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    without = source / MANIFEST_WITHOUT_REPLAY
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        if file.name in (REPLAY, MANIFEST_WITHOUT_REPLAY):
            continue
        target = temporary / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        _link(without if file == source / MANIFEST and without.exists() else file, target)
    sync(temporary)
    temporary.rename(kept)
    sync(kept.parent)


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(file, target)
        sync(target)
