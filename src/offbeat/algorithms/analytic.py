"""Which algorithms have gradients that are written by hand, beside those of autograd.

Such gradients are those of one class: of its losses and its network. A subclass may replace either, so it is trained
with autograd, unless it says that its losses and its network are those of the class that it extends.
"""

from __future__ import annotations

from typing import TypeVar

Class = TypeVar("Class", bound=type)
_EXACT: set[type] = set()


def analytic_gradients(cls: Class) -> Class:
    """Decorate an algorithm whose losses and network have gradients written by hand; its subclasses have none."""
    _EXACT.add(cls)
    return cls


def has_analytic_gradients(cls: type) -> bool:
    """Whether such gradients are those of this very class."""
    return cls in _EXACT


def autograd_notice(cls: type) -> str:
    """Say that a subclass is trained with autograd, where the class that it extends has quicker gradients; else ''."""
    bases = [base.__name__ for base in cls.__mro__[1:] if base in _EXACT]
    if has_analytic_gradients(cls) or not bases:
        return ""
    return (
        f"{cls.__name__} is trained with autograd: the quicker gradients of {bases[0]} on a CPU are for its own losses "
        "and network alone"
    )
