"""Warns of a tensor of the user's algorithm that no checkpoint seems to have."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping

import torch
from torch import Tensor

from offbeat.algorithms.base import Algorithm
from offbeat.algorithms.checkpointed import Checkpointed


def unsaved_warning(algorithm: Algorithm, registered: Mapping[str, Tensor]) -> str:
    """Return a warning of registered tensors on which neither `weights()` nor `state()` depends; '' if there are none.

    It is no error: an algorithm may write a tensor anew before each learning step.

    Args:
        algorithm: one that extends `OnPolicy` or `OffPolicy`; others are not checked.
        registered: the tensors that it has registered with its storage, by name.
    """
    if not isinstance(algorithm, Checkpointed):
        return ""
    saved = {array.untyped_storage().data_ptr() for array in algorithm.arrays().values()}
    names = [
        name
        for name, tensor in registered.items()
        if tensor.untyped_storage().data_ptr() not in saved and not _changes_checkpoint(algorithm, tensor)
    ]
    if not names:
        return ""
    return (
        f"{type(algorithm).__qualname__} registers {', '.join(map(repr, names))}, but its checkpoints do not "
        "seem to have the values, so a resumed run would begin with the initial ones. If they matter, add the tensors "
        "to the result of `arrays`, each under a name of its own (two networks of one class have the same names: give "
        "those of one a prefix), or save them in `state` and restore them in `restore`, before a new run"
    )


@torch.no_grad()
def _changes_checkpoint(algorithm: Algorithm, tensor: Tensor) -> bool:
    """Whether a checkpoint depends on a tensor. The tensor has its value again when this returns.

    An error counts as yes: the user's methods need not accept the changed value.
    """
    try:
        before, value = _checkpoint(algorithm), tensor.clone()
        tensor.copy_(value == 0)  # changes each element, whatever its dtype
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return _checkpoint(algorithm) != before
        finally:
            tensor.copy_(value)
    except Exception:  # noqa: BLE001
        return True


def _checkpoint(algorithm: Algorithm) -> bytes:
    return pickle.dumps((algorithm.weights(), algorithm.state()))
