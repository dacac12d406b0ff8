"""The flags by which the caller names modules for a run, `--import`, or accepts all that it names, `--trust-code`."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import UseAppendAction, arg

Imports = Annotated[UseAppendAction[tuple[str, ...]], arg(name="import", metavar="MODULE")]
RunImports = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(
        name="import",
        metavar="MODULE",
        help="Python module to import first, which may register what the run names; of the current folder too.",
    ),
]
TrustCode = Annotated[
    bool, arg(help="Import and call whatever code the run names: only for runs of your own, or after reading it.")
]
