"""Names of policies, and of what belongs to one of several. This module does not load NumPy."""

from __future__ import annotations

DEFAULT_POLICY = "default"
"""Name of the policy of a run that has only one."""


def policy_key(policy: str, name: str = "") -> str:
    """Return the name of an array, a metric or a file of a policy: `name` itself in a run with one policy."""
    return name if policy == DEFAULT_POLICY else f"policies/{policy}/{name}"


def without_policy(key: str) -> str:
    """Return the name from which `policy_key` has made a key, of any policy."""
    return key.split("/", 2)[2] if key.startswith("policies/") else key
