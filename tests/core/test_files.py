"""Paths as users give them, and files that are replaced."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from offbeat.core.errors import ConfigError
from offbeat.core.files import remedy_for, replaced, user_path


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


@pytest.mark.parametrize(
    ("number", "otherwise", "remedy"),
    [
        (errno.ENOSPC, "", "free some disk space"),
        (errno.EDQUOT, "pass another file", "free some disk space, or pass another file"),
        (errno.EFBIG, "", "raise the limit of file sizes (`ulimit -f`)"),
        (errno.EMFILE, "", "raise the limit of open files (`ulimit -n`)"),
        (errno.EROFS, "", "make the folder writable"),
        (errno.EIO, "pass another file", "pass another file"),
        (errno.EIO, "", "remove the cause"),
    ],
)
def test_the_remedy_for_a_file_that_cannot_be_written_depends_on_the_error(number, otherwise, remedy):
    assert remedy_for(OSError(number, ""), otherwise) == remedy
