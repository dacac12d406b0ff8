"""On a node: the error for a module that the user's code needs, and that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from offbeat.core.errors import ConfigError, RunFailed, with_notes_of


@contextmanager
def naming_this_node(more: str = "") -> Iterator[None]:
    """Let the error for a missing module name this node, and what to do on a cluster.

    Args:
        more: end of the message: what else helps.

    Raises:
        RunFailed: a module is missing. This would occur again after a restart.
    """
    try:
        yield
    except (ConfigError, ModuleNotFoundError) as error:
        missing = error.__cause__ or error
        if not isinstance(missing, ModuleNotFoundError) or missing.name is None:
            raise
        raise with_notes_of(_not_on_this_node(missing.name, more), error) from error


def _not_on_this_node(module: str, more: str) -> RunFailed:
    import ray

    address_of_node = cast(Any, ray.util.get_node_ip_address)
    return RunFailed(
        f"the module {module} is not on the node {address_of_node()}: install it there, or put it into a folder that "
        f"all nodes see{more}"
    )
