"""The headings of the page on troubleshooting are what the messages say, because readers search for their words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support.pages import ROOT

VALUES = re.compile(r"\.\.\.|, |my_module(?::MyEnv)?|\b(?:N|sac|serial|hogwild|preset)\b|\d+ minutes|\d+(?:\.\d+)*")
"""What stands in a heading where a message has a value, and where it may have more words."""


def texts() -> Iterator[str]:
    """Yield the texts in the code, except its docstrings."""
    for path in (ROOT / "src").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
                yield node.value


def quoted_parts() -> Iterator[str]:
    """Yield the parts of the quoted headings between their values."""
    for line in (ROOT / "docs/how-to/troubleshooting.md").read_text().splitlines():
        for quoted in re.findall('"(.+?)"', line) if line.startswith("### ") else ():
            yield from (part.strip() for part in VALUES.split(quoted))


def test_a_message_has_the_words_of_each_quoted_heading():
    said = "\n".join(texts())
    parts = list(quoted_parts())
    assert "is a link to" in parts
    assert [part for part in parts if part not in said] == []
