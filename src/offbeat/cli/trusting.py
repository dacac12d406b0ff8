"""The flag by which the caller names modules for a run: `--import`."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import UseAppendAction, arg

Imports = Annotated[UseAppendAction[tuple[str, ...]], arg(name="import", metavar="MODULE")]
