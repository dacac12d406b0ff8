from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from offbeat.tracking.follower import new_lines


@given(
    lines=st.lists(st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False), max_size=3), max_size=5),
    cuts=st.lists(st.integers(0, 300), max_size=5),
)
def test_each_complete_line_of_a_growing_file_is_read_once(tmp_path_factory, lines, cuts):
    path = tmp_path_factory.mktemp("metrics") / "metrics.jsonl"
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    read, position = new_lines(path, 0)
    assert (read, position) == ([], 0)
    for cut in [*sorted(cuts), len(data)]:
        path.write_bytes(data[:cut])
        more, position = new_lines(path, position)
        read += more
        assert len(read) == data[:cut].count(b"\n")
    assert read == lines
