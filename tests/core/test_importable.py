"""A package that is not installed is missing, also if there is a folder with its name."""

from __future__ import annotations

import pytest

from offbeat.core.importable import is_importable


@pytest.mark.parametrize(("package", "importable"), [("torch", True), ("sys", True), ("no_such_package", False)])
def test_packages_that_can_be_imported_are_found(package, importable):
    assert is_importable(package) == importable


def test_a_folder_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "only_a_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_importable("only_a_folder")
