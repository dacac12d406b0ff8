"""What all figures share: colors, and how a figure is written."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from offbeat.core.argument_notation import printable
from offbeat.core.errors import ConfigError
from offbeat.core.files import remedy_for, replaced
from offbeat.core.messages import ignore

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000")
"""Okabe and Ito's palette, which is suitable for color-blind readers."""
DASHES: tuple[Any, ...] = ("-", "--", "-.", (0, (6, 1.2, 1, 1.2, 1, 1.2)), (0, (1, 1)))
"""Solid, dashed, with one dot between dashes, with two, and dotted."""
MOST_NAMED = len(COLORS) * len(DASHES)
"""Curves that a legend names: those that look different. With hundreds of names a picture would be too tall."""
_UNNAMED: dict[str, Any] = {"color": "#BBBBBB", "linestyle": "-"}
TITLE: dict[str, Any] = {"fontsize": 13, "fontweight": "bold"}
"""Style of a title."""
_LACKS_GLYPH = re.compile(r"Glyph (\d+) .* missing from")
"""Start of matplotlib's warning of a character that the font lacks."""


def line_style(index: int) -> dict[str, Any]:
    """Return the color and the dashes of the index-th curve; all that the legend does not name are light grey."""
    if index >= MOST_NAMED:
        return _UNNAMED
    return {"color": COLORS[index % len(COLORS)], "linestyle": DASHES[index // len(COLORS)]}


def literal(text: str) -> str:
    """Return a name as it is drawn: control characters escaped, and no formulas, which dollar signs enclose."""
    return printable(text).replace("$", r"\$")


def wrapped(text: str, width: float, size: float = 9) -> str:
    """Return a text with line breaks, so that it fits into a width; a text with formulas as it is.

    Args:
        text: the text.
        width: the width in inches.
        size: the size of its letters in points.
    """
    letters = int(112 * width / size)
    if re.search(r"(?<!\\)\$", text):  # one that `literal` has not written
        return text
    return "\n".join(fill(line, letters, break_on_hyphens=False) for line in text.split("\n"))


def show_grid(axes: Axes) -> None:
    """Draw a light grid, and no frame at the top and the right."""
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def require_format(out: Path) -> None:
    """Refuse the name of a file whose suffix is no format of matplotlib.

    Raises:
        ConfigError: with the suffixes that are.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if out.suffix[1:].lower() not in known:
        raise ConfigError(
            f"an image cannot be written to {out}: its name must end in one of "
            f"{', '.join('.' + suffix for suffix in sorted(known))}, such as {example_path(out, '.png')}"
        )


def example_path(path: Path, suffix: str) -> Path:
    """Return a path with another suffix, for a message; for . and / and .., which have no name, a file in them."""
    return path / f"picture{suffix}" if path.name in ("", "..") else path.with_suffix(suffix)


def write_figure(figure: Figure, out: Path, notify: Callable[[str], None], flag: str = "") -> None:
    """Write a figure to a file. An existing file, whose permissions stay, is replaced when the new one is complete.

    Args:
        figure: The figure.
        out: The file, with a suffix that matplotlib knows.
        notify: Called with a message that names the characters that the font lacks.
        flag: The flag that gives another file, for messages.

    Raises:
        ConfigError: nothing can be written to the file or its folder.
        OSError: it could not be written, for example because the disk is full.
    """
    with replaced(out, flag) as temporary, _lacking_glyphs_named(notify):
        figure.savefig(temporary)


@contextmanager
def _lacking_glyphs_named(notify: Callable[[str], None]) -> Iterator[None]:
    """Name the characters that the font lacks in one message. Matplotlib warns of each of them, several times."""
    lacking: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", _LACKS_GLYPH.pattern)
        yield
    for each in caught:
        if found := _LACKS_GLYPH.match(str(each.message)):
            lacking.append(chr(int(found[1])))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if lacking:
        notify(
            f"the font of the picture lacks {' '.join(dict.fromkeys(lacking))}, so it shows other signs in their "
            "place: set font.family in matplotlib's file matplotlibrc to a font that has them"
        )


def save_figure(figure: Figure, out: Path, notify: Callable[[str], None] = ignore) -> Path:
    """Write a figure to a file as `write_figure`, in the format of its suffix; return the file.

    Raises:
        ConfigError: the suffix is unknown, the file cannot be written, or a text has an invalid formula.
    """
    require_format(out)
    try:
        write_figure(figure, out, notify, "--out")
    except OSError as error:
        remedy = remedy_for(error, "pass another file with --out")
        raise ConfigError(f"{out} cannot be written ({error.strerror}): {remedy}") from None
    except ValueError as error:
        if "Parse" not in str(error):
            raise
        raise ConfigError(
            f"{out} cannot be drawn, because a title or a label has an invalid formula between two dollar signs: write "
            "\\$ for each dollar sign of a text"
        ) from error
    return out
