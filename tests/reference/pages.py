"""The pages of the documentation as tests see them: their blocks of code, what is said of these, their links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {str(path.relative_to(ROOT)): path for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
_BLOCK = re.compile(
    r"^(?:<!-- (?P<note>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A block of code.

    The comment above it says what becomes of it: `run`, `run: exit 2, as shown` (a console block whose output is
    to be exactly what the page shows), `file: PATH` (it is that file). Blocks of Python need no comment to be run.
    """

    language: str
    text: str
    note: str

    @property
    def runs(self) -> bool:
        return self.note.startswith("run") or (self.language == "python" and not self.note)

    @property
    def exit_code(self) -> int:
        found = re.search(r"exit (\d+)", self.note)
        return int(found[1]) if found else 0

    @property
    def as_shown(self) -> bool:
        return "as shown" in self.note

    def commands(self) -> list[tuple[str, str]]:
        """(command, output) of a console block."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]
        pairs = (part.partition("\n") for part in parts)
        return [(command, output) for command, _, output in pairs]


def blocks(page: str) -> list[Block]:
    found = _BLOCK.finditer(PAGES[page].read_text())
    return [Block(match["language"], match["text"], match["note"] or "") for match in found]


def links(page: str) -> list[str]:
    """Targets of links and images that lie in the repository."""
    text = _BLOCK.sub("", PAGES[page].read_text())
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]


def anchors(path: Path) -> set[str]:
    """The anchors that a page's headings get, as code hosts make them."""
    text = _BLOCK.sub("", path.read_text())
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shortened(text: str) -> str:
    """The same code with a fiftieth of the env steps: what is tested is that it runs."""
    return re.sub(r"((?:steps|stop.at)[= ])(\d[\d_]+)", lambda match: match[1] + str(max(1, int(match[2]) // 50)), text)
