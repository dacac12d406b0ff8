"""The registry of fast paths: faster code for the gradients of an algorithm, with the same results.

A fast path is registered for one exact class, because its formulas depend on the losses and the network of that class.
A subclass is trained with autograd unless it has its own registration::

    register(MyPPO, PPOFastPath, applies=PPOFastPath.applies)

offbeat's own fast paths are in `offbeat.fastpath`. Its module `registrations` registers them. It is imported by name at
the first lookup, because it imports the algorithms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

FOLDER = "offbeat.fastpath"
Made = TypeVar("Made")


@dataclass(frozen=True)
class _Entry:
    make: Callable[[Any], Any]
    applies: Callable[[Any], bool]


_ENTRIES: dict[type, _Entry] = {}


def register(algorithm_class: type[Made], make: Callable[[Made], object], *, applies: Callable[[Made], bool]) -> None:
    """Register the fast path of one exact class; a later call replaces it.

    Args:
        algorithm_class: the exact class; its subclasses get no fast path.
        make: returns a new fast path for an algorithm; called after the networks were made. The fast path implements
            `batch_network.OnPolicyFastPath` for on-policy algorithms, `soft_actor_critic.SoftFastPath` for SAC and
            CrossQ, `replay_actor_critic.ReplayFastPath` for TD3.
        applies: whether the fast path supports the settings, the policy and the device of an algorithm. It may also be
            called with an instance of a subclass.
    """
    _ENTRIES[algorithm_class] = _Entry(make, applies)


def fast_path_of(algorithm: object) -> Any:
    """Return a new fast path; None if none is registered for the algorithm's exact class, or if it does not apply."""
    _load()
    entry = _ENTRIES.get(type(algorithm))
    return entry.make(algorithm) if entry is not None and entry.applies(algorithm) else None


def autograd_notice(algorithm: object) -> str:
    """Return a line for the log if only a base class of a user's algorithm has a fast path; else ''."""
    _load()
    if type(algorithm).__module__.startswith("offbeat."):
        return ""  # it is documented whether it has a fast path
    registered = [base for base in type(algorithm).__mro__ if base in _ENTRIES]
    if not registered or registered[0] is type(algorithm) or not _ENTRIES[registered[0]].applies(algorithm):
        return ""
    return (
        f"{type(algorithm).__name__} is trained with autograd: the faster gradients on a CPU are registered for "
        f"{registered[0].__name__} itself, not for its subclasses"
    )


@cache
def _load() -> None:
    """Import offbeat's own fast paths."""
    import_module(f"{FOLDER}.registrations")
