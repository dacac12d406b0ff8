"""Whether an optional package is there to be imported."""

from __future__ import annotations

from importlib.util import find_spec


def is_importable(package: str) -> bool:
    """Whether a package can be imported. A folder with its name, such as the output of wandb, does not count."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None
