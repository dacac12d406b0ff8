from __future__ import annotations

import pytest

from offbeat.core.typed_text import as_text


@pytest.mark.parametrize(("value", "text"), [([{"a": 1}], "[{a = 1}]"), (((1,),), "[[1]]"), ((64, 64), "64,64")])
def test_a_list_with_one_table_or_list_is_shown_as_a_list(value, text):
    assert as_text(value) == text
