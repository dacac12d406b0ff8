"""Reads TOML files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from offbeat.core.errors import ConfigError

MOST_BYTES = 1 << 22
"""Maximum size of a file in bytes: it may come from someone else, and its tables take many times its size in memory."""
MOST_BYTES_OF_A_RUN = MOST_BYTES // 4
"""Maximum size of the config of a new run. It is in other files of the run too, which take more bytes for a value."""


def read_toml(path: Path, name: str, *, if_unreadable: str, if_invalid: str) -> dict[str, Any]:
    """Return the tables of a TOML file, unchecked.

    Args:
        path: path of the file.
        name: what the file is, with its path, for messages.
        if_unreadable: what to do if it cannot be read, or is too large.
        if_invalid: what to do if it is not TOML.

    Raises:
        ConfigError: the file cannot be read, is too large, or is not TOML.
    """
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{name} cannot be read (it is not a file): {if_unreadable}")
        if (size := path.stat().st_size) > MOST_BYTES:
            raise ConfigError(f"{name} has {size} bytes, but at most {MOST_BYTES} are expected: {if_unreadable}")
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors write a byte order mark
    except OSError as error:
        why = "it does not exist" if isinstance(error, FileNotFoundError) else error.strerror
        raise ConfigError(f"{name} cannot be read ({why}): {if_unreadable}") from None
    except (ValueError, RecursionError) as error:  # ValueError: also for numbers with thousands of digits
        raise ConfigError(f"{name} is not TOML ({error}): {if_invalid}") from None
