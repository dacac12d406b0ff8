"""The command lines of the benchmarks. With `--out`, a trial does not replace the published results unnoticed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import RESULTS


def new_parser(text: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help begins with the docstring of a benchmark, as it is written."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def read_options(
    parser: argparse.ArgumentParser,
    *free: str,
    unless: str = "",
    folder: Path = RESULTS,
    arguments: Sequence[str] | None = None,
) -> argparse.Namespace:
    """Add `--out` to a parser, and read the command line. If other options differ from their defaults, `--out` must be
    given, because the results would replace the published ones.

    Args:
        parser: has all other options.
        free: names of options that may differ without `--out`: with any value the results are worth publishing.
        unless: name of an option with which no results are written.
        folder: the folder of the published results, the default of `--out`.
        arguments: the command line; default: that of this process.
    """
    published = folder.relative_to(RESULTS.parent.parent)
    parser.add_argument("--out", type=Path, help=f"folder of the results; default: {published}")
    options = parser.parse_args(arguments)
    others = {name: value for name, value in vars(options).items() if name not in ("out", *free)}
    changed = [f"--{name.replace('_', '-')}" for name, value in others.items() if value != parser.get_default(name)]
    if changed and options.out is None and not getattr(options, unless, None):
        parser.error(
            f"without --out, the results with other {', '.join(changed)} than the default would replace the published "
            f"ones: pass --out FOLDER, or --out {published} to replace them"
        )
    options.out = options.out or folder
    return options
