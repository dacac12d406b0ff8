from __future__ import annotations

from offbeat.core.messages import once


def test_a_text_is_shown_once_also_with_other_details():
    shown: list[tuple[str, ...]] = []
    notify = once(lambda *parts: shown.append(parts))
    for parts in (("slow", "line 3"), ("slow", "line 4"), ("slow",), ("late", "line 4")):
        notify(*parts)
    assert shown == [("slow", "line 3"), ("late", "line 4")]
