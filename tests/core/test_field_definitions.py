"""The docstrings under the fields of a config."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType

from offbeat.core.field_definitions import field_docstrings

LIMIT = 3


@dataclass(frozen=True)
class Own:
    first: int = 1
    """The first
    number."""
    second: int = 2
    f"""At most {LIMIT}."""
    third: int = 3


def test_only_a_text_under_a_field_is_its_docstring():
    assert field_docstrings(Own) == {"first": "The first number."}


def test_a_class_without_a_file_has_no_docstrings_of_fields(monkeypatch):
    module = ModuleType("typed_module")
    monkeypatch.setitem(sys.modules, "typed_module", module)
    exec("class Typed:\n    first: int = 1\n    'The first number.'\n", vars(module))
    assert field_docstrings(module.Typed) == {}
