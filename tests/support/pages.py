"""The pages of the documentation as tests see them: their blocks of code, what is said of these, their links.

Every block of Python and of commands is run, in the order of the page, `shortened`: with few of the env steps and the
first turn of each shell loop. A comment above a block says where it is otherwise; see `Block`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
WRITTEN = [
    *(ROOT / f"{name}.md" for name in ("README", "SECURITY", "CONTRIBUTING")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PAGES = {str(path.relative_to(ROOT)): path for path in WRITTEN}
_BLOCK = re.compile(
    r"^(?:<!-- (?P<note>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


SHELL = ("bash", "console")
LANGUAGES = ("python", *SHELL, "toml")
"""What can be typed or loaded; all else is a picture, or what a program says."""


@dataclass(frozen=True)
class Block:
    """A block of code.

    The comment above it says what becomes of it, if it is not simply run: `exit 2, as shown` (commands, all of which
    end with 2, and whose output is to be exactly what the page shows), `file: PATH` (it is that file, which has tests
    of its own), `only checked: WHY` (code that cannot be run by tests: Python must parse, and each command must be one
    that could be typed), `part of a spec` (of an experiment, of which the rest is not shown).
    """

    language: str
    text: str
    note: str

    @property
    def runs(self) -> bool:
        return self.language in ("python", *SHELL) and not self.is_file and not self.only_checked

    @property
    def is_file(self) -> bool:
        return self.note.startswith("file: ")

    @property
    def only_checked(self) -> bool:
        return self.note.startswith("only checked: ")

    @property
    def exit_code(self) -> int:
        found = re.search(r"exit (\d+)", self.note)
        return int(found[1]) if found else 0

    @property
    def as_shown(self) -> bool:
        return "as shown" in self.note

    def commands(self) -> list[tuple[str, str]]:
        """(command, output) of a console block; a block of bash is one command that shows nothing."""
        if self.language == "bash":
            return [(self.text, "")]
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
    """The same code with fewer env steps, and the first turn of each shell loop.

    Of the env steps a hundredth is left, so what trains longer still does. A command that says nothing of steps trains
    for 250, not for the million that it would. A tenth is left where a league takes snapshots, which it does after
    each learning step. What is tested is that it runs.
    """
    part = 10 if "league.snapshot_every" in text else 100
    text = re.sub(r"(offbeat train \S+ \S+)(?!(?:\\\n|.)*\bsteps[ =])", r"\1 --steps 25000", text)
    text = re.sub(r"(league.snapshot_every=)\d+", r"\g<1>1", text)
    text = re.sub(r"(for \w+ in \S+)[^;\n]*;", r"\1;", text)
    return re.sub(
        r"((?:steps|stop.at)(?:[= ]|\": ))(\d[\d_]+)", lambda match: f"{match[1]}{int(match[2]) // part or 1}", text
    )


def directory_on(page: str) -> set[str]:
    """Return the paths in the picture of a directory on a page, below its first line; numbers are written as N."""
    (tree,) = [block.text for block in blocks(page) if block.text.startswith("experiments/")]
    paths: set[str] = set()
    parents = [""]
    for line in tree.splitlines()[1:]:
        depth = (len(line) - len(line.lstrip())) // 2
        if depth > len(parents):
            continue  # the rest of a description
        names = re.split(r" {2,}", line.strip())[0].split()
        here = parents[depth - 1]
        paths |= {here + re.sub(r"\d+", "N", name).rstrip("/") for name in names}
        parents = [*parents[:depth], here + re.sub(r"\d+", "N", names[0].rstrip("/")) + "/"]
    return paths


def directory_at(path: Path, depth: int) -> set[str]:
    """Return the paths below a directory, down to a depth, as `directory_on` does. Hidden files are left out."""
    found = {file.relative_to(path) for level in range(depth) for file in path.glob("/".join(["*"] * (level + 1)))}
    return {re.sub(r"\d+", "N", str(file)) for file in found if not any(part.startswith(".") for part in file.parts)}
