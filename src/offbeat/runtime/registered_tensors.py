"""Refuses an algorithm of the user with a tensor that no checkpoint would have."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import torch
from torch import Tensor

from offbeat.algorithms.base import Algorithm
from offbeat.algorithms.checkpointed import Checkpointed
from offbeat.core.errors import ConfigError


def require_saved(algorithm: Algorithm, registered: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are registered because learning changes them, but are neither in `arrays()` nor in `state()`.

    Args:
        algorithm: one that extends `OnPolicy` or `OffPolicy`; others are not checked.
        registered: the tensors that it has registered with its storage, by name.

    Raises:
        ConfigError: with the name of the first of them.
    """
    if not isinstance(algorithm, Checkpointed):
        return
    saved = {array.untyped_storage().data_ptr() for array in algorithm.arrays().values()}
    for name, tensor in registered.items():
        if tensor.untyped_storage().data_ptr() not in saved and not _changes_state(algorithm, tensor):
            raise ConfigError(
                f"{type(algorithm).__qualname__} registers the tensor {name!r}, but no checkpoint would have it, so a "
                "resumed run would begin with another value: add it to the result of `arrays`, or save it in `state` "
                "and restore it in `restore`"
            )


@torch.no_grad()
def _changes_state(algorithm: Checkpointed, tensor: Tensor) -> bool:
    """Whether the result of `state()` depends on a tensor. The tensor has its value again when this returns."""
    before, value = pickle.dumps(algorithm.state()), tensor.clone()
    tensor.copy_(value == 0)  # changes each element, whatever its dtype
    try:
        return pickle.dumps(algorithm.state()) != before
    finally:
        tensor.copy_(value)
