"""Hooks of the site (mkdocs.yml): files of the repository that pages link to become part of the site.

A page may link to any file, as it does when it is read in the repository: `../../benchmarks/results/speed.md`. Markdown
becomes a page, code a page that shows it, a folder a list of its files, and all else is copied.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = "repository/"
"""Folder of the site for files that are not in docs/."""
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "bash", ".yml": "yaml"}
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is linked to, directly or from a page that is added."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for path in linked(page):
            if path in seen or path.startswith("docs/") or not (ROOT / path).exists():
                continue
            seen.add(path)
            files.append(added(path, config))
            if path.endswith(".md"):
                waiting.append(path)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links to files of the repository lead to their places on the site."""
    here = page.file.src_uri
    path = here.removeprefix(OUTSIDE) if here.startswith(OUTSIDE) else f"docs/{here}"
    if not path.endswith(".md") or not (ROOT / path).is_file():
        return markdown  # made here: there are no links to mend

    def mended(match: re.Match[str]) -> str:
        target = resolved(path, match[1])
        if target is None:
            return match[0]
        return posixpath.relpath(place_of(target), posixpath.dirname(here) or ".") + (match[2] or "")

    return LINK.sub(mended, markdown)


def linked(page: str) -> Iterator[str]:
    """Yield the paths in the repository that a page of it links to."""
    text = FENCE.sub("", (ROOT / page).read_text())
    for target, _ in LINK.findall(text):
        path = resolved(page, target)
        if path is not None:
            yield path


def resolved(page: str, target: str) -> str | None:
    """Return the path in the repository of a link's target; None for an address."""
    if "://" in target or target.startswith("mailto:"):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def place_of(path: str) -> str:
    """Return the path on the site, relative to docs/, of a path in the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return "index.md"
    if (ROOT / path).is_dir():
        return f"{OUTSIDE}{path}/index.md"
    return OUTSIDE + path + (".md" if Path(path).suffix in LANGUAGES else "")


def added(path: str, config: MkDocsConfig) -> File:
    """Return the file of the site for a file or folder of the repository."""
    source, place = ROOT / path, place_of(path)
    hidden = InclusionLevel.NOT_IN_NAV
    if source.is_dir():
        return File.generated(config, place, content=listing(path), inclusion=hidden)
    if source.suffix in LANGUAGES:
        shown = f"# {path}\n\n````{LANGUAGES[source.suffix]}\n{source.read_text()}````\n"
        return File.generated(config, place, content=shown, inclusion=hidden)
    return File.generated(config, place, abs_src_path=os.fspath(source), inclusion=hidden)


def listing(path: str) -> str:
    """Return a page that names the files of a folder."""
    names = sorted(entry.name for entry in (ROOT / path).iterdir() if not entry.name.startswith((".", "__")))
    return "\n".join([f"# {path}", "", *(f"- `{name}`" for name in names), ""])
