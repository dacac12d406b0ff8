"""Refuses a Gymnasium that is too old: a package of envs may have replaced it."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from offbeat.core.errors import ConfigError

OLDEST_GYMNASIUM = (1, 1)
"""As in pyproject.toml: the first version whose vector envs tell where the reset row is."""


def require_gymnasium() -> None:
    """Refuse an installed Gymnasium that is older than offbeat needs.

    Raises:
        ConfigError: with the command that installs a newer one.
    """
    try:
        installed = version("gymnasium")
    except PackageNotFoundError:  # its import says so
        return
    numbers = tuple(map(int, re.findall(r"\d+", installed)[:2]))  # 1.1rc1 has the numbers 1, 1
    if numbers >= OLDEST_GYMNASIUM:
        return
    oldest = ".".join(map(str, OLDEST_GYMNASIUM))
    raise ConfigError(
        f"gymnasium {installed} is installed, but {oldest} or newer is expected: a package of envs has probably "
        f'replaced it. Run pip install "gymnasium>={oldest},<2" after it; many such packages work with the new one too'
    )
