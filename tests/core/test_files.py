"""Paths as users give them, and files that are replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from offbeat.core.errors import ConfigError
from offbeat.core.files import replaced, user_path


def test_two_processes_can_replace_the_same_file_at_the_same_time(tmp_path):
    file = tmp_path / "return.png"
    with replaced(file) as first:
        first.write_bytes(b"first")
        with replaced(file) as second:
            second.write_bytes(b"second")
        assert file.read_bytes() == b"second"
    assert file.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [file]


def test_a_relative_path_is_refused_after_the_current_folder_was_deleted(tmp_path, monkeypatch):
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(ConfigError, match="the current folder was deleted"):
        user_path("run")
    assert user_path(tmp_path) == tmp_path == Path(tmp_path)
