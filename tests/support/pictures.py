"""What is drawn in a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image


def ink(picture: Path, pixels: int = 50) -> set[Any]:
    """Return the colours of a picture that fill more than so many pixels; the edges of letters have up to some 300."""
    colors = Image.open(picture).convert("RGB").getcolors(1 << 24) or []
    return {color for count, color in colors if count > pixels}
